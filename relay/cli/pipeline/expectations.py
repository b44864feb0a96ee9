"""`relay pipeline --expect`: what the figures of a job have to be."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relay.cli.terminal.exits import BAD_INPUT, fail

_WORDS = re.compile(r"([a-z]\w*(?:\.\w+)?)\s*(<=|>=|=|<|>)\s*(\d{1,18}(?:\.\d{1,6})?)", re.ASCII)
_HOLDS = {
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Expectation:  # see 0118
    """A figure of a summary, how it is compared, and with which number."""

    text: str
    name: str
    sign: str
    number: float

    @classmethod
    def of(cls, text: str) -> Expectation:
        """Read `loaded>=1`. Anything else ends the command."""
        found = _WORDS.fullmatch(text.strip())
        if found is None:
            fail(f"--expect: is {text!r}; give a figure and a number, such as loaded>=1", BAD_INPUT)
        return cls(text.strip(), found[1], found[2], float(found[3]))

    def unmet(self, document: Mapping[str, Any]) -> str:
        """Return what is wrong with a summary; empty if it is as expected, or if the figure has no value. An
        unknown figure ends the command."""
        known = figures(document)
        if self.name not in known:
            fail(
                f"--expect: {self.name} is not a figure of this job; there are {', '.join(known)}", BAD_INPUT
            )
        found = known[self.name]
        if found is None or _HOLDS[self.sign](found, self.number):  # see 0123
            return ""
        return f"expected {self.text}, and {self.name} is {found:,}"


def figures(document: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the numbers of a summary by name, those of a part such as `lateness` as `lateness.p99_us`. The
    lateness of no deliveries is None."""
    found: dict[str, float | None] = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            parts = ((part, number) for part, number in value.items() if number is None or _is_number(number))
            found |= {f"{name}.{part}": number for part, number in parts}
        elif _is_number(value):
            found[name] = value
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
