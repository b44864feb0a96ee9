"""Timers in Redis: one typed method per script, and the translation of its replies.

The contract of each method is that of `relay.core.ports.TimerStore`; the scripts in `lua/` say
what they read, write and return.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, groupby

from redis.asyncio import Redis

from relay.core.errors import InvalidField
from relay.core.instants import EXACT, SECOND, from_score, from_scores, to_score
from relay.core.journal import NO_JOURNALS, Journals
from relay.core.outcomes import (
    NO_LIMITS,
    Acknowledged,
    Extension,
    Limits,
    Reason,
    Settled,
    Settlement,
    Verb,
    Verdict,
)
from relay.core.timers import (
    NO_CONDITION,
    NO_HEADERS,
    Change,
    Claim,
    ClaimedTimers,
    Condition,
    NewTimer,
    NewTimers,
    Page,
    Scheduled,
    StoredTimer,
    TimerState,
)
from relay.store.codec import envelope, lease_record
from relay.store.codec.envelope import decode
from relay.store.codec.lease_record import read_claimed, text_of, texts_of
from relay.store.keys import KeyNames
from relay.store.server.errors import translated_errors
from relay.store.server.scripts import Observe, OnRefusedHint, Scripts, ignore_duration, ignore_reason
from relay.store.timeline.read_sizes import Largest, at_once, usual

PARK_GRACE = 60 * SECOND
"""How long a timer whose payload is missing is kept before it is removed as an orphan."""

VERBS = (
    "timeline/schedule",
    "timeline/cancel",
    "timeline/run",
    "timeline/get",
    "timeline/list",
    "timeline/claim",
    "timeline/settle",
    "timeline/extend",
)


class RedisStore:
    """A `TimerStore` on a Redis or Valkey server.

    `journals` says which topics have a journal. `demoted` is called when the server turns out to be a
    replica now: other connections to it are of no use either. `observe` is told of each script call: its
    verb, and how many seconds it took. `unheard` is told of each wake hint that Redis refused: why. `texts`
    replaces scripts by other text, for tests that break them on purpose. `largest` says how large a topic's
    payloads may be.
    """

    def __init__(
        self,
        redis: Redis,
        keys: KeyNames | None = None,
        *,
        park_grace: int = PARK_GRACE,
        journals: Journals = NO_JOURNALS,
        demoted: Callable[[], None] = lambda: None,
        texts: Mapping[str, str] | None = None,
        observe: Observe = ignore_duration,
        unheard: OnRefusedHint = ignore_reason,
        largest: Largest = usual,
    ) -> None:
        self._redis = redis
        self._keys = keys or KeyNames()
        self._largest = largest
        self._park_grace = park_grace
        self._run = Scripts(
            redis,
            self._keys,
            VERBS,
            journals=journals,
            demoted=demoted,
            texts=texts,
            observe=observe,
            unheard=unheard,
        ).run

    async def ping(self) -> None:
        """A sign of life; raises `StoreError`."""
        with translated_errors():
            await self._redis.ping()

    async def schedule(
        self, topic: str, timers: Sequence[NewTimer], *, max_waiting: int = 0
    ) -> list[Scheduled]:
        """See `TimerStore.schedule`. One script call."""
        columns = NewTimers.of(timers).columns()
        timer_ids, payloads, dues, delays, headers, content_types, *terms = columns
        whens = map(_when, dues, delays, *terms)
        contents = map(envelope.encode, payloads, headers, content_types)
        args = chain.from_iterable(zip(timer_ids, whens, contents, strict=True))
        time, *others = await self._run(
            "timeline/schedule", topic, self._keys.channel(topic), max_waiting, *args
        )
        now = int(time)
        results = [
            Scheduled(_due(due, delay, now), _CREATED) for due, delay in zip(dues, delays, strict=True)
        ]
        for place, word, score in zip(others[::3], others[1::3], others[2::3], strict=True):
            result = results[place - 1]
            result.change = _CHANGES[word]
            if not result.stored:
                result.due = from_score(float(score)) if score else None
        return results

    async def cancel(
        self, topic: str, timer_ids: Sequence[str], condition: Condition = NO_CONDITION
    ) -> list[Change]:
        """See `TimerStore.cancel`. One script call."""
        word = _condition(condition)
        args = [part for timer_id in timer_ids for part in (timer_id, word)]
        return [_CHANGES[reply] for reply in await self._run("timeline/cancel", topic, *args)]

    async def run(self, topic: str, timer_ids: Sequence[str]) -> list[Change]:
        """See `TimerStore.run`. One script call."""
        reply = await self._run("timeline/run", topic, self._keys.channel(topic), *timer_ids)
        return [_CHANGES[word] for word in reply]

    async def get(self, topic: str, timer_id: str) -> StoredTimer | None:
        """See `TimerStore.get`. One script call."""
        reply = await self._run("timeline/get", topic, timer_id)
        if not reply:
            return None
        score, record, stored = reply
        return _stored(timer_id, float(score), record, envelope.decode(stored))

    async def claim(
        self,
        topic: str,
        *,
        limit: int,
        lease: int,
        nonce: bytes,
        max_bytes: int,
        limits: Limits = NO_LIMITS,
    ) -> Claim:
        """See `TimerStore.claim`. One script call."""
        reply = await self._run(
            "timeline/claim",
            topic,
            *(limit, lease, nonce, max_bytes, self._park_grace),
            *limit_words(limits),
            at_once(self._largest(topic)),
        )
        now, following, deadline, parked, orphans, flat, deaths, paused = reply
        return Claim(
            timers=_claimed(flat),
            now=int(now),
            next=from_score(float(following)) if following else None,
            deadline=from_score(float(deadline)),
            parked=parked,
            orphans=tuple(text_of(raw)[0] for raw in orphans),
            deaths=tuple((text_of(deaths[i])[0], deaths[i + 1].decode()) for i in range(0, len(deaths), 2)),
            paused_until=int(paused) if paused else None,
        )

    async def settle(
        self,
        topic: str,
        settlements: Sequence[Settlement],
        *,
        acknowledged: Sequence[Acknowledged] = (),
        limits: Limits = NO_LIMITS,
    ) -> list[Settled]:
        """See `TimerStore.settle`. One script call."""
        args: list[bytes | str | int] = [self._keys.channel(topic), *limit_words(limits)]
        for (nonce, verb, detail), alike in groupby(settlements, _end):
            ids = [settlement.timer_id for settlement in alike]
            args += (nonce, verb, detail, len(ids), *ids)
        for nonce, timer_ids in acknowledged:
            args += (nonce, "ack", "", len(timer_ids), *timer_ids)
        _, *others = await self._run("timeline/settle", topic, *args)
        count = len(settlements) + sum(len(timer_ids) for _, timer_ids in acknowledged)
        results: list[Settled] = [Verdict.OK] * count
        for place, word in zip(others[::2], others[1::2], strict=True):
            results[place - 1] = SETTLED[word]
        return results

    async def extend(self, topic: str, extensions: Sequence[Extension], *, lease: int) -> list[Verdict]:
        """See `TimerStore.extend`. One script call."""
        args: list[bytes | str | int] = [lease]
        for extension in extensions:
            args += (extension.timer_id, extension.nonce, "1" if extension.received else "")
        reply = await self._run("timeline/extend", topic, *args)
        return [VERDICTS[word] for word in reply[1:]]

    async def list(self, topic: str, *, state: TimerState | None, limit: int, cursor: str) -> Page:
        """See `TimerStore.list`. One script call; it looks at `limit` entries."""
        last_score, last_id = _read_cursor(cursor)
        more, *entries = await self._run("timeline/list", topic, limit, last_score, last_id)
        timers = [
            _stored(text_of(entries[i])[0], float(entries[i + 1]), entries[i + 2])
            for i in range(0, len(entries), 3)
        ]
        if state is not None:
            timers = [timer for timer in timers if timer.state is state]
        return Page(timers, _write_cursor(entries[-2], entries[-3]) if more else "")


# To look up a member for each timer is dear: Python 3.11's enums do it in Python.
_ACK = Verb.ACK
_CREATED = Change.CREATED
VERDICTS = {verdict.value.encode(): verdict for verdict in Verdict}
SETTLED: dict[bytes, Settled] = {word.value.encode(): word for words in (Verdict, Reason) for word in words}
_CHANGES = {change.value.encode(): change for change in Change}


def limit_words(limits: Limits) -> tuple[str | int, ...]:
    """As the scripts' `read_limits` takes them."""
    return (
        limits.max_attempts,
        limits.max_claims,
        limits.max_age,
        "1" if limits.keep else "",
        "1" if limits.keep_expired else "",
    )


