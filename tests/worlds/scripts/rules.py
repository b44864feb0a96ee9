"""Breaks of the scripts on purpose, each by the name of the rule that it breaks.

A comment `-- @rule nonce-compared` in a file of `lua/` names the rule of its line; alone on a line, that of
the next one. So a script can be rewritten, and its rules moved, and the breaks follow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from relay.store.server.manifest import text_of

LUA = Path(__file__).parents[3] / "lua"


class Ruled(NamedTuple):
    """A file's lines without the anchors, and at which of them each rule stands."""

    lines: tuple[str, ...]
    rules: Mapping[str, int]


@cache
def ruled(script: str) -> Ruled:
    """The rules of a file of `lua/`; `script` is its path there without the suffix."""
    lines: list[str] = []
    rules: dict[str, int] = {}
    for line in text_of(script).split("\n"):
        code, _, rule = line.partition("-- @rule ")
        if rule:
            assert rule not in rules, f"lua/{script}.lua has two rules {rule}"
            rules[rule] = len(lines)
        if code.strip() or not rule:
            lines.append(code.rstrip() if rule else line)
    return Ruled(tuple(lines), rules)


class Break(NamedTuple):
    """A change to the line of a rule: `new` instead of it, or of the part `old` of it. Without `new` it goes.

    A rule may stand on several `lines`. `@1` and `@2` in a `new` for the whole are the first and the second.
    """

    script: str
    rule: str
    new: str = ""
    old: str = ""
    lines: int = 1

    def broken(self) -> str:
        """The file's text with the rule broken."""
        lines, rules = ruled(self.script)
        first = rules[self.rule]
        those = lines[first : first + self.lines]
        if self.old:
            new = replaced("\n".join(those), self.old, self.new)
        else:
            new = re.sub(r"@(\d)", lambda place: those[int(place[1]) - 1], self.new)
        return "\n".join((*lines[:first], new, *lines[first + self.lines :]))

    def apply(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Scripts, those that have the file in them with the rule broken."""
        whole = text_of(self.script)
        return {
            name: replaced(text, whole, self.broken()) if whole in text else text
            for name, text in texts.items()
        }


def replaced(text: str, old: str, new: str) -> str:
    """`old` has to be there exactly once, so that a break can't miss."""
    assert text.count(old) == 1, f"{text.count(old)} times in the script: {old!r}"
    return text.replace(old, new)
