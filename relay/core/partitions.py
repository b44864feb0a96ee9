"""A topic's partitions: which there are, and which of them has a timer.

A partition has a **name**, which stands wherever a call is about one part of a topic: `orders#3 1 8` is
number 3 of the topic `orders`, by the layout `1 8`. So whatever is kept or sent under that name has the
layout with it.

The rule is public, so that every producer of rows computes the same: the CRC-32 of the id's UTF-8 bytes, as
zlib, `java.util.zip.CRC32` and Spark SQL's `crc32` compute it, modulo the number of partitions.
`tests/core/partitions.json` has vectors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from zlib import crc32

MAX_PARTITIONS = 1024

_NAMED = r"@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z(?:~\d+)?"
_OCCURRENCE = re.compile(_NAMED, re.ASCII)
_OCCURRENCE_IN_BYTES = re.compile(_NAMED.encode())

_TEXT = re.compile(r"([1-9]\d{0,17}) ([1-9]\d{0,3})(?: ([1-9]\d{0,3}))?", re.ASCII)

_UNDER = re.compile(r"\d+ \d+ \d+(?: \d+)?(?: leaving)?", re.ASCII)

LEAVING = " leaving"
"""How the name of a partition ends in a call that is about timers which a move takes away from it."""


def hashed(timer_id: str) -> str:
    """The part of an id that counts: what stands before the last `@` of an id that ends as the occurrences of
    a recurrence do, such as `daily@2026-11-24T08:00:00Z` or its further run `…Z~2`; any other id is counted
    whole."""
    name, at, rest = timer_id.rpartition("@")
    return name if at and _OCCURRENCE.fullmatch(at + rest) else timer_id


def partition_number(timer_id: str, count: int) -> int:
    """The partition, from 0 on, that has the id where a topic has `count` of them, which is a power of
    two."""
    counted = hashed(timer_id) if "@" in timer_id else timer_id
    return crc32(counted.encode(errors="surrogateescape")) & (count - 1)


def partition_numbers(timer_ids: Sequence[bytes], count: int) -> list[int]:
    """What `partition_number` says of each of many ids, as Redis has them."""
    mask = count - 1
    if b"@" not in b"".join(timer_ids):  # one search instead of many: loads divide all their rows
        return [crc32(each) & mask for each in timer_ids]
    return [crc32(_counted(each) if b"@" in each else each) & mask for each in timer_ids]


def _counted(timer_id: bytes) -> bytes:
    name, at, rest = timer_id.rpartition(b"@")
    return name if _OCCURRENCE_IN_BYTES.fullmatch(at + rest) else timer_id


def topic_of(partition: str) -> str:
    """The topic that a partition's name belongs to; a topic's own name is returned as it is."""
    return partition.partition("#")[0]


def place_of(partition: str) -> str:
    """What a partition's name says of where it is, such as `orders#3`; a topic's name is returned as it
    is."""
    rest = under(partition)
    return partition[: -len(rest)] + rest.partition(" ")[0] if rest else partition


def own_name(partition: str) -> str:
    """A partition's name without what a call about timers that leave adds to it."""
    return partition.removesuffix(LEAVING)


def under(partition: str) -> str:
    """What a partition's name says of its number and its layout, such as `3 1 8`; empty for a topic's own
    name, which had a `#` where it is an old one."""
    rest = partition.partition("#")[2]
    return rest if rest and _UNDER.fullmatch(rest) else ""


@dataclass(frozen=True, slots=True)
class Layout:  # see 0083 and 0084
    """How a topic is laid out: `epoch` grows with each change, `count` is its number of partitions. While its
    timers move into another number of partitions, that is `towards`; otherwise `towards` is 0.

    A topic without a layout in Redis has epoch 0 and one partition, of the topic's own name.
    """

    topic: str
    epoch: int = 0
    count: int = 1
    towards: int = 0
    text: str = field(init=False)
    """What stands in Redis; see `parse`."""
    partitions: tuple[str, ...] = field(init=False)
    """The names of all partitions in use, those that a move fills or empties included."""

    def __post_init__(self) -> None:
        moving = f" {self.towards}" if self.towards else ""
        text = f"{self.epoch} {self.count}{moving}" if self.epoch else ""
        number = max(self.count, self.towards)
        names = tuple(f"{self.topic}#{n} {text}" for n in range(number)) if self.epoch else (self.topic,)
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "partitions", names)

    @classmethod
    def parse(cls, topic: str, text: str) -> Layout:
        """Read what stands in Redis, such as `1 8`, or `2 8 16` while a move is under way; nothing means that
        the topic has no layout. Raises `ValueError`."""
        if not text:
            return cls(topic)
        found = _TEXT.fullmatch(text)
        epoch, count, towards = (int(each or 0) for each in found.groups()) if found else (0, 0, 0)
        fits = not towards or towards in (2 * count, count // 2)
        if found is None or not is_count(count) or towards > MAX_PARTITIONS or not fits:
            raise ValueError(
                f"{text!r} is not a layout; one reads 'epoch partitions', as in '1 8', and '2 8 16' or "
                "'2 8 4' while timers move"
            )
        return cls(topic, epoch, count, towards)

    def partition(self, timer_id: str) -> str:
        """The name of the partition that a call about the id begins with. It ends with `LEAVING` where a move
        takes the id away from there."""
        if not self.towards:
            if self.count == 1:
                return self.partitions[0]
            return self.partitions[partition_number(timer_id, self.count)]
        old, new = (partition_number(timer_id, count) for count in (self.count, self.towards))
        return self.partitions[old] + (LEAVING if new != old else "")

    @property
    def emptied(self) -> tuple[str, ...]:
        """The partitions that a move takes timers away from, named as in calls about those."""
        if not self.towards:
            return ()
        first = self.towards if self.towards < self.count else 0
        return tuple(f"{name}{LEAVING}" for name in self.partitions[first : self.count])

    def filled(self, partition: str) -> str:
        """The partition into which a move takes what it takes away from this one."""
        number = int(under(partition).partition(" ")[0])
        return self.partitions[number + self.count if self.towards > self.count else number - self.towards]

    def share(self, total: int) -> int:
        """What each partition may hold of a bound for the topic: at least 1; 0 stays 0, which means no bound.
        The sum never exceeds the bound, but for a topic that grows while its timers move: then some
        partitions hold what is to be in two, and each has the share of the smaller number."""
        number = min(self.count, self.towards) if self.towards else self.count
        return max(total // number, 1) if total else 0


@lru_cache(4096)
def layout_of(partition: str) -> Layout:
    """The layout that a partition's name speaks of; for a topic's own name, none."""
    text = under(own_name(partition)).partition(" ")[2]
    return Layout.parse(topic_of(partition) if text else partition, text)


def involved(partition: str) -> tuple[str, ...]:
    """The partitions in which timers of a call may be: both, where a move takes them away."""
    if not partition.endswith(LEAVING):
        return (partition,)
    return own_name(partition), layout_of(partition).filled(partition)


def is_count(count: int) -> bool:
    """Whether a topic may have this number of partitions: a power of two from 1 to 1,024."""
    return 1 <= count <= MAX_PARTITIONS and count & (count - 1) == 0
