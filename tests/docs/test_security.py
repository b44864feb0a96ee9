"""Each line of the threat model names a test that is there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.pages import ROOT, text

pytestmark = pytest.mark.checkout

_LINE = re.compile(r"^\| (?P<holds>[^|]+) \| (?P<tests>[^|]+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def lines() -> list[tuple[str, str]]:
    """What holds, and what stands beside it."""
    found = [(line["holds"].strip(), line["tests"]) for line in _LINE.finditer(text("SECURITY.md"))]
    return [each for each in found if each[0] != "what holds" and set(each[0]) != {"-"}]


def test_each_line_of_the_model_has_a_test() -> None:
    assert len(lines()) > 15
    for holds, tests in lines():
        named = _TEST.findall(tests)
        assert named, f"no test: {holds}"
        for path, name in named:
            file = ROOT / path
            assert file.is_file(), f"{holds}: {path} is not there"
            functions = {
                node.name
                for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
            }
            assert name in functions if name else functions, f"{holds}: {path} has no {name}"
