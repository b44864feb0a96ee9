"""In which order relays come that poll a partition of a topic.

Every relay computes the same from the same names, so that nobody leads. It is rendezvous hashing (Thaler and
Ravishankar, 1998): the relays come in the order of their hashes with the partition. But the first ones are
chosen in even shares: of all pairs of a relay and a partition the one with the highest hash comes first, and
no relay gets more than its share. Little changes where a relay comes or goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from hashlib import blake2b


def ranks(relay: str, relays: Collection[str], partitions: Collection[str]) -> dict[str, int]:
    """How many of these relays come before this one, which is among them, at each partition.

    Each partition has one relay that comes first. No relay is the first at more than one partition more than
    another is; where there are more relays than partitions, some are so nowhere.
    """
    hashes = {(one, other): _hash(one, other) for one in partitions for other in relays}
    first = _first(hashes, len(partitions), len(relays))
    return {
        one: 0
        if first[one] == relay
        else 1 + sum(hashes[one, other] > hashes[one, relay] for other in relays if other != first[one])
        for one in partitions
    }


def _first(hashes: Mapping[tuple[str, str], bytes], partitions: int, relays: int) -> dict[str, str]:
    """The relay that comes first at each partition, in even shares."""
    pairs = sorted(hashes, key=lambda pair: (hashes[pair], pair), reverse=True)
    first: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for share in (partitions // relays, partitions // relays + 1):
        for partition, relay in pairs:
            if partition not in first and taken[relay] < share:
                first[partition] = relay
                taken[relay] += 1
    return first


def _hash(partition: str, relay: str) -> bytes:
    return blake2b(f"{partition}\0{relay}".encode(errors="surrogateescape"), digest_size=8).digest()
