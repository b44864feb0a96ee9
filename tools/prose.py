"""Holds the prose of docs, docstrings, comments, help texts and messages to a list of words.

    python tools/prose.py            # each phrase over which a reader stumbles, and what to write instead
    python tools/prose.py --count    # how often each phrase occurs

The list has what a pattern can find. The rules behind it are for writers. A sentence has a subject and a
verb; a number is N; no sentence begins with Of, As or Who as an ellipsis; a sentence states one fact; a
quantity has its unit.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

LOOKED_AT = (
    "*.md",
    "docs/**/*.md",
    "relay/**/*.py",
    "lua/**/*.lua",
    "proto/relay/**/*.proto",
    "examples/**/*.py",
    "examples/**/*.mjs",
    "examples/**/*.ts",
    "examples/**/*.go",
    "examples/**/*.md",
    "deploy/**/*.yaml",
    "deploy/**/*.md",
    "deploy/**/*.py",
    "tools/*.py",
    "tests/promises/*.py",
)

LEFT_OUT = (
    "relay/v1/",  # generated, as the next one
    "relay/journal/",
    "examples/go/stubs/",
    "examples/java/target/",
    "examples/javascript/node_modules/",
    "examples/typescript/dist/",
    "examples/typescript/node_modules/",
    "examples/typescript/src/api/",
    "docs/decisions/",  # records of their day
    "tools/prose.py",  # names the phrases
)


class Phrase(NamedTuple):
    """A phrase to be replaced; `instead` says by what."""

    pattern: re.Pattern[str]
    instead: str


def _phrase(pattern: str, instead: str) -> Phrase:
    return Phrase(re.compile(pattern), instead)


BEGINS = r"(?:^|(?<=[.!?] ))"
"""Where a sentence begins."""

PHRASES = (
    _phrase(r"\b[Ss]o many\b", "a number: N, `this many`, or the name of what is counted"),
    _phrase(r"\b[Ss]o long\b(?! as)", "a length of time: this long, or the name of the setting"),
    _phrase(r"(?<![Tt]here )\bis no (?!longer|more|other)", "is not a …, is not an …"),
    _phrase(r"(?<![Tt]here )\bis none\b(?! of)", "is not one, there is none, does not exist"),
    _phrase(r"\bof (?:no|any) use\b", "useless, has no effect, can't be used"),
    _phrase(r"\banew\b", "again, afresh, from the beginning"),
    _phrase(r"\bfor ever\b", "forever, until cancelled, without end"),
    _phrase(r"\bdear(?:er|est)?\b", "expensive, costly"),
    _phrase(r"\bfor want of\b", "because there is no …"),
    _phrase(r"\blest\b", "so that … not"),
    _phrase(r"\bunawares\b", "by accident"),
    _phrase(r"\bin the midst of\b", "in the middle of"),
    _phrase(rf"{BEGINS}Of (?!course)", "a subject: the …, each of …, how many of …"),
    _phrase(rf"{BEGINS}Who (?!is |are |can |does |may )", "whoever …, a caller who …"),
    _phrase(rf"{BEGINS}As (?:which|of which|if it were)", "a sentence with a subject and a verb"),
    _phrase(r"\b(?:said|told) of\b", "known about, reported about, what the … says about"),
    _phrase(r"\b[Aa]t most so\b", "at most N"),
    _phrase(r"\b[Nn]othing is said\b", "nothing is reported"),
)


class Line(NamedTuple):
    """A line of prose; `text` has no markup and no code."""

    number: int
    text: str


def python_prose(source: str) -> Iterator[Line]:
    """Docstrings, comments, and texts of three words or more."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) >= 3:
            for offset, text in enumerate(node.value.split("\n")):
                yield Line(node.lineno + offset, text)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Line(token.start[0], token.string.lstrip("# "))


def marked_prose(source: str) -> Iterator[Line]:
    """The text of a page, without its blocks of code."""
    fenced = False
    for number, text in enumerate(source.split("\n"), 1):
        if text.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield Line(number, text.lstrip("#>|-* "))


def commented_prose(source: str, mark: str) -> Iterator[Line]:
    """What stands behind the mark of a comment."""
    for number, text in enumerate(source.split("\n"), 1):
        before, found, comment = text.partition(mark)
        if found and not before.rstrip().endswith(("'", '"', ":")):
            yield Line(number, comment.strip("-#/* "))
        elif mark == "//" and text.lstrip().startswith(("/*", "*")):
            yield Line(number, text.strip("/* "))


MARKS = {".lua": "--", ".proto": "//", ".mjs": "//", ".ts": "//", ".go": "//", ".yaml": "#"}


def prose(file: Path) -> Iterator[Line]:
    """The prose of a file, without code in backticks and the names of rules."""
    source = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        lines = python_prose(source)
    elif file.suffix == ".md":
        lines = marked_prose(source)
    else:
        lines = commented_prose(source, MARKS[file.suffix])
    for number, text in lines:
        yield Line(number, re.sub(r"`[^`]*`|@rule \S+", "…", text.strip()))


def files() -> Iterator[tuple[str, Path]]:
    """The files that are looked at, by their names below the root."""
    found = {file for pattern in LOOKED_AT for file in ROOT.glob(pattern)}
    for file in sorted(found):
        name = str(file.relative_to(ROOT))
        if not name.startswith(LEFT_OUT) and file.is_file():
            yield name, file


def main() -> int:
    """Print each phrase that is found; the exit code is 1 if there is one."""
    counts: Counter[str] = Counter()
    for name, file in files():
        for number, text in prose(file):
            for pattern, instead in PHRASES:
                for found in pattern.finditer(text):
                    counts[pattern.pattern] += 1
                    if "--count" not in sys.argv:
                        print(f"{name}:{number}: {found[0].strip()!r}: write instead: {instead}")
    if "--count" in sys.argv:
        for phrase, count in counts.most_common():
            print(f"{count:5}  {phrase}")
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
