"""Timers in Redis: between core's values and the scripts' arguments and replies.

The contract of each method is that of `relay.core.ports.TimerStore`; the scripts in `lua/` say
what they read, write and return.
"""

from __future__ import annotations

import base64
import hashlib
import math
import struct
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain, compress

from relay.core.errors import InvalidField
from relay.core.instants import EXACT, SECOND, from_score, from_scores, to_score
from relay.core.outcomes import (
    NO_LIMITS,
    ClaimRequest,
    Ending,
    Extension,
    Limits,
    Reason,
    Settled,
    Settlement,
    Verb,
    Verdict,
)
from relay.core.partitions import Layout, own_name
from relay.core.timers import (
    NO_CONDITION,
    NO_CONTENT,
    Change,
    Changed,
    Claim,
    ClaimedTimers,
    Condition,
    Content,
    NewTimer,
    NewTimers,
    Page,
    Scheduled,
    StoredTimer,
    TimerState,
)
from relay.core.trust.sealing import DoesNotOpen
from relay.store.codec import lease_record
from relay.store.codec.contents import PLAIN, Contents
from relay.store.codec.lease_record import read_claimed, text_of, texts_of
from relay.store.codec.sealed import subject_key_of
from relay.store.server.server import Server
from relay.store.timeline.read_sizes import Largest, at_once, usual
from relay.store.timeline.subjects import Subjects
from relay.store.verbs import timeline
from relay.store.verbs.terms import condition_words, flag, when_words

PARK_GRACE = 60 * SECOND
"""How long a timer whose payload is missing is kept before it is removed as an orphan, in microseconds."""


Arrive = Callable[[Layout], Awaitable[None]]
"""Brings what is on its way between a topic's partitions to where it belongs."""


