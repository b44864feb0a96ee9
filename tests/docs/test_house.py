"""The house keeps its shape: rooms of a size to look over, and one class of a name."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ("relay/v1", "relay/journal")

MOST_FILES = 15
"""Source files that one folder may hold."""

MIRRORED = {
    "Backfilled",
    "DeadLetter",
    "ExpectedLoad",
    "Forecast",
    "NewTimer",
    "OnConflict",
    "Recurrence",
    "Recurrences",
    "TimerEvent",
    "TimerNow",
    "TimerStanding",
    "TimerState",
}
"""The client knows nothing of the daemon: these say the same on both sides of the wire, by the same name."""


def sources() -> list[Path]:
    """The product's source files, without what is generated."""
    files = [*(ROOT / "relay").rglob("*.py"), *(ROOT / "lua").rglob("*.lua")]
    return [file for file in files if not str(file.relative_to(ROOT)).startswith(GENERATED)]


def test_no_folder_holds_more_than_can_be_looked_over() -> None:
    held = Counter(str(file.parent.relative_to(ROOT)) for file in sources())
    assert {folder: count for folder, count in held.items() if count > MOST_FILES} == {}


def test_the_name_of_a_class_stands_in_one_module() -> None:
    named: dict[str, list[str]] = {}
    for file in sources():
        if file.suffix == ".py":
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    named.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    twice = {name: modules for name, modules in named.items() if len(modules) > 1}
    assert {name: modules for name, modules in twice.items() if name not in MIRRORED} == {}
    assert twice.keys() == MIRRORED, "a name that is mirrored no more leaves the list"


GROUP = """
import os, pytest
@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("n", range(6))
def test_of_a_group(n):
    open(os.environ["PYTEST_XDIST_WORKER"], "w").close()
"""


def test_a_group_of_tests_has_one_worker(tmp_path: Path) -> None:
    """Worlds that are started once rest on it. A pytest that xdist does not understand drops it silently."""
    (tmp_path / "test_group.py").write_text(GROUP, encoding="utf-8")
    run = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist=loadgroup", "-c", "/dev/null", "."]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("gw*"))) == 1
