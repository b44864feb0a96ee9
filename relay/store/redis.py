"""Timers in Redis: one typed method per script, and the translation of its replies.

The contract of each method is that of `relay.core.ports.TimerStore`; the scripts in `lua/` say
what they read, write and return.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redis.asyncio import Redis

from relay.core.errors import InvalidField, StoreUnavailable
from relay.core.instants import SECOND, from_score, to_score
from relay.core.outcomes import Extension, Settlement, Verb, Verdict
from relay.core.timers import Claim, ClaimedTimer, NewTimer, Page, Scheduled, StoredTimer, TimerState
from relay.store import envelope, records
from relay.store.errors import says_readonly, translated_errors
from relay.store.keys import KeyNames
from relay.store.pool import MasterPool
from relay.store.scripts import Script

PARK_GRACE = 60 * SECOND
"""How long a timer whose payload is missing is kept before it is removed as an orphan."""

VERBS = ("schedule", "cancel", "get", "list", "claim", "settle", "extend")


class RedisStore:
    """A `TimerStore` on a Redis or Valkey server.

    `demoted` is called when the server turns out to be a replica now: other connections to it are
    of no use either. `texts` replaces scripts by other text, for tests that break them on purpose.
    """

    def __init__(
        self,
        redis: Redis,
        keys: KeyNames | None = None,
        *,
        park_grace: int = PARK_GRACE,
        demoted: Callable[[], None] = lambda: None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self._redis = redis
        self._keys = keys or KeyNames()
        self._park_grace = park_grace
        self._demoted = demoted
        self._scripts = {verb: Script(verb, (texts or {}).get(verb)) for verb in VERBS}

    async def _run(self, verb: str, topic: str, *args: bytes | str | int) -> Any:
        try:
            async with translated_errors():
                return await self._scripts[verb](self._redis, self._keys.of(topic), args)
        except StoreUnavailable as failure:
            if says_readonly(failure.__cause__):
                self._leave()
            raise

    def _leave(self) -> None:
        """A master that became a replica may keep its connections: let new ones look for the new master."""
        self._demoted()
        pool = self._redis.connection_pool
        if isinstance(pool, MasterPool):
            pool.renew()

    async def ping(self) -> None:
        """A sign of life; raises `StoreError`."""
        async with translated_errors():
            await self._redis.ping()

    async def schedule(self, topic: str, timers: Sequence[NewTimer]) -> list[Scheduled]:
        """See `TimerStore.schedule`. One script call."""
        args: list[bytes | str | int] = [self._keys.channel(topic)]
        for timer in timers:
            if timer.due is not None:
                args += (timer.timer_id, "at", repr(to_score(timer.due)))
            else:
                args += (timer.timer_id, "in", timer.delay or 0)
            args.append(envelope.encode(timer.payload, timer.headers, timer.content_type))
        reply = await self._run("schedule", topic, *args)
        return [
            Scheduled(from_score(float(reply[i + 1])), reply[i] == b"REPLACED")
            for i in range(1, len(reply), 2)
        ]

    async def cancel(self, topic: str, timer_ids: Sequence[str]) -> list[bool]:
        """See `TimerStore.cancel`. One script call."""
        return [word == b"CANCELLED" for word in await self._run("cancel", topic, *timer_ids)]

    async def get(self, topic: str, timer_id: str) -> StoredTimer | None:
        """See `TimerStore.get`. One script call."""
        reply = await self._run("get", topic, timer_id)
        if not reply:
            return None
        score, record, stored = reply
        return _stored(timer_id, float(score), record, envelope.decode(stored))

    async def claim(self, topic: str, *, limit: int, lease: int, nonce: bytes, max_bytes: int) -> Claim:
        """See `TimerStore.claim`. One script call."""
        reply = await self._run("claim", topic, limit, lease, nonce, max_bytes, self._park_grace)
        now, following, deadline, parked, orphans, flat = reply
        return Claim(
            timers=[_claimed(*flat[i : i + 3]) for i in range(0, len(flat), 3)],
            now=int(now),
            next=from_score(float(following)) if following else None,
            deadline=from_score(float(deadline)),
            parked=parked,
            orphans=tuple(_name(raw)[0] for raw in orphans),
        )

    async def settle(self, topic: str, settlements: Sequence[Settlement]) -> list[Verdict]:
        """See `TimerStore.settle`. One script call."""
        args: list[bytes | str | int] = [self._keys.channel(topic)]
        for settlement in settlements:
            args += (settlement.timer_id, settlement.nonce, settlement.verb.value, _detail(settlement))
        reply = await self._run("settle", topic, *args)
        return [_VERDICTS[word] for word in reply[1:]]

    async def extend(self, topic: str, extensions: Sequence[Extension], *, lease: int) -> list[Verdict]:
        """See `TimerStore.extend`. One script call."""
        args: list[bytes | str | int] = [lease]
        for extension in extensions:
            args += (extension.timer_id, extension.nonce, "1" if extension.received else "")
        reply = await self._run("extend", topic, *args)
        return [_VERDICTS[word] for word in reply[1:]]

    async def list(self, topic: str, *, state: TimerState | None, limit: int, cursor: str) -> Page:
        """See `TimerStore.list`. One script call; it looks at `limit` entries."""
        last_score, last_id = _read_cursor(cursor)
        more, *entries = await self._run("list", topic, limit, last_score, last_id)
        timers = [
            _stored(_name(entries[i])[0], float(entries[i + 1]), entries[i + 2])
            for i in range(0, len(entries), 3)
        ]
        if state is not None:
            timers = [timer for timer in timers if timer.state is state]
        return Page(timers, _write_cursor(entries[-2], entries[-3]) if more else "")


_VERDICTS = {verdict.value.encode(): verdict for verdict in Verdict}


def _detail(settlement: Settlement) -> str | int:
    if settlement.verb is Verb.NACK and settlement.retry_after is not None:
        return settlement.retry_after
    if settlement.verb is Verb.RELEASE:
        return ("r" if settlement.received else "") + ("s" if settlement.suspect else "")
    return ""


def _name(raw: bytes) -> tuple[str, bool]:
    """A timer_id, and whether it is UTF-8; foreign writers are free to use anything."""
    try:
        return raw.decode(), True
    except UnicodeDecodeError:
        return raw.decode(errors="surrogateescape"), False


def _claimed(raw_id: bytes, raw_record: bytes, stored: bytes) -> ClaimedTimer:
    timer_id, readable = _name(raw_id)
    record = records.read(raw_record)
    content = envelope.decode(stored)
    return ClaimedTimer(
        timer_id=timer_id,
        payload=content.payload,
        headers=content.headers,
        content_type=content.content_type,
        due=from_score(record.due),
        attempt=min(record.attempts + 1, 0xFFFFFFFF),  # foreign writers reach this record, too
        occurrence_id=f"{timer_id}/{record.occurrence.hex()}",
        approximate=record.approximate == 1,
        suspect=record.suspect == 1,
        readable=readable,
    )


def _stored(
    timer_id: str,
    score: float,
    raw_record: bytes,
    content: envelope.Content = envelope.Content(b"", {}, ""),  # noqa: B008  (an immutable value)
) -> StoredTimer:
    record = records.read(raw_record)
    return StoredTimer(
        timer_id=timer_id,
        state=TimerState.LEASED if record.state == records.LEASED else TimerState.PENDING,
        due=from_score(record.due),
        next_claim=from_score(score),
        attempts=record.attempts,
        payload=content.payload,
        headers=content.headers,
        content_type=content.content_type,
    )


def _write_cursor(score: bytes, timer_id: bytes) -> str:
    return base64.urlsafe_b64encode(score + b" " + timer_id).decode()


def _read_cursor(cursor: str) -> tuple[str, bytes]:
    if not cursor:
        return "", b""
    try:
        raw_score, _, timer_id = base64.b64decode(cursor, b"-_", validate=True).partition(b" ")
        score = float(raw_score)
        if math.isnan(score):
            raise ValueError(cursor)
        return repr(score), timer_id
    except ValueError:
        raise InvalidField("page_token", "is not one that a page gave; start without one") from None
