"""What a node of a Cluster says that can't take a call, or not at present, and where it sends the call."""

from __future__ import annotations

from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    MovedError,
    RedisError,
    TryAgainError,
)

from relay.core.endpoints.addresses import join, split
from relay.core.errors import GivenUp, StoreError, StoreUnavailable
from relay.store.server.cluster.slot_map import SlotMap
from relay.store.server.errors import NotMaster

FIRST_WAIT, LONGEST_WAIT = 0.01, 0.2
"""Seconds between two tries of a call that the Cluster can't take at present: doubled each time."""

AT_ONCE = 5
"""Redirects that are followed without a wait: nodes that disagree may send a call to and fro."""

MOVING = (AskError, TryAgainError)
"""What a node says about a slot that has moved, or is moved at present. MovedError is an AskError."""

REFUSALS = (*MOVING, ClusterDownError, BusyLoadingError, NotMaster)
"""What a node says that can't take a call, or not at present. The call did nothing there."""


def sent_on(slots: SlotMap, refusal: RedisError, asked: str) -> tuple[str, bool]:
    """The place to which the place `asked` sends a call, empty if it names none, and whether the call has to
    say ASKING there. What the refusal says about the Cluster is noted in `slots`."""
    if not isinstance(refusal, AskError):
        slots.doubt(asked)
        return "", False
    host, port = refusal.node_addr
    place = join(split(asked)[0] if host in ("", "?") else host, port)  # another port of its own
    if isinstance(refusal, MovedError):
        slots.learn(refusal.slot_id, place)
        return place, False
    return place, True


def in_vain(refusal: RedisError) -> StoreError:
    """The error of a call whose time is over, by its last refusal: `GivenUp` if the node is well and the slot
    on its way, otherwise `StoreUnavailable`."""
    kind = GivenUp if isinstance(refusal, MOVING) else StoreUnavailable
    return kind(f"the Cluster could not take the call in time: {refusal}")
