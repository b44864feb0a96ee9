"""A topic's partitions: which there are, and which of them has a timer.

The rule is public, so that every producer of rows computes the same: the CRC-32 of the id's UTF-8 bytes, as
zlib, `java.util.zip.CRC32` and Spark SQL's `crc32` compute it, modulo the number of partitions.
`tests/core/partitions.json` has vectors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from zlib import crc32

MAX_PARTITIONS = 1024

_OCCURRENCE = re.compile(r"@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z(?:~\d+)?", re.ASCII)

_TEXT = re.compile(r"([1-9]\d{0,17}) ([1-9]\d{0,3})", re.ASCII)


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


def topic_of(partition: str) -> str:
    """The topic that a partition's name belongs to; a topic's own name is returned as it is."""
    return partition.partition("#")[0]


@dataclass(frozen=True, slots=True)
class Layout:  # see 0083
    """How a topic is laid out: `epoch` grows with each change, `count` is its number of partitions.

    A topic without a layout in Redis has epoch 0 and one partition, of the topic's own name. Those of a topic
    with a layout are called `topic#0`, `topic#1` and so on.
    """

    topic: str
    epoch: int = 0
    count: int = 1
    partitions: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = tuple(f"{self.topic}#{n}" for n in range(self.count)) if self.epoch else (self.topic,)
        object.__setattr__(self, "partitions", names)

    @classmethod
    def parse(cls, topic: str, text: str) -> Layout:
        """Read what stands in Redis, such as `1 8`; nothing means that the topic has no layout. Raises
        `ValueError`."""
        if not text:
            return cls(topic)
        found = _TEXT.fullmatch(text)
        if found is None or not is_count(int(found[2])):
            raise ValueError(f"{text!r} is not a layout; one reads 'epoch partitions', as in '1 8'")
        return cls(topic, int(found[1]), int(found[2]))

    @property
    def text(self) -> str:
        """What stands in Redis; see `parse`."""
        return f"{self.epoch} {self.count}" if self.epoch else ""

    def partition(self, timer_id: str) -> str:
        """The name of the partition that has the id."""
        if self.count == 1:
            return self.partitions[0]
        return self.partitions[partition_number(timer_id, self.count)]

    def share(self, total: int) -> int:
        """What each partition may hold of a bound for the topic, so that the sum never exceeds it: at least
        1; 0 stays 0, which means no bound."""
        return max(total // self.count, 1) if total else 0


def is_count(count: int) -> bool:
    """Whether a topic may have this number of partitions: a power of two from 1 to 1,024."""
    return 1 <= count <= MAX_PARTITIONS and count & (count - 1) == 0
