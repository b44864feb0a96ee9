"""What tools/prose.py finds, and what it leaves alone. `make check` runs it over the whole repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import prose

pytestmark = pytest.mark.checkout


def found(file: Path) -> list[int]:
    """The lines with a phrase."""
    lines = prose.prose(file)
    return [line.number for line in lines if any(each.pattern.search(line.text) for each in prose.PHRASES)]


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("a.py", '"""Counts.\n\n    Begins anew, in the docstring.\n    """\n', 3),
        ("a.py", "x = 1  # for ever\n", 1),
        ("a.py", 'raise ValueError(f"{x} is no number, as it seems")\n', 1),
        ("a.py", 'LIMIT = 5\n"""Of each call, the most."""\n', 2),
        ("a.lua", "local x = 1\n-- so many of them\n", 2),
        ("a.proto", "// It is of no use here.\n", 1),
        ("a.mjs", "/**\n * It waits for so long.\n */\n", 2),
        ("a.md", "# Words\n\nIt is none.\n", 3),
        ("a.yaml", "key: 1 # told of it\n", 1),
    ],
)
def test_a_phrase_is_found(tmp_path: Path, name: str, text: str, number: int) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert found(file) == [number]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", '"""There is no list, and it is no longer here: as long as `so many` is a name."""\n'),
        ("a.py", "if x is None and anew:\n    so_many = 1\n"),
        ("a.md", "```\nso many\n```\n"),
        ("a.lua", "done() -- @rule starts-anew\n"),
    ],
)
def test_code_and_plain_english_are_left_alone(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert found(file) == []


def test_docs_code_and_scripts_are_looked_at() -> None:
    names = {name for name, _ in prose.files()}
    assert {"README.md", "docs/reference/settings.md", "relay/app.py", "lua/lib/prelude.lua"} <= names
