"""docs/reliability.md, from the results. (Written next.)"""

from __future__ import annotations

from pathlib import Path
from typing import Any

RESULTS = Path("build/faults.jsonl")


def line_of(result: dict[str, Any]) -> str:
    return str(result)