class RedisStore:
    """A `TimerStore` on a Redis or Valkey server. `largest` says how large a topic's payloads may be,
    `contents` which of them are sealed."""

    def __init__(
        self,
        server: Server,
        *,
        park_grace: int = PARK_GRACE,
        largest: Largest = usual,
        arrive: Arrive | None = None,
        contents: Contents = PLAIN,
    ) -> None:
        self._server = server
        self._arrive = arrive
        self._park_grace = park_grace
        self._largest = largest
        self._contents = contents
        self._subjects = Subjects(server, contents)

    async def ping(self) -> None:
        """Ask for a sign of life. Raises `StoreError`."""
        await self._server.ping()

    async def schedule(
        self,
        topic: str,
        timers: Sequence[NewTimer],
        *,
        max_waiting: int = 0,
        deadlines: Sequence[float] = (),
    ) -> list[Scheduled]:
        """See `TimerStore.schedule`. One script call, and one more for subjects that are not known."""
        new = NewTimers.of(timers)
        whens = map(
            when_words,
            new.dues,
            new.delays,
            new.expires,
            new.expires_after,
            new.intents,
            new.conditions,
            new.occurrences,
        )
        subjects = await self._subjects.keep(topic, new.seal_with) if any(new.seal_with) else ()
        contents = self._contents.encode_all(
            topic, new.timer_ids, new.payloads, new.headers, new.content_types, subjects
        )
        args: Iterable[bytes | str] = chain.from_iterable(zip(new.timer_ids, whens, contents, strict=True))
        packed, *others = await self._server.call(timeline.schedule(topic, max_waiting, args, deadlines))
        unknown = iter(from_scores(struct.unpack(f"<{len(packed) // 8}d", packed)))
        results = [
            Scheduled(due=next(unknown) if due is None or due >= EXACT else due, change=_CREATED)
            for due in new.dues
        ]
        for place, word, score in zip(others[::3], others[1::3], others[2::3], strict=True):
            result = results[place - 1]
            result.change, result.delivery_under_way = _CHANGES[word]
            if not result.stored:
                result.due = from_score(float(score)) if score else None
        return results

    async def cancel(
        self,
        topic: str,
        timer_ids: Sequence[str],
        condition: Condition = NO_CONDITION,
        *,
        deadlines: Sequence[float] = (),
    ) -> list[Changed]:
        """See `TimerStore.cancel`. One script call."""
        word = condition_words(condition)
        args = [part for timer_id in timer_ids for part in (timer_id, word)]
        replies = await self._server.call(timeline.cancel(topic, args, deadlines))
        return [_CHANGES[reply] for reply in replies]

    async def run(self, topic: str, timer_ids: Sequence[str]) -> list[Changed]:
        """See `TimerStore.run`. One script call."""
        return [_CHANGES[word] for word in await self._server.call(timeline.run(topic, timer_ids))]

    async def get(self, topic: str, timer_id: str, *, with_content: bool = True) -> StoredTimer | None:
        """See `TimerStore.get`. One script call."""
        reply = await self._server.call(timeline.get(topic, timer_id))
        if not reply:
            return None
        score, record, stored = reply
        if not with_content:
            return _stored(timer_id, float(score), record)
        await self._subjects.look(topic, [stored])
        content = self._contents.decode(topic, timer_id, stored)
        return _stored(timer_id, float(score), record, content, digest_of(stored))

    async def claim(self, topic: str, request: ClaimRequest) -> Claim:
        """See `TimerStore.claim`. One script call, and an HMGET for subjects that are not known."""
        reply = await self._server.call(
            timeline.claim(
                topic,
                request,
                park_grace=self._park_grace,
                at_once=at_once(self._largest(topic)),
            )
        )
        await self._subjects.look(topic, reply.timers[2::3])
        deaths = reply.deaths
        return Claim(
            timers=_claimed(reply.timers, topic, self._contents),
            now=int(reply.now),
            next=from_score(float(reply.following)) if reply.following else None,
            deadline=from_score(float(reply.deadline)),
            parked=reply.parked,
            orphans=tuple(text_of(raw)[0] for raw in reply.orphans),
            deaths=tuple((text_of(deaths[i])[0], deaths[i + 1].decode()) for i in range(0, len(deaths), 2)),
            paused_until=int(reply.paused) if reply.paused else None,
            stranded=bool(reply.stranded),
        )

    async def claimed(self, topic: str, request: ClaimRequest, *, since: int, until: int) -> Claim:
        """See `LeaseSource.claimed`. A script call for each thousand timers or so that are due, or whose
        leases end, within the claim's time."""
        first: bytes | str = repr((since + request.lease) / SECOND)
        last = repr((until + request.lease + 1) / SECOND)  # the claim's score lies off the grid, behind that
        while True:
            reply = await self._server.call(timeline.claimed(topic, request, first, last))
            if reply.timers or not reply.following:
                break
            first = reply.following
        await self._subjects.look(topic, reply.timers[2::3])
        now = int(reply.now)
        deadline = from_score(float(reply.deadline)) if reply.deadline else now
        timers = _claimed(reply.timers, topic, self._contents)
        return Claim(timers, now=now, next=None, deadline=deadline)

    async def settle(
        self, topic: str, settlements: Sequence[Settlement], *, limits: Limits = NO_LIMITS
    ) -> list[Settled]:
        """See `TimerStore.settle`. One script call."""
        args: list[bytes | str | int] = []
        resealed = [again.sealed_with for each in settlements if (again := each.ending.again) is not None]
        if any(resealed):
            await self._subjects.look_for(topic, resealed)
        for each in settlements:
            for timer_ids in self._alike(topic, each):
                words = ending_words(each.ending, self._encoded(topic, timer_ids[0], each.ending))
                args += (each.nonce, *words, len(timer_ids), *timer_ids)
        _, *others = await self._server.call(timeline.settle(topic, limits, args))
        results: list[Settled] = [Verdict.OK] * sum(len(each.timer_ids) for each in settlements)
        for place, word in zip(others[::2], others[1::2], strict=True):
            results[place - 1] = SETTLED[word]
        return results

    def _alike(self, topic: str, settlement: Settlement) -> Sequence[Sequence[str]]:
        """The timers of a settlement, by what is written of them: a sealed content is for one timer."""
        again = settlement.ending.again
        if again is None or again.content is None:
            return [settlement.timer_ids]
        if not again.sealed_with and not self._contents.seals(topic):
            return [settlement.timer_ids]
        return [[timer_id] for timer_id in settlement.timer_ids]

    def _encoded(self, topic: str, timer_id: str, ending: Ending) -> Encode:
        key_id = "" if ending.again is None else ending.again.sealed_with
        return lambda content: self._contents.encode(topic, timer_id, content, key_id)

    async def extend(self, topic: str, extensions: Sequence[Extension], *, lease: int) -> list[Verdict]:
        """See `TimerStore.extend`. One script call."""
        args: list[bytes | str] = []
        for extension in extensions:
            args += (extension.timer_id, extension.nonce, flag(extension.received))
        reply = await self._server.call(timeline.extend(topic, lease, args))
        return [VERDICTS[word] for word in reply[1:]]

    def cursor_at(self, instant: int) -> str:
        """See `TimerStore.cursor_at`."""
        return _write_cursor(repr(to_score(instant)).encode(), b"")

    async def _contents_of(self, topic: str, found: Sequence[Sequence[bytes]]) -> tuple[list[Content], int]:
        """The contents of a page's entries, and how many do not open; those are empty."""
        stored = [each[3] or b"" for each in found]  # none where a foreign writer has left none
        await self._subjects.look(topic, stored)
        names = [text_of(each[0])[0] for each in found]
        (payloads, headers, kinds), closed = self._contents.decode_all(topic, names, stored)
        return list(map(Content, payloads, headers, kinds)), len(closed)

    async def list(
        self,
        layout: Layout,
        *,
        state: TimerState | None,
        limit: int,
        cursor: str,
        max_bytes: int | None = None,
    ) -> Page:
        """See `TimerStore.list`. A script call for each partition, all at once; each looks at `limit`
        entries.

        While timers move, first the partitions that they leave are read: what has left them is then brought
        to where it belongs, and read there. What finds no room goes back, and so those partitions are read
        once more. A timer that is found twice is where it belongs.
        """
        last_score, last_id = _read_cursor(cursor)
        calls = {
            each: timeline.page(each, limit, last_score, last_id, max_bytes) for each in layout.partitions
        }
        width = 3 if max_bytes is None else 4
        left = [calls.pop(own_name(each)) for each in layout.emptied]
        replies = await self._server.all(left)
        if left and self._arrive is not None:
            await self._arrive(layout)
        arrived = await self._server.all(list(calls.values()))
        replies += [*await self._server.all(left), *arrived]
        entries = (tuple(each[i : i + width]) for _, *each in replies for i in range(0, len(each), width))
        found = sorted({entry[0]: entry for entry in entries}.values(), key=_place)
        # Nothing is known of what comes behind the page of a partition. A timer that has left it may be found
        # behind that.
        end: Sequence[bytes] | None = min(
            (each[-width:] for each in replies if each[0]), key=_place, default=None
        )
        if end is not None:
            found = found[: bisect_right(found, _place(end), key=_place)]
        if len(found) > limit:
            del found[limit:]
            end = found[-1]
        contents, closed = await self._contents_of(layout.topic, found) if width == 4 else (None, 0)
        timers = [
            _stored(text_of(entry[0])[0], float(entry[1]), entry[2], contents[n] if contents else NO_CONTENT)
            for n, entry in enumerate(found)
        ]
        if state is not None:
            timers = [timer for timer in timers if timer.state is state]
        return Page(timers, "" if end is None else _write_cursor(end[1], end[0]), closed)


