"""The decisions: whole, in the index, and named in the code at the place that they are about."""

from __future__ import annotations

import re

import pytest

from tests.docs import pages
from tests.docs.pages import ROOT

pytestmark = pytest.mark.checkout

FOLDER = ROOT / "docs" / "decisions"
NAMES = sorted(path.name for path in FOLDER.glob("[0-9]*.md"))
NUMBERS = [name[:4] for name in NAMES]
CODE = ("relay", "lua", "proto", "deploy", "tools", "bench", "chaos")
"""The folders that may name a decision."""
SEE = re.compile(r"\bsee (?:docs/decisions/)?(\d{4})\b", re.IGNORECASE)


def named() -> dict[str, list[str]]:
    """Which decisions the code names, as `see 0043`, and where."""
    found: dict[str, list[str]] = {}
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".lua", ".proto", ".yaml", ".tpl", ".mjs"} and path.is_file():
                for number in re.findall(
                    r"\bsee (?:docs/decisions/)?(\d{4})\b", path.read_text(encoding="utf-8")
                ):
                    found.setdefault(number, []).append(str(path.relative_to(ROOT)))
    return found


def test_a_decision_is_whole() -> None:
    """Its number, and its three parts; and the index has it, under its own title."""
    index = pages.text("docs/decisions/README.md")
    for name in NAMES:
        page = pages.text(f"docs/decisions/{name}")
        assert page.startswith(f"# {name[:4]}: "), name
        parts = re.findall(r"^## (.*)$", page, re.MULTILINE)
        assert parts == ["Context", "Decision", "Consequences"], name
        assert f"[{name[:4]}]({name})" in index, name


def test_a_number_is_used_once() -> None:
    assert len(set(NUMBERS)) == len(NUMBERS)


def test_the_index_says_where_the_missing_numbers_went() -> None:
    """Up to the last that is listed: a number behind it may be another branch's."""
    gone = pages.text("docs/decisions/README.md").partition("## Numbers that are gone")[2]
    listed = re.findall(r"^\| (\d{4}) \|", gone, re.MULTILINE)
    assert listed == [f"{n:04}" for n in range(1, int(listed[-1]) + 1) if f"{n:04}" not in NUMBERS]


def test_each_decision_is_named_at_its_place() -> None:
    """A decision about nothing in the code is listed in the index, with the reason."""
    without = pages.text("docs/decisions/README.md").partition("## Without a place in the code")[2]
    listed = set(re.findall(r"^\| (\d{4}) \|", without.partition("\n## ")[0], re.MULTILINE))
    assert set(NUMBERS) - set(named()) == listed


@pytest.mark.slow
def test_what_the_code_names_is_there() -> None:
    lost = {number: places for number, places in named().items() if number not in NUMBERS}
    assert lost == {}
