"""Timers in a dictionary: the same contract without Redis, for tests and as a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relay.core.errors import InvalidField
from relay.core.instants import LATEST
from relay.core.outcomes import Extension, Settlement, Verb, Verdict
from relay.core.timers import Claim, ClaimedTimer, NewTimer, Page, Scheduled, StoredTimer, TimerState


@dataclass(slots=True)
class _Entry:
    timer: NewTimer
    due: int
    next_claim: int
    nonce: bytes | None = None
    attempts: int = 0
    received: bool = False
    suspect: bool = False
    occurrence: bytes | None = None


class MemoryStore:
    """A `TimerStore` whose "now" is `clock()` (microseconds)."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._topics: dict[str, dict[str, _Entry]] = {}
        self._watchers: dict[str, Callable[[int], None]] = {}

    async def ping(self) -> None:
        """Always alive."""

    async def schedule(self, topic: str, timers: Sequence[NewTimer]) -> list[Scheduled]:
        """See `TimerStore.schedule`."""
        now = self._clock()
        dues = [now + (timer.delay or 0) if timer.due is None else timer.due for timer in timers]
        if any(due > LATEST for due in dues):
            raise InvalidField("delay", "ends after the year 9999; give a shorter one")
        entries, head = self._entries(topic), self._head(topic)
        results = []
        for timer, due in zip(timers, dues, strict=True):
            results.append(Scheduled(due, timer.timer_id in entries))
            entries[timer.timer_id] = _Entry(timer, due, due)
        self._hint(topic, head)
        return results

    async def cancel(self, topic: str, timer_ids: Sequence[str]) -> list[bool]:
        """See `TimerStore.cancel`."""
        entries = self._entries(topic)
        return [entries.pop(timer_id, None) is not None for timer_id in timer_ids]

    async def get(self, topic: str, timer_id: str) -> StoredTimer | None:
        """See `TimerStore.get`."""
        entry = self._entries(topic).get(timer_id)
        return self._stored(entry, content=True) if entry else None

    async def claim(self, topic: str, *, limit: int, lease: int, nonce: bytes, max_bytes: int) -> Claim:
        """See `TimerStore.claim`."""
        now = self._clock()
        claimed: list[ClaimedTimer] = []
        size = 0
        for entry in self._order(topic)[:limit]:
            size += len(entry.timer.payload)
            if entry.next_claim > now or (claimed and size > max_bytes):
                break
            if entry.nonce is not None:
                entry.attempts += entry.received
                entry.suspect |= entry.received
            entry.nonce, entry.received, entry.next_claim = nonce, False, now + lease
            entry.occurrence = entry.occurrence or nonce
            claimed.append(_claimed(entry))
        return Claim(claimed, now=now, next=self._head(topic), deadline=now + lease)

    async def settle(self, topic: str, settlements: Sequence[Settlement]) -> list[Verdict]:
        """See `TimerStore.settle`."""
        head = self._head(topic)
        verdicts = [self._settle(topic, settlement) for settlement in settlements]
        self._hint(topic, head)
        return verdicts

    def _settle(self, topic: str, settlement: Settlement) -> Verdict:
        entry, verdict = self._lease(topic, settlement.timer_id, settlement.nonce)
        if entry is None:
            return verdict
        now = self._clock()
        if settlement.verb in (Verb.ACK, Verb.REJECT):
            del self._entries(topic)[settlement.timer_id]
        elif settlement.verb is Verb.NACK:
            entry.attempts += 1
            entry.suspect = False
            if settlement.retry_after is not None:
                entry.next_claim = max(now + settlement.retry_after, entry.due)
        else:
            entry.attempts += entry.received or settlement.received
            entry.suspect = settlement.suspect
            entry.next_claim = max(now, entry.due)
        entry.nonce, entry.received = None, False
        return Verdict.OK

    async def extend(self, topic: str, extensions: Sequence[Extension], *, lease: int) -> list[Verdict]:
        """See `TimerStore.extend`."""
        verdicts = []
        for extension in extensions:
            entry, verdict = self._lease(topic, extension.timer_id, extension.nonce)
            verdicts.append(verdict)
            if entry is not None:
                entry.received |= extension.received
                entry.next_claim = max(entry.next_claim, self._clock() + lease)
        return verdicts

    async def watch(self, topic: str, woken: Callable[[int], None]) -> None:
        """See `WakeHints.watch`."""
        self._watchers[topic] = woken

    async def unwatch(self, topic: str) -> None:
        """See `WakeHints.unwatch`."""
        self._watchers.pop(topic, None)

    def _entries(self, topic: str) -> dict[str, _Entry]:
        return self._topics.setdefault(topic, {})

    def _order(self, topic: str) -> list[_Entry]:
        return sorted(self._entries(topic).values(), key=_place)

    def _head(self, topic: str) -> int | None:
        return min((entry.next_claim for entry in self._entries(topic).values()), default=None)

    def _hint(self, topic: str, before: int | None) -> None:
        after = self._head(topic)
        if topic in self._watchers and after is not None and (before is None or after < before):
            self._watchers[topic](after)

    def _lease(self, topic: str, timer_id: str, nonce: bytes) -> tuple[_Entry | None, Verdict]:
        entry = self._entries(topic).get(timer_id)
        if entry is None:
            return None, Verdict.GONE
        return (entry, Verdict.OK) if entry.nonce == nonce else (None, Verdict.STALE)

    def _stored(self, entry: _Entry, *, content: bool = False) -> StoredTimer:
        return StoredTimer(
            timer_id=entry.timer.timer_id,
            state=TimerState.LEASED if entry.nonce is not None else TimerState.PENDING,
            due=entry.due,
            next_claim=entry.next_claim,
            attempts=entry.attempts,
            payload=entry.timer.payload if content else b"",
            headers=entry.timer.headers if content else {},
            content_type=entry.timer.content_type if content else "",
        )

    async def list(self, topic: str, *, state: TimerState | None, limit: int, cursor: str) -> Page:
        """See `TimerStore.list`."""
        order = self._order(topic)
        if cursor:
            instant, _, timer_id = cursor.partition(" ")
            if not instant.isdecimal():
                raise InvalidField("page_token", "is not one that a page gave; start without one")
            order = [e for e in order if _place(e) > (int(instant), timer_id.encode())]
        page = order[:limit]
        timers = [timer for timer in map(self._stored, page) if state in (None, timer.state)]
        last = page[-1] if len(order) > limit else None
        return Page(timers, f"{last.next_claim} {last.timer.timer_id}" if last else "")


def _place(entry: _Entry) -> tuple[int, bytes]:
    return entry.next_claim, entry.timer.timer_id.encode()


def _claimed(entry: _Entry) -> ClaimedTimer:
    occurrence = entry.occurrence.hex() if entry.occurrence else ""
    return ClaimedTimer(
        timer_id=entry.timer.timer_id,
        payload=entry.timer.payload,
        headers=entry.timer.headers,
        content_type=entry.timer.content_type,
        due=entry.due,
        attempt=entry.attempts + 1,
        occurrence_id=f"{entry.timer.timer_id}/{occurrence}",
        suspect=entry.suspect,
    )
