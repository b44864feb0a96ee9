"""The scripts of `lua/list`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from relay.core.outcomes import Limits
from relay.store.server.scripts import Call
from relay.store.verbs.terms import limit_words


class PromoteRequest(NamedTuple):
    """What a promotion takes at most: `limit` timers, `max_bytes` of payloads. The rest as for a claim."""

    limit: int
    max_bytes: int
    park_grace: int
    nonce: bytes
    limits: Limits
    at_once: int


class PromoteReply(NamedTuple):
    """What `list/promote` and `stream/promote` answer."""

    now: bytes
    following: bytes
    promoted: int
    parked: int
    orphans: Sequence[bytes]
    deaths: Sequence[bytes]
    paused: bytes
    dues: Sequence[bytes]


class ReclaimReply(NamedTuple):
    """What `list/reclaim` answers."""

    returned: int
    deaths: Sequence[bytes]
    following: bytes | int
    scan: bytes
    size: int


def promote(topic: str, request: PromoteRequest) -> Call[PromoteReply]:
    """Move due timers to the ready list."""
    head = (request.limit, request.max_bytes, request.park_grace, request.nonce)
    args = (*head, *limit_words(request.limits), request.at_once)
    return Call("list/promote", topic, args, promoted)


def reclaim(
    topic: str, *, left_after: int, limit: int, limits: Limits, at_once: int, skip: int, scan: bytes | str
) -> Call[ReclaimReply]:
    """Give back what dead workers have left."""
    args = (left_after, limit, *limit_words(limits), at_once, skip, scan)
    return Call("list/reclaim", topic, args, ReclaimReply._make)


def promoted(reply: Sequence[Any]) -> PromoteReply:
    """The reply by name."""
    now, following, count, parked, orphans, deaths, paused, *dues = reply
    return PromoteReply(now, following, count, parked, orphans, deaths, paused, dues)
