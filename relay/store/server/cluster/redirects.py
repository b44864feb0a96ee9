"""What a node of a Cluster says that can't take a call, or not at present, and where it sends the call."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    MovedError,
    RedisError,
    TryAgainError,
)

from relay.core.endpoints.addresses import join, split
from relay.core.errors import GivenUp, StoreUnavailable
from relay.store.server.cluster.slot_map import SlotMap, slot_of
from relay.store.server.errors import NotMaster
from relay.store.server.scripts import Argument

FIRST_WAIT, LONGEST_WAIT = 0.01, 0.2
"""Seconds between two tries of a call that the Cluster can't take at present: doubled each time."""

LEAST, SHARE = 0.5, 0.25
"""No try begins with less of its call's time left: `LEAST` seconds, or `SHARE` of the whole time if that is
less. A node that is well but busy can't answer in the last instant, and would be taken for one that is
away."""

AT_ONCE = 5
"""Redirects that are followed without a wait: nodes that disagree may send a call to and fro."""

MOVING = (AskError, TryAgainError)
"""What a node says about a slot that has moved, or is moved at present. MovedError is an AskError."""

REFUSALS = (*MOVING, ClusterDownError, BusyLoadingError, NotMaster)
"""What a node says that can't take a call, or not at present. The call did nothing there."""


class Way:  # see 0081 and 0085
    """Where a call goes, from refusal to refusal."""

    def __init__(self, slots: SlotMap, keys: Sequence[Argument]) -> None:
        """`keys` share a slot; without keys the call goes to any node."""
        self._slots = slots
        self._slot = slot_of(keys[0]) if keys else None
        self.place = slots.where(self._slot)
        """The node to try next, once `wait` is over if there is to be one."""
        self.asking = False
        """Whether the call has to say ASKING there."""
        self.refusal: RedisError | None = None
        """The last one."""
        self._began = monotonic()
        self._followed = 0
        self._wait = FIRST_WAIT

    def sends_on(self, refusal: RedisError) -> bool:
        """Take in what the node said; return whether the next one is known, and can be tried at once. What
        the refusal says about the Cluster is noted in the map."""
        self.refusal = refusal
        self.place, self.asking = self._named(refusal)
        self._followed += 1
        return bool(self.place) and self._followed <= AT_ONCE

    def wait(self, deadline: float) -> float:
        """The seconds to wait until the next try. Raises the error of a call whose time is over if that would
        come too late for `deadline` (monotonic seconds): `GivenUp` if the node is well and the slot on its
        way, otherwise `StoreUnavailable`."""
        if monotonic() + self._wait >= deadline - min(LEAST, (deadline - self._began) * SHARE):
            kind = GivenUp if isinstance(self.refusal, MOVING) else StoreUnavailable
            raise kind(f"the Cluster could not take the call in time: {self.refusal}") from self.refusal
        if self._slot is not None and isinstance(self.refusal, MOVING):
            self._slots.hold_up(self._slot)
        wait, self._wait = self._wait, min(2 * self._wait, LONGEST_WAIT)
        return wait

    def look_again(self) -> None:
        """Go where the slot is by now, unless a node said where to ask for it."""
        if not self.asking:
            self.place = self._slots.where(self._slot)

    def _named(self, refusal: RedisError) -> tuple[str, bool]:
        """The place that a refusal names, empty if it names none, and whether it is to be asked."""
        if not isinstance(refusal, AskError):
            self._slots.doubt(self.place)
            return "", False
        host, port = refusal.node_addr
        place = join(split(self.place)[0] if host in ("", "?") else host, port)  # another port of its own
        if isinstance(refusal, MovedError):
            self._slots.learn(refusal.slot_id, place)
            return place, False
        return place, True
