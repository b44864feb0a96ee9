"""Which relay polls which partition of a topic first.

Every relay computes the same from the same names, so that nobody leads. It is rendezvous hashing (Thaler and
Ravishankar, 1998) in even shares: of all pairs of a relay and a partition the one with the highest hash comes
first, and neither side gets more than its share. Few pairs change where a relay comes or goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from hashlib import blake2b


def preferred(relay: str, relays: Collection[str], partitions: Collection[str]) -> frozenset[str]:
    """The partitions that a relay polls first among these relays, of which it is one.

    Each partition is polled first by somebody. No relay has more than one partition more than another; where
    there are more relays than partitions, each has one, and shares it.
    """
    if len(relays) <= len(partitions):
        pairs = _paired(partitions, relays)
        return frozenset(partition for partition, chosen in pairs.items() if chosen == relay)
    return frozenset((_paired(relays, partitions)[relay],))


def _paired(many: Collection[str], few: Collection[str]) -> dict[str, str]:
    """One of the few for each of the many, in even shares."""
    ranked = sorted(((_rank(one, other), one, other) for one in many for other in few), reverse=True)
    pairs: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for share in (len(many) // len(few), len(many) // len(few) + 1):
        for _, one, other in ranked:
            if one not in pairs and taken[other] < share:
                pairs[one] = other
                taken[other] += 1
    return pairs


def _rank(one: str, other: str) -> bytes:
    """The same for a pair whichever comes first."""
    names = "\0".join(sorted((one, other)))
    return blake2b(names.encode(errors="surrogateescape"), digest_size=8).digest()