def _when(
    due: int | None,
    delay: int | None,
    expires: int | None = None,
    expires_after: int | None = None,
    create: bool = False,
    condition: Condition = NO_CONDITION,
) -> str:
    """When, and on what terms; see `timeline/schedule.lua`."""
    when = f"+{delay or 0}" if due is None else repr(to_score(due))
    if expires is not None:
        when += f";e{to_score(expires)!r}"
    elif expires_after is not None:
        when += f";x{expires_after}"
    if create:
        when += ";c"
    if condition is not NO_CONDITION:
        when += f";{_condition(condition)}"
    return when


def _due(due: int | None, delay: int | None, now: int) -> int:
    """The due time that a script which ran at `now` gave it: the same sums, with the same roundings."""
    instant = now + (delay or 0) if due is None else due
    if instant < EXACT:
        return instant
    return from_score((now + float(delay or 0)) / SECOND if due is None else to_score(instant))


def _condition(condition: Condition) -> str:
    """As the scripts' `refuses` takes it."""
    due = "" if condition.due is None else f"d{to_score(condition.due)!r}"
    return ("p" if condition.only_pending else "") + due


def _end(settlement: Settlement) -> tuple[bytes, str, str | bytes]:
    """What a group of settlements shares; see `timeline/settle.lua`."""
    return settlement.nonce, *settlement_words(settlement)


