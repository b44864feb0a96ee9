"""Files of results: JSON, a line each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Result = Mapping[str, Any]


def read(file: Path) -> list[Result]:
    """The results in a file; an empty list if there is no such file."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write(file: Path, results: Iterable[Result]) -> None:
    """Have these results in a file, and no others."""
    file.write_text("".join(f"{json.dumps(each)}\n" for each in results), encoding="utf-8")
