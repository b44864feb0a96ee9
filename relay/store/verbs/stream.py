"""The scripts of `lua/stream`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from relay.core.outcomes import ClaimRequest, Limits
from relay.store.server.scripts import Argument, Call
from relay.store.verbs.ready_list import PromoteReply, PromoteRequest, promoted
from relay.store.verbs.terms import Words, by_hand, flag, limit_words


class StreamClaimReply(NamedTuple):
    """What `stream/claim` answers."""

    now: bytes
    following: bytes
    deadline: bytes
    parked: int
    orphans: Sequence[bytes]
    timers: Sequence[Any]
    deaths: Sequence[bytes]
    paused: bytes
    promoted: int
    cursor: bytes
    pending: int
    missing: int


class StreamClaimedReply(NamedTuple):
    """What `stream/claimed` answers."""

    now: bytes
    deadline: bytes
    timers: Sequence[Any]


class Consumer(NamedTuple):
    """A reader of a topic's stream: its group, and its name there."""

    group: str
    name: str


def claim(
    topic: str,
    consumer: Consumer,
    request: ClaimRequest,
    *,
    park_grace: int,
    cursor: str,
    reads_new: bool,
    at_once: int,
    begin: str,
) -> Call[StreamClaimReply]:
    """Lease entries of the stream; `cursor` is empty to look for nothing that the dead have left."""
    head = (request.limit, request.lease, request.nonce, request.max_bytes, park_grace)
    where = (*consumer, cursor, flag(reads_new))
    args = (*head, *where, *limit_words(request.limits), at_once, begin)
    made = StreamClaimReply._make
    return Call("stream/claim", topic, args, made, group=consumer.group, consumer=consumer.name)


def claimed(topic: str, consumer: Consumer, nonce: bytes) -> Call[StreamClaimedReply]:
    """Find what the consumer's claim of this nonce has leased, if it was its latest one."""
    args, made = (nonce, *consumer), StreamClaimedReply._make
    return Call("stream/claimed", topic, args, made, group=consumer.group, consumer=consumer.name)


def settle(
    topic: str, consumer: Consumer, lease: int, limits: Limits, entries: Iterable[Argument]
) -> Call[Words]:
    """Each entry has its id, how often it was delivered, verb and detail. The reply: what comes next; then a
    word for each."""
    args = (lease, *consumer, *limit_words(limits), *entries)
    return Call("stream/settle", topic, args, hints=True, group=consumer.group)


def extend(topic: str, consumer: Consumer, lease: int, entries: Iterable[Argument]) -> Call[Words]:
    """Take for each entry its id, how often it was delivered, and whether it was received. The reply is the
    deadline, then a word for each."""
    return Call("stream/extend", topic, (lease, *consumer, *entries), group=consumer.group)


def recall(topic: str, group: str, first: Argument, limit: int) -> Call[bytes]:
    """The reply: where to go on, empty at the end."""
    return Call("stream/recall", topic, (group, first, limit), group=group)


def promote(topic: str, group: str, request: PromoteRequest, *, begin: str) -> Call[PromoteReply]:
    """Move due timers to the stream."""
    head = (request.limit, request.max_bytes, request.park_grace, request.nonce)
    args = (*head, group, *limit_words(request.limits), request.at_once, begin)
    return Call("stream/promote", topic, args, promoted, group=group)


def tidy(topic: str, group: str, gone_after: int, max_length: int, limit: int) -> Call[Sequence[int]]:
    """The reply: entries trimmed, entries dropped, consumers removed. `gone_after` in milliseconds."""
    return Call("stream/tidy", topic, (gone_after, max_length, limit), group=group)


def redrive(topic: str, group: bytes, dead_ids: Sequence[str]) -> Call[Words]:
    """Dead letters that died in a group of the stream."""
    name = group.decode(errors="replace")
    return Call("stream/redrive", topic, (group, *dead_ids), hints=True, group=name, by=by_hand())
