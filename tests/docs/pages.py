"""The repository's prose, cut into what can be checked."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: the page that it stands on, its language, its text."""

    page: str
    language: str
    text: str


class Said(NamedTuple):
    """Something that a page says, and where."""

    page: str
    text: str


@cache
def pages() -> tuple[str, ...]:
    """The pages, by path from the root."""
    found = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/*/*.md"),
        *ROOT.glob("deploy/**/*.md"),
    ]
    return tuple(sorted(str(path.relative_to(ROOT)) for path in found))


@cache
def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def prose(page: str) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", text(page))


def blocks(language: str) -> list[Block]:
    return [
        Block(page, found, body)
        for page in pages()
        for found, body in _FENCE.findall(text(page))
        if found == language
    ]


def links() -> list[Said]:
    """Links to places within the repository."""
    return [
        Said(page, target)
        for page in pages()
        for target in _LINK.findall(prose(page))
        if not re.match(r"[a-z]+:", target)
    ]


def code() -> list[Said]:
    """What stands in backticks, outside of blocks."""
    return [Said(page, found) for page in pages() for found in _CODE.findall(prose(page))]


def anchors(page: str) -> set[str]:
    """What can stand behind a `#` in a link to the page."""
    titles = _HEADING.findall(prose(page))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def command_lines(program: str) -> list[Said]:
    """What readers are told to type, without the program's name."""
    typed = [
        Said(block.page, line.removeprefix("$ "))
        for block in blocks("console")
        for line in block.text.splitlines()
        if line.startswith("$ ")
    ]
    return [
        Said(said.page, said.text.removeprefix(program).partition("#")[0].strip())
        for said in (*typed, *code())
        if said.text.startswith(f"{program} ")
    ]


@cache
def members() -> dict[str, set[str]]:
    """What each class in `relay` has: methods, properties, attributes."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "relay").rglob("*.py"):
        if path.is_relative_to(ROOT / "relay" / "v1"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(_members(node))
    return found


def _members(owner: ast.ClassDef) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(owner):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names
