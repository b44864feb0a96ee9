"""What sweeps have taken from the cold store, as a few numbers for each topic and not as a list of files.

A settled write has a number, one more than the write that was settled before it. A plan takes of its topics
all rows of the writes up to some number that are due before some instant. So a row is taken if a plan of its
topic has seen its write's number, and its due time is before that plan's instant. Most pairs are covered by
one later pair: a topic has one, and a second one only if a sweep has looked less far than one before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

EVER = 1 << 62
"""An instant that no timer reaches."""


class Reach(NamedTuple):
    """How far a plan went: the number of the last settled write that it saw, and the instant before which it
    took rows, in microseconds since 1970."""

    settled: int
    until: int


Reaches = tuple[Reach, ...]


@dataclass(frozen=True, slots=True)
class Consumed:  # see 0104
    """What finished plans have taken: of every topic, or, if a topic is in `own`, of that one."""

    everywhere: Reaches = ()
    own: Mapping[str, Reaches] = field(default_factory=dict)

    def of(self, topic: str) -> Reaches:
        return self.own.get(topic, self.everywhere)

    def plus(self, reach: Reach, topics: Iterable[str] | None, without: Collection[str] = ()) -> Self:
        """Return this with a plan that took of these topics, or of all, except of some."""
        everywhere = self.everywhere
        own = dict(self.own)
        if topics is None:
            own |= {topic: self.of(topic) for topic in without}
            everywhere = undominated((*everywhere, reach))
            topics = list(own)
        own |= {topic: undominated((*self.of(topic), reach)) for topic in topics if topic not in without}
        return type(self)(everywhere, {topic: each for topic, each in own.items() if each != everywhere})

    def least(self, otherwise: int) -> int:
        """The smallest number of a write that any plan ended with: the numbers up to that one need not be
        told from each other."""
        numbers = [each.settled for reaches in (self.everywhere, *self.own.values()) for each in reaches]
        return min(numbers, default=otherwise)

    def document(self) -> dict[str, Any]:
        return {"everywhere": self.everywhere, "own": dict(self.own)}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Self:
        own = {topic: _reaches(each) for topic, each in document["own"].items()}
        return cls(_reaches(document["everywhere"]), own)


def undominated(reaches: Iterable[Reach]) -> Reaches:
    """Return the pairs that no other pair covers, the latest number first."""
    kept: list[Reach] = []
    for each in sorted(reaches, reverse=True):
        if not kept or each.until > kept[-1].until:
            kept.append(each)
    return tuple(kept)


def _reaches(found: Iterable[Iterable[int]]) -> Reaches:
    return tuple(Reach(*each) for each in found)
