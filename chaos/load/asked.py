"""What each process of the load is told on its command line."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any


def asked(**own: Callable[[str], Any]) -> argparse.Namespace:
    """`--ledgers` (a folder), `--name`, and a process' own options, each with what reads its text. All have
    to be there. The client logs to standard error from here on."""
    parser = argparse.ArgumentParser()
    readers: dict[str, Callable[[str], Any]] = {"ledgers": Path, "name": str, **own}
    for option, read in readers.items():
        parser.add_argument(f"--{option}", required=True, type=read)
    logging.basicConfig(level=logging.INFO)
    return parser.parse_args()