# A lookup of a member for each timer is expensive: Python 3.11's enums do it in Python.
_ACK = Verb.ACK
_CREATED = Change.CREATED
VERDICTS = {verdict.value.encode(): verdict for verdict in Verdict}
SETTLED: dict[bytes, Settled] = {word.value.encode(): word for words in (Verdict, Reason) for word in words}
_CHANGES = {change.value.encode(): Changed(change, change is Change.IN_FLIGHT) for change in Change} | {
    f"{change.value} UNDER_WAY".encode(): Changed(change, True) for change in Change
}


def digest_of(stored: bytes) -> str:
    """What `lib/conditions.lua` compares: the SHA-1 of what is stored of a content."""
    return hashlib.sha1(stored, usedforsecurity=False).hexdigest()


Encode = Callable[[Content], bytes]
"""Makes what is stored of a new content."""


def plain(content: Content) -> bytes:
    """Make what is stored where nothing is sealed."""
    return PLAIN.encode("", "", content)


def ending_words(ending: Ending, encode: Encode = plain) -> tuple[str, str | bytes]:
    """The verb and the detail of an ending; see `timeline/settle.lua`."""
    if ending.verb is _ACK:
        return "ack", ""
    try:
        return ending.verb.value, _detail(ending, encode)
    except struct.error:
        # A foreign writer's headers may be longer than an envelope of ours can hold. What goes with
        # it in this call is not to suffer; it comes again, and dies with these words in the end.
        return Verb.NACK.value, ";the new payload can't be stored: a header is over 65,535 bytes"
    except DoesNotOpen as failure:
        # Without the subject's key nothing of the timer may be written. The old content says at the next
        # claim what becomes of it.
        return Verb.NACK.value, f";the new payload can't be stored: it is to be {failure.why}"


