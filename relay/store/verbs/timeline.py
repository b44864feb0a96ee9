"""The scripts of `lua/timeline`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from relay.core.outcomes import ClaimRequest, Limits
from relay.store.server.scripts import Argument, Call
from relay.store.verbs.terms import Mixed, Words, by_hand, limit_words


class ClaimReply(NamedTuple):
    """What `timeline/claim` answers."""

    now: bytes
    following: bytes
    deadline: bytes
    parked: int
    orphans: Sequence[bytes]
    timers: Sequence[bytes]
    deaths: Sequence[bytes]
    paused: bytes
    stranded: int


class RecallReply(NamedTuple):
    """What `timeline/recall` answers."""

    now: bytes
    scores: Sequence[bytes]


class ClaimedReply(NamedTuple):
    """What `timeline/claimed` answers."""

    now: bytes
    following: bytes
    deadline: bytes
    timers: Sequence[bytes]


def schedule(
    topic: str, max_waiting: int, timers: Iterable[Argument], deadlines: Sequence[float] = ()
) -> Call[Mixed]:
    """`deadlines` are those of `TimerStore.schedule`. The reply: the due times that callers can't know,
    packed; then place, word and text of each timer that is not simply new."""
    args = (max_waiting, *timers)
    return Call("timeline/schedule", topic, args, hints=True, deadlines=deadlines, by=by_hand())


def cancel(topic: str, timers: Sequence[str], deadlines: Sequence[float] = ()) -> Call[Words]:
    """Take for each timer its id and its condition. `deadlines` are those of `TimerStore.schedule`."""
    return Call("timeline/cancel", topic, timers, deadlines=deadlines, by=by_hand())


def run(topic: str, timer_ids: Sequence[str]) -> Call[Words]:
    """Make timers due now."""
    return Call("timeline/run", topic, timer_ids, hints=True, by=by_hand())


def get(topic: str, timer_id: str | bytes) -> Call[Words]:
    """The reply: score, record, envelope; or nothing."""
    return Call("timeline/get", topic, (timer_id,))


def page(
    topic: str, limit: int, last_score: str, last_id: bytes, max_bytes: int | None = None
) -> Call[Mixed]:
    """`timeline/list`. The reply: whether there is more; then timer_id, score, record of each, and with
    `max_bytes` its envelope."""
    size = () if max_bytes is None else (max_bytes,)
    return Call("timeline/list", topic, (limit, last_score, last_id, *size))


def claim(topic: str, request: ClaimRequest, *, park_grace: int, at_once: int) -> Call[ClaimReply]:
    """Lease timers that are due."""
    head = (request.limit, request.lease, request.nonce, request.max_bytes, park_grace)
    args = (*head, *limit_words(request.limits), at_once, request.behind)
    return Call("timeline/claim", topic, args, ClaimReply._make)


def claimed(topic: str, request: ClaimRequest, first: Argument, last: Argument) -> Call[ClaimedReply]:
    """Find what a claim has leased, in a part of the timeline that begins at `first` and ends at `last` at
    the latest: scores as ZRANGEBYSCORE takes them."""
    args = (request.nonce, first, last, request.max_bytes)
    return Call("timeline/claimed", topic, args, ClaimedReply._make)


def settle(topic: str, limits: Limits, groups: Iterable[Argument]) -> Call[Mixed]:
    """Each group has its nonce, verb, detail, how many, and their ids. The reply: the next score; then place
    and word of each timer that is not a simple success."""
    return Call("timeline/settle", topic, (*limit_words(limits), *groups), hints=True)


def extend(topic: str, lease: int, extensions: Iterable[Argument]) -> Call[Words]:
    """Take for each timer its id, its nonce, and whether it was received. The reply is the deadline, then a
    word for each."""
    return Call("timeline/extend", topic, (lease, *extensions), hints=True)


def ahead(topic: str, lease: int, cursor: bytes | str, limit: int) -> Call[Words]:
    """The reply: the next cursor; then timer_ids."""
    return Call("timeline/ahead", topic, (lease, cursor, limit))


def recall(
    topic: str, lease: int, back: int, limits: Limits, leases: Iterable[Argument]
) -> Call[RecallReply]:
    """Take for each timer its id, and the score at which its lease has stood."""
    args = (lease, back, *limit_words(limits), *leases)
    return Call("timeline/recall", topic, args, lambda reply: RecallReply(reply[0], reply[1:]), hints=True)


def orphans(topic: str, which: Literal["payloads", "leases"], cursor: bytes | str, limit: int) -> Call[Words]:
    """The reply: the next cursor; then timer_ids."""
    return Call("timeline/orphans", topic, (which, cursor, limit))


def repair(topic: str, timer_ids: Sequence[str]) -> Call[Sequence[int]]:
    """The reply: how many payloads and lease records were removed."""
    return Call("timeline/repair", topic, timer_ids)
