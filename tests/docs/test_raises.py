"""A public function says in its docstring what it raises."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.checkout]

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ("relay/v1", "relay/journal/")

Function = ast.FunctionDef | ast.AsyncFunctionDef
FOR_NO_CALLER = {"AssertionError", "Exit"}
"""Errors that no caller handles: a mistake of our own, and the end of a command."""


def modules() -> dict[str, ast.Module]:
    files = sorted((ROOT / "relay").rglob("*.py"))
    names = {str(file.relative_to(ROOT)): file for file in files}
    return {
        name: ast.parse(file.read_text(encoding="utf-8"))
        for name, file in names.items()
        if not name.startswith(GENERATED)
    }


def public(tree: ast.Module | ast.ClassDef, docstrings: str = "") -> Iterator[tuple[Function, str]]:
    """The public functions and methods of a module, each with the docstrings around it and its own."""
    docstrings += ast.get_docstring(tree) or ""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public(node, docstrings)
        elif isinstance(node, Function) and not node.name.startswith("_"):
            yield node, docstrings + (ast.get_docstring(node) or "")


def raised(function: Function) -> Iterator[str]:
    """The classes that the function raises by `raise Name(…)`, itself and not by a function within it."""
    rest: list[ast.AST] = list(function.body)
    while rest:
        node = rest.pop()
        if isinstance(node, Function | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            named = node.exc.func
            name = named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")
            if name[:1].isupper() and name not in FOR_NO_CALLER:
                yield name
        rest += ast.iter_child_nodes(node)


def families(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Each class of the product with the names of its ancestors there."""
    bases: dict[str, set[str]] = {}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found = {getattr(base, "attr", getattr(base, "id", "")) for base in node.bases}
                bases.setdefault(node.name, set()).update(found)
    known: dict[str, set[str]] = {}
    for name in bases:
        known[name], rest = {name}, [name]
        while rest:
            for base in bases.get(rest.pop(), set()) - known[name] - {"Exception"}:
                known[name].add(base)
                rest.append(base)
    return known


def test_public_functions_say_what_they_raise() -> None:
    """By the name of the class, or of one that it derives from, in the docstring of function, class or
    module."""
    trees = modules()
    related = families(trees)
    silent = [
        f"{name}:{function.lineno}: {function.name} raises {error} and does not say so"
        for name, tree in trees.items()
        for function, docstrings in public(tree)
        for error in sorted(set(raised(function)))
        if not any(each in docstrings for each in related.get(error, {error}))
    ]
    assert silent == []
