"""Files that are made from code: write one, or check that it is what the code says."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write_or_check(path: Path, wanted: str, says: str, tool: str) -> None:
    """Write `wanted`; with --check only compare, and exit 1, with a diff, if the file has drifted.

    `says`: what the file ought to follow, as in `what the settings say`; `tool` writes it.
    """
    name = path.relative_to(ROOT).as_posix()
    parser = argparse.ArgumentParser(description=f"Write {name}, or check it.")
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 if it has drifted")
    if not parser.parse_args().check:
        path.write_text(wanted, encoding="utf-8")
        return
    there = path.read_text(encoding="utf-8") if path.exists() else ""
    if there == wanted:
        return
    sys.stderr.writelines(difflib.unified_diff(there.splitlines(True), wanted.splitlines(True), name, says))
    sys.exit(f"{name} has drifted: run python {tool}")
