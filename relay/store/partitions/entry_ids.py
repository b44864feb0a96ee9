"""The names of dead letters, and of a journal's entries, in topics of several partitions.

In a topic without a layout they are known by their ids in the stream, such as `1767225600000-0`. In one of
several partitions the partition's number follows, as in `1767225600000-0#3`: two streams may have an entry of
the same id. They are in the order of these ids, and of the partitions where those are equal.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Self

from relay.core.errors import InvalidField

_ENTRY_ID = re.compile(r"([0-9]{1,19})-([0-9]{1,19})#(0|[1-9][0-9]{0,3})", re.ASCII)

_LAST = 10**19 - 1
"""The highest sequence number that an entry's id may have here."""


class EntryId(NamedTuple):
    """The name of an entry in a partition's stream, which orders as the entries do."""

    millisecond: int
    sequence: int
    partition: int

    @classmethod
    def of(cls, entry: str, partition: int) -> Self:
        """That of an entry with this id."""
        millisecond, _, sequence = entry.partition("-")
        return cls(int(millisecond), int(sequence), partition)

    @classmethod
    def parse(cls, field: str, text: str, count: int) -> Self:
        """Read the name of an entry of one of `count` partitions. The error says the caller's `field`. Raises
        `InvalidField`."""
        found = _ENTRY_ID.fullmatch(text)
        if found is None or int(found[3]) >= count:
            raise InvalidField(
                field,
                f"{text!r} is not one that a listing gave, such as 1767225600000-0#0 with a partition "
                f"from 0 to {count - 1}",
            )
        return cls(*map(int, found.groups()))

    @property
    def entry(self) -> str:
        """The id of the entry in its partition's stream."""
        return f"{self.millisecond}-{self.sequence}"

    def before(self, partition: int) -> str:
        """The cursor by which a page of a partition begins with what comes after this entry."""
        if partition <= self.partition:
            return self.entry
        if self.sequence:
            return f"{self.millisecond}-{self.sequence - 1}"
        return f"{self.millisecond - 1}-{_LAST}" if self.millisecond else ""

    def __str__(self) -> str:
        return f"{self.entry}#{self.partition}"
