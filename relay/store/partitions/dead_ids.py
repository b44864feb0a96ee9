"""The names of dead letters in topics of several partitions.

In a topic without a layout a dead letter is known by its entry's id in the stream, such as `1767225600000-0`.
In one of several partitions the partition's number follows, as in `1767225600000-0#3`: two streams may have
an entry of the same id. Dead letters are in the order of the entries' ids, and of the partitions where those
are equal.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Self

from relay.core.errors import InvalidField
from relay.core.partitions import Layout

_DEAD_ID = re.compile(r"([0-9]{1,19})-([0-9]{1,19})#(0|[1-9][0-9]{0,3})", re.ASCII)

_LAST = 10**19 - 1
"""The highest sequence number that an entry's id may have here."""


class DeadId(NamedTuple):
    """A dead letter's name, which orders as the letters do."""

    millisecond: int
    sequence: int
    partition: int

    @classmethod
    def of(cls, entry: str, partition: int) -> Self:
        """That of an entry in the stream of a partition."""
        millisecond, _, sequence = entry.partition("-")
        return cls(int(millisecond), int(sequence), partition)

    @classmethod
    def parse(cls, field: str, text: str, layout: Layout) -> Self:
        """Read what was told; `field` is what the caller calls it. Raises `InvalidField`."""
        found = _DEAD_ID.fullmatch(text)
        if found is None or int(found[3]) >= layout.count:
            raise InvalidField(
                field,
                f"{text!r} is not one that a listing gave, such as 1767225600000-0#0 with a partition "
                f"from 0 to {layout.count - 1}; list the dead letters",
            )
        return cls(*map(int, found.groups()))

    @property
    def entry(self) -> str:
        """The id of the entry in its partition's stream."""
        return f"{self.millisecond}-{self.sequence}"

    def before(self, partition: int) -> str:
        """The cursor by which a page of a partition begins with what comes after this letter."""
        if partition <= self.partition:
            return self.entry
        if self.sequence:
            return f"{self.millisecond}-{self.sequence - 1}"
        return f"{self.millisecond - 1}-{_LAST}" if self.millisecond else ""

    def __str__(self) -> str:
        return f"{self.entry}#{self.partition}"
