"""The parsers that bytes of others reach, as functions of bytes: what is valid, and what they may raise."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from relay.core.errors import MOST_BYTES
from tests.hostile import protobuf, rules, stored, texts

INTERNALS = re.compile(
    r"Traceback|object at 0x|Exceeds the limit|invalid literal|codec can't|has no attribute|out of range"
    r"|not supported between|unsupported operand|site-packages|\.py\b|unhashable|NoneType|recursion depth"
)
"""Words by which a message tells how the relay is made, and not what is wrong with the input."""


@dataclass(frozen=True)
class Target:
    """A parser. `parse` returns for what it takes, and raises one of `refuses` for the rest; anything else is
    a fault. `words` mean something to it."""

    parse: Callable[[bytes], object]
    valid: tuple[bytes, ...]
    refuses: tuple[type[Exception], ...] = ()
    words: tuple[bytes, ...] = ()
    inputs: int = 1_500
    """How many the short form gives it."""
    seconds: float = 1.0
    """Of the processor, that one input may take, on a machine that is busy with other things."""

    def meet(self, data: bytes) -> bool:
        """Parse; return whether it was taken. Raises `AssertionError` for a message that is not fit for who
        sent the input, and whatever the parser should not raise."""
        try:
            self.parse(data)
        except self.refuses as refused:
            said = str(refused)
            assert said, "an error says what is wrong"
            for line in getattr(refused, "problems", (said,)):
                assert len(line.encode()) <= MOST_BYTES, f"a message of {len(line)} characters: {line[:200]}"
            assert not INTERNALS.search(re.sub(r"'.*?'|\".*?\"", "", said)), said
            said.encode()
            return False
        return True


TARGETS: dict[str, Target] = {
    name: Target(*each)
    for part in (stored.TARGETS, texts.TARGETS, rules.TARGETS, protobuf.TARGETS)
    for name, each in part.items()
}