def settlement_words(settlement: Settlement) -> tuple[str, str | bytes]:
    """The verb and the detail of a settlement; see `timeline/settle.lua`."""
    if settlement.verb is _ACK:
        return "ack", ""
    try:
        return settlement.verb.value, _detail(settlement)
    except struct.error:
        # A foreign writer's headers may be longer than an envelope of ours can hold. What goes with
        # it in this call is not to suffer; it comes again, and dies with these words in the end.
        return Verb.NACK.value, ";the new payload can't be stored: a header is over 65,535 bytes"


def _detail(settlement: Settlement) -> str | bytes:
    """The last argument of a settlement; see `timeline/settle.lua`."""
    verb, retry_after = settlement.verb, settlement.retry_after
    if verb is Verb.NACK:
        return f"{'' if retry_after is None else retry_after};{settlement.error}"
    if verb is Verb.RELEASE:
        flags = (settlement.received, "r"), (settlement.suspect, "s"), (settlement.unsent, "u")
        return f"{''.join(letter for is_set, letter in flags if is_set)};{retry_after or 0}"
    if verb is Verb.REJECT:
        return f"{settlement.reason.value};{settlement.error}"
    if verb is Verb.RESCHEDULE and settlement.again is not None:
        again = settlement.again
        stored = envelope.encode(again.payload, again.headers, again.content_type)
        return f"{_when(again.due, again.delay)};".encode() + (stored if settlement.new_content else b"")
    return ""


def _claimed(flat: Sequence[bytes]) -> ClaimedTimers:
    """The timers of a claim, each of them timer_id, record, envelope. There are many, most of them bare, and
    each further call for one of them is dear."""
    if not flat:
        return ClaimedTimers.of(())
    timer_ids, readable = texts_of(flat[::3])
    suspect, approximate, attempts, claims, dues, occurrences = zip(
        *map(read_claimed, flat[1::3]), strict=True
    )
    bare, body = envelope.NO_HEADERS, envelope.BODY
    payloads, headers, content_types = zip(
        *[
            (stored[body:], NO_HEADERS, "") if stored.startswith(bare) else decode(stored)
            for stored in flat[2::3]
        ],
        strict=True,
    )
    # Those claimed for the first time share theirs.
    occurred = {each: each.hex() for each in set(occurrences)}
    return ClaimedTimers(
        timer_ids,
        list(payloads),
        list(headers),
        list(content_types),
        from_scores(dues),
        # Foreign writers reach this record, too.
        [attempt + 1 if attempt < 0xFFFFFFFF else attempt for attempt in attempts],
        [f"{name}/{occurred[each]}" for name, each in zip(timer_ids, occurrences, strict=True)],
        [each == 1 for each in approximate],
        [each == 1 for each in suspect],
        readable,
        list(claims),
        [b""] * len(timer_ids),
    )


def _stored(
    timer_id: str,
    score: float,
    raw_record: bytes,
    content: envelope.Content = envelope.Content(b"", {}, ""),  # noqa: B008  (an immutable value)
) -> StoredTimer:
    record = lease_record.read(raw_record)
    return StoredTimer(
        timer_id=timer_id,
        state=TimerState.LEASED if record.state == lease_record.LEASED else TimerState.PENDING,
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
