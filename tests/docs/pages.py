"""The repository's prose, cut into what can be checked."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(
    r"(?:^<!-- (not run|run by|file|terminal|printed by|transcript)(?::[ ]*([^\n]*?))?[ ]*-->\n+)?"
    r"^```(\w*)\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)

CONSOLE = "tests/docs/test_console.py"
SPARK = "tests/pipeline/test_docs.py"
PROTOCOL = "tests/e2e/test_protocol.py"
OUTBOX = "tests/outbox/test_page.py"
WALK = "tests/docs/test_walk.py"
SHOP = "tests/docs/test_shop.py"
LAKE_WALK = "tests/pipeline/test_walk.py"

RUN_BY = {
    "console": CONSOLE,
    "python": "tests/docs/test_python.py",
    "py": "tests/docs/test_python.py",
    "yaml": "tests/docs/test_pages.py",
}
"""The test module that runs a language's blocks, unless ON_PAGE or a comment above a block names another."""

ON_PAGE = {
    "docs/how-to/cold-store.md": {"console": SPARK},
    "docs/how-to/kubernetes.md": {"yaml": "tests/kubernetes/test_render.py"},
    "docs/how-to/lake-questions.md": {"sql": "tests/pipeline/test_lake_engines.py"},
    "docs/how-to/one-team-to-many.md": {"console": WALK, "yaml": WALK},
    "docs/how-to/outbox.md": {"console": OUTBOX, "python": OUTBOX},
    "docs/how-to/pipeline.md": {"console": SPARK, "python": SPARK},
    "docs/how-to/pipeline-audit.md": {"console": SPARK, "python": SPARK},
    "docs/how-to/pipeline-streams.md": {"console": SPARK, "python": SPARK},
    "docs/how-to/recurrences.md": {"yaml": CONSOLE},
    "docs/reference/protocol.md": {"console": PROTOCOL},
    "docs/tutorial/shop.md": {"console": SHOP, "python": SHOP},
    "docs/tutorial/from-postgres-to-an-audit.md": {"console": LAKE_WALK, "python": LAKE_WALK},
}
"""The same for all blocks of a language on one page."""


class Block(NamedTuple):
    """A fenced block: its page, the line of its first fence, its language, its text, the comment above it.

    That comment is `<!-- MARK: SAID -->`; both are empty where there is none. The marks are:

    - `not run: REASON`
    - `run by: MODULE`, a test module other than the one that RUN_BY or ON_PAGE names
    - `file: NAME`, the reader saves the block under this name
    - `terminal: COMMAND`, the same (the name is COMMAND's last word), and COMMAND runs in a second terminal
    - `printed by: COMMAND`, what that second terminal then shows
    - `transcript: NAME`, which `tools/transcript.py` records
    """

    page: str
    line: int
    language: str
    text: str
    mark: str = ""
    said: str = ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def run_by(self) -> str:
        """The test module that runs the block; empty where none does."""
        if self.mark == "not run":
            return ""
        if self.mark == "run by":
            return self.said
        if self.mark == "transcript":
            return PROTOCOL
        known = {**RUN_BY, **ON_PAGE.get(self.page, {})}
        if self.mark in ("terminal", "printed by"):
            return known["console"]
        return known.get(self.language, known["console"] if self.mark == "file" else "")


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


def parsed(page: str, whole: str) -> list[Block]:
    """The fenced blocks of a page, from its text."""
    found = []
    for match in _BLOCK.finditer(whole):
        mark, said, language, body = match.groups(default="")
        line = whole.count("\n", 0, match.start(3)) + 1
        found.append(Block(page, line, language, body, mark, said.strip()))
    return found


@cache
def blocks(language: str | None = None) -> tuple[Block, ...]:
    """All blocks, or all of one language."""
    found = [block for page in pages() for block in parsed(page, text(page))]
    return tuple(block for block in found if language in (None, block.language))


def run_by(module: str) -> list[Block]:
    """The blocks that a test module has to run; it passes its `__file__`."""
    name = str(Path(module).resolve().relative_to(ROOT))
    return [block for block in blocks() if block.run_by == name]


def unaccounted(found: Iterable[Block]) -> list[str]:
    """The blocks that no test runs and that don't say why."""
    return [
        f"{block.place}: no test runs this block; see CONTRIBUTING.md, How to add a command to a page"
        for block in found
        if block.mark != "not run" and not block.run_by
    ]


def unexplained(found: Iterable[Block]) -> list[str]:
    """The marks that lack their reason, name or command."""
    return [
        f"{block.place}: the comment needs words after `{block.mark}:`"
        for block in found
        if block.mark and not block.said
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