def _detail(ending: Ending, encode: Encode) -> str | bytes:
    verb, retry_after = ending.verb, ending.retry_after
    if verb is Verb.NACK:
        return f"{'' if retry_after is None else retry_after};{ending.error}"
    if verb is Verb.RELEASE:
        said = ending.received, ending.broken, ending.suspect, ending.unsent
        return f"{''.join(compress('rbsu', said))};{retry_after or 0}"
    if verb is Verb.REJECT:
        return f"{ending.reason.value};{ending.error}"
    if verb is Verb.RESCHEDULE and ending.again is not None:
        again = ending.again
        stored = b"" if again.content is None else encode(again.content)
        return f"{when_words(again.due, again.delay)};".encode() + stored
    return ""


def _claimed(flat: Sequence[bytes], topic: str, contents: Contents) -> ClaimedTimers:
    """Return the timers of a claim, each with timer_id, record and envelope. There are many, and each further
    call for one of them is expensive."""
    if not flat:
        return ClaimedTimers.of(())
    timer_ids, readable = texts_of(flat[::3])
    suspect, approximate, attempts, claims, dues, occurrences = zip(
        *map(read_claimed, flat[1::3]), strict=True
    )
    (payloads, headers, content_types), closed = contents.decode_all(topic, timer_ids, flat[2::3])
    # Those claimed for the first time share theirs.
    occurred = {each: each.hex() for each in set(occurrences)}
    named = zip(timer_ids, occurrences, strict=True)
    return ClaimedTimers.filled(
        timer_ids,
        payloads=payloads,
        headers=headers,
        content_types=content_types,
        dues=from_scores(dues),
        # Foreign writers reach this record, too.
        attempts=[attempt + 1 if attempt < 0xFFFFFFFF else attempt for attempt in attempts],
        occurrence_ids=[f"{name}/{occurred[each]}" for name, each in named],
        approximate=[each == 1 for each in approximate],
        suspect=[each == 1 for each in suspect],
        readable=readable,
        claims=list(claims),
        unopened=[closed.get(place) for place in range(len(timer_ids))]
        if closed
        else [None] * len(timer_ids),
        sealed_with=[subject_key_of(each) or "" for each in flat[2::3]]
        if contents.subjects is not None
        else [""] * len(timer_ids),
    )


def _stored(
    timer_id: str, score: float, raw_record: bytes, content: Content = NO_CONTENT, digest: str = ""
) -> StoredTimer:
    record = lease_record.read(raw_record)
    return StoredTimer(
        timer_id=timer_id,
        state=TimerState.LEASED if record.state == lease_record.LEASED else TimerState.PENDING,
        due=from_score(record.due),
        next_claim=from_score(score),
        attempts=record.attempts,
        digest=digest,
        **content.fields(),
    )


def _place(entry: Sequence[bytes]) -> tuple[float, bytes]:
    """Where an entry of a page, which begins with timer_id and score, stands in the order of pages."""
    return float(entry[1]), entry[0]


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
