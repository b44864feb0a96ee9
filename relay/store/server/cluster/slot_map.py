"""Which node of a Cluster has which slot, as far as is known, and which nodes are asked for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from time import monotonic
from typing import Any

from redis.crc import key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from relay.core.endpoints.addresses import join, split
from relay.core.endpoints.redis_url import Address
from relay.core.errors import UnfitServer
from relay.store.server.errors import words
from relay.store.server.scripts import Argument

SLOTS = 16_384

HELD_UP = 10.0
"""Seconds after its last refusal for which a slot counts as held up, unless it is found in another place."""

NO_CLUSTER = "the server is not a node of a Cluster: name it in redis.url with redis:// in the place of redis+cluster://"


class SlotMap:
    """Which node has which slot, as far as is known.

    A node is a **place**: its `host:port` as the Cluster calls it. `addresses` says where to reach one that
    is reached elsewhere. `changed` is called each time that a slot is found in another place than before.

    A look asks the nodes that are known, beginning with those that gave no trouble and were not asked lately,
    then the `seeds`, until one answers that knows who has slots. A node may be behind, and what it says is
    mended by the next MOVED, or by the next look, which asks another one: a node that is cut off from the
    others does not know that it is behind.
    """

    def __init__(
        self, seeds: Sequence[Address], addresses: Mapping[Address, Address], changed: Callable[[], None]
    ) -> None:
        self._seeds = seeds
        self._addresses = addresses
        self._changed = changed
        self._slots = [""] * SLOTS
        self.places: list[str] = []
        """All nodes with slots, in the order in which they are asked: one that gave trouble or answered goes
        to the end."""
        self.anywhere = ""
        """Where what belongs to no slot goes: to the node that answered last, or to another one if that gave
        trouble since."""
        self.is_sharded = False
        """Whether messages of pub/sub are heard at the node with the channel's slot only."""
        self.wanted = False
        """Whether there was a reason for a look since the last one began."""
        self.trouble: Exception = RedisConnectionError("the Cluster was not asked yet")
        """Why the last look came to nothing: redis-py's `ConnectionError`, or `UnfitServer`."""
        self._held_up: dict[int, float] = {}
        """Slots on their way that a call has waited for, with the instant of the last wait (monotonic)."""
        self._reasons: list[str] = []
        self._is_single = False

    def of(self, slot: int) -> str:
        """The place that has the slot; empty if none is known."""
        return self._slots[slot]

    def shares(self) -> Counter[str]:
        """How many slots each place has."""
        return Counter(place for place in self._slots if place)

    def where(self, slot: int | None) -> str:
        """Where a call about a slot, or about none, goes first: any node says where a slot is."""
        return (self._slots[slot] if slot is not None else "") or self.anywhere

    def reachable(self, place: str) -> Address:
        """Where a node is reached."""
        address = split(place)
        return self._addresses.get(address, address)

    def learn(self, slot: int, place: str) -> None:
        """Note where a node says that one slot is, and that a look may find more that is new."""
        moved, self._slots[slot] = self._slots[slot] != place, place
        if moved:
            self._held_up.pop(slot, None)
        self.doubt()
        if moved:
            self._changed()

    def hold_up(self, slot: int) -> None:
        """Note that a call waits because the slot is on its way."""
        known, self._held_up[slot] = slot in self._held_up, monotonic()
        if not known:
            self._changed()

    def is_held_up(self, slot: int) -> bool:
        """Whether calls about the slot have to wait, while its node answers others."""
        return slot in self._held_up

    def doubt(self, trouble: str = "") -> None:
        """Note that there is a reason for a look; `trouble` is the place that gave it."""
        self._put_last(trouble)
        if trouble == self.anywhere:
            self.anywhere = next(iter(self.places), "")
        self.wanted = True

    # ------------------------------------------------------------------- a look

    def asked_in_turn(self) -> Iterator[tuple[str, Address]]:
        """The nodes that a look asks, one after the other, until `take` believes the answer of one. The
        caller passes what each of them says to `take`, or its error to `failed`."""
        self._reasons, self._is_single = [], False
        known = [(place, self.reachable(place)) for place in self.places]
        yield from (*known, *((join(*seed), seed) for seed in self._seeds))
        trouble = f"no node tells how the Cluster stands ({'; '.join(self._reasons)})"
        self.trouble = UnfitServer(NO_CLUSTER) if self._is_single else RedisConnectionError(trouble)

    def take(self, place: str, told: Sequence[Any], *, is_sharded: bool) -> bool:
        """Believe what a node says to CLUSTER SLOTS, unless it has left the Cluster, or met nobody yet;
        return whether it was believed. `is_sharded`: it has SPUBLISH."""
        slots = slots_told(told, host=split(place)[0])
        found = set(slots) - {""}
        if not found:
            self._reasons.append(f"{place}: it knows no node that has slots")
            self._put_last(place)
            return False
        self.places = [each for each in dict.fromkeys((*self.places, *slots)) if each in found]
        self.anywhere = place if place in found else self.places[0]
        self._put_last(place)
        late = monotonic() - HELD_UP
        free = [n for n, since in self._held_up.items() if slots[n] != self._slots[n] or since < late]
        for slot in free:
            del self._held_up[slot]
        if free or slots != self._slots or is_sharded != self.is_sharded:
            self._slots, self.is_sharded = slots, is_sharded
            self._changed()
        return True

    def failed(self, place: str, failure: Exception) -> None:
        """Note that a node did not answer, or refused to."""
        refused = isinstance(failure, ResponseError) and "cluster support disabled" in str(failure)
        self._is_single |= refused
        self._reasons.append(f"{place}: {words(failure)}")
        self._put_last(place)

    def _put_last(self, place: str) -> None:
        """Ask all others before this one, if it is among them."""
        if place in self.places:
            self.places.remove(place)
            self.places.append(place)


def slots_told(told: Iterable[Any], *, host: str) -> list[str]:
    """The place of each slot by a reply to CLUSTER SLOTS: first slot, last slot, the master's host and port
    and more, its replicas. A master without a host has that of the node which was asked, `host`."""
    slots = [""] * SLOTS
    for first, last, (name, port, *_), *_replicas in told:
        place = join(name.decode() if name not in (None, b"", b"?") else host, port)
        slots[first : last + 1] = [place] * (last + 1 - first)
    return slots


@lru_cache(10_000)
def slot_of(key: Argument) -> int:
    """The slot of a key."""
    name = key if isinstance(key, bytes) else str(key).encode(errors="surrogateescape")
    return key_slot(name)
