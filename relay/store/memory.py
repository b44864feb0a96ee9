"""Timers in a dictionary: the same contract without Redis, for tests and as a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from relay.core.errors import InvalidField
from relay.core.instants import LATEST
from relay.core.journal import NO_JOURNALS, JournalBatch, Journals, RecordKind
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
    one_by_one,
)
from relay.core.timers import (
    NO_CONDITION,
    Change,
    Claim,
    ClaimedTimer,
    ClaimedTimers,
    Condition,
    NewTimer,
    Page,
    Scheduled,
    StoredTimer,
    TimerState,
)
from relay.store.memory_journal import MemoryJournal

ENDS = {
    Verb.ACK: RecordKind.ACKED,
    Verb.NACK: RecordKind.NACKED,
    Verb.REJECT: RecordKind.DEAD,
    Verb.RESCHEDULE: RecordKind.RESCHEDULED,
    Verb.RELEASE: RecordKind.RELEASED,
}
"""What a settlement is in the journal."""


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
    claims: int = 0
    expires: int | None = None


class MemoryStore:
    """A `TimerStore` whose "now" is `clock()` (microseconds); `journals` says which topics have a journal."""

    def __init__(self, clock: Callable[[], int], *, journals: Journals = NO_JOURNALS) -> None:
        self._clock = clock
        self._journal = MemoryJournal(journals)
        self._note = self._journal.note
        self._topics: dict[str, dict[str, _Entry]] = {}
        self._watchers: dict[str, Callable[[int], None]] = {}

    async def ping(self) -> None:
        """Always alive."""

    async def schedule(
        self, topic: str, timers: Sequence[NewTimer], *, max_waiting: int = 0
    ) -> list[Scheduled]:
        """See `TimerStore.schedule`."""
        now = self._clock()
        dues = [now + (timer.delay or 0) if timer.due is None else timer.due for timer in timers]
        if any(due > LATEST for due in dues):
            raise InvalidField("delay", "ends after the year 9999; give a shorter one")
        head = self._head(topic)
        results = [self._put(topic, timer, due, max_waiting) for timer, due in zip(timers, dues, strict=True)]
        self._journal.append(topic, now)
        self._hint(topic, head)
        return results

    def _put(self, topic: str, timer: NewTimer, due: int, max_waiting: int) -> Scheduled:
        entries = self._entries(topic)
        there = entries.get(timer.timer_id)
        if there is not None:
            change = Change.UNCHANGED if timer.create else _refusal(timer.condition, there)
            if change is not None:
                return Scheduled(there.due, change)
        elif timer.condition != NO_CONDITION:
            return Scheduled(None, Change.GONE)
        elif max_waiting and len(entries) >= max_waiting:
            return Scheduled(None, Change.FULL)
        expires = timer.expires
        if timer.expires_after is not None:
            expires = min(due + timer.expires_after, LATEST)
        entries[timer.timer_id] = _Entry(timer, due, due, expires=expires)
        facts = {"due": due, "expires": expires or 0}
        if there is None:
            self._note(RecordKind.SCHEDULED, timer.timer_id, **facts)
        else:
            nonce = there.nonce or b""
            self._note(RecordKind.REPLACED, timer.timer_id, nonce=nonce, previous_due=there.due, **facts)
        return Scheduled(due, Change.REPLACED if there else Change.CREATED)

    async def cancel(
        self, topic: str, timer_ids: Sequence[str], condition: Condition = NO_CONDITION
    ) -> list[Change]:
        """See `TimerStore.cancel`."""
        changes = [self._cancel(topic, timer_id, condition) for timer_id in timer_ids]
        self._journal.append(topic, self._clock())
        return changes

    def _cancel(self, topic: str, timer_id: str, condition: Condition) -> Change:
        entry = self._entries(topic).get(timer_id)
        if entry is None:
            return Change.GONE
        change = _refusal(condition, entry)
        if change is None:
            del self._entries(topic)[timer_id]
            self._note(RecordKind.CANCELLED, timer_id, nonce=entry.nonce or b"", due=entry.due)
        return change or Change.CANCELLED

    async def run(self, topic: str, timer_ids: Sequence[str]) -> list[Change]:
        """See `TimerStore.run`."""
        head = self._head(topic)
        changes = [self._run(self._entries(topic).get(timer_id)) for timer_id in timer_ids]
        self._journal.append(topic, self._clock())
        self._hint(topic, head)
        return changes

    def _run(self, entry: _Entry | None) -> Change:
        if entry is None:
            return Change.GONE
        if entry.nonce is not None:
            return Change.IN_FLIGHT
        entry.next_claim = self._clock()
        previous, entry.due = entry.due, min(entry.due, entry.next_claim)
        self._note(RecordKind.RUN, entry.timer.timer_id, previous_due=previous, **_standing(entry))
        return Change.RUN

    async def get(self, topic: str, timer_id: str) -> StoredTimer | None:
        """See `TimerStore.get`."""
        entry = self._entries(topic).get(timer_id)
        return self._stored(entry, content=True) if entry else None

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
        """See `TimerStore.claim`."""
        now = self._clock()
        claimed: list[ClaimedTimer] = []
        deaths: list[tuple[str, str]] = []
        size = 0
        for entry in self._order(topic)[:limit]:
            size += len(entry.timer.payload)
            if entry.next_claim > now or (claimed and size > max_bytes):
                break
            lapsed, received = entry.nonce or b"", entry.received
            if lapsed:
                entry.attempts += received
                entry.suspect |= received
            entry.nonce, entry.received = None, False
            reason = Reason.EXPIRED if _expired(entry, now) else _fate(entry, now, limits)
            if reason is not None:
                self._die(topic, entry, reason, lapsed, received)
                deaths.append((entry.timer.timer_id, reason.value))
                continue
            entry.nonce, entry.next_claim = nonce, now + lease
            entry.claims += 1
            entry.occurrence = entry.occurrence or nonce
            claimed.append(_claimed(entry))
            self._note(
                RecordKind.CLAIMED,
                entry.timer.timer_id,
                nonce=nonce,
                occurrence=entry.occurrence,
                received=received,
                **_standing(entry),
            )
        self._journal.append(topic, now)
        return Claim(
            ClaimedTimers.of(claimed),
            now=now,
            next=self._head(topic),
            deadline=now + lease,
            deaths=tuple(deaths),
        )

    async def settle(
        self,
        topic: str,
        settlements: Sequence[Settlement],
        *,
        acknowledged: Sequence[Acknowledged] = (),
        limits: Limits = NO_LIMITS,
    ) -> list[Settled]:
        """See `TimerStore.settle`. The dead are not kept."""
        head = self._head(topic)
        settled = [
            self._settle(topic, settlement, limits) for settlement in one_by_one(settlements, acknowledged)
        ]
        self._journal.append(topic, self._clock())
        self._hint(topic, head)
        return settled

    def _settle(self, topic: str, settlement: Settlement, limits: Limits) -> Settled:
        timer_id, nonce, verb = settlement.timer_id, settlement.nonce, settlement.verb
        entry, verdict = self._lease(topic, timer_id, nonce, ENDS[verb])
        if entry is None:
            return verdict
        if verb is Verb.ACK:
            del self._entries(topic)[timer_id]
            self._note(RecordKind.ACKED, timer_id, nonce=nonce)
            return Verdict.OK
        if verb is Verb.REJECT:
            entry.attempts += 1
            received = settlement.reason is not Reason.UNREADABLE
            return self._die(topic, entry, settlement.reason, nonce, received)
        if verb is Verb.RESCHEDULE:
            self._again(topic, entry, settlement)
            return Verdict.OK
        counts = self._retry(entry, settlement)
        reason = _fate(entry, entry.next_claim, limits) if counts else None
        if reason is not None:
            return self._die(topic, entry, reason, nonce, received=True)
        self._note(ENDS[verb], timer_id, nonce=nonce, received=counts, **_standing(entry))
        return Verdict.OK

    def _die(self, topic: str, entry: _Entry, reason: Reason, nonce: bytes, received: bool) -> Reason:
        """`nonce` of its last lease; `received`: whether that was."""
        del self._entries(topic)[entry.timer.timer_id]
        facts = {**_standing(entry), "score": 0}
        if reason is Reason.EXPIRED:
            facts["expires"] = entry.expires
        else:
            facts["reason"] = reason.value
        self._note(
            RecordKind.EXPIRED if reason is Reason.EXPIRED else RecordKind.DEAD,
            entry.timer.timer_id,
            nonce=nonce,
            occurrence=entry.occurrence or b"",
            received=received,
            **facts,
        )
        return reason

    def _retry(self, entry: _Entry, settlement: Settlement) -> bool:
        """Make it due again; answers whether that was an attempt."""
        now, after = self._clock(), settlement.retry_after
        if settlement.verb is Verb.NACK:
            counts, entry.suspect = True, False
            if after is not None:
                entry.next_claim = max(now + after, entry.due)
        else:
            counts, entry.suspect = entry.received or settlement.received, settlement.suspect
            entry.claims -= settlement.unsent and entry.claims > 0
            entry.next_claim = max(now + (after or 0 if counts else 0), entry.due)
        entry.attempts += counts
        entry.nonce, entry.received = None, False
        return counts

    def _again(self, topic: str, entry: _Entry, settlement: Settlement) -> None:
        again = settlement.again
        assert again is not None, "RESCHEDULE without a timer"
        due = again.due if again.due is not None else self._clock() + (again.delay or 0)
        due = min(due, LATEST)
        timer = again if settlement.new_content else entry.timer
        self._entries(topic)[settlement.timer_id] = _Entry(timer, due, due)
        nonce, previous = settlement.nonce, entry.due
        self._note(RecordKind.RESCHEDULED, settlement.timer_id, nonce=nonce, due=due, previous_due=previous)

    async def extend(self, topic: str, extensions: Sequence[Extension], *, lease: int) -> list[Verdict]:
        """See `TimerStore.extend`."""
        verdicts = []
        for extension in extensions:
            kind = RecordKind.RECEIVED if extension.received else RecordKind.EXTENDED
            entry, verdict = self._lease(topic, extension.timer_id, extension.nonce, kind)
            verdicts.append(verdict)
            if entry is not None:
                entry.received |= extension.received
                entry.next_claim = max(entry.next_claim, self._clock() + lease)
                self._note(kind, extension.timer_id, nonce=extension.nonce, score=entry.next_claim)
        self._journal.append(topic, self._clock())
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

    def _lease(
        self, topic: str, timer_id: str, nonce: bytes, kind: RecordKind
    ) -> tuple[_Entry | None, Verdict]:
        """The timer that is leased under this nonce; else the verdict. `kind` is what is refused then."""
        entry = self._entries(topic).get(timer_id)
        if entry is not None and entry.nonce == nonce:
            return entry, Verdict.OK
        refusal = RecordKind.STALE if entry else RecordKind.GONE
        self._note(refusal, timer_id, nonce=nonce, refused=kind)
        return None, Verdict.STALE if entry else Verdict.GONE

    def journal(self, topic: str) -> list[JournalBatch]:
        """What is kept of the topic's journal, the oldest first."""
        return list(self._journal.batches.get(topic, ()))

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


def _refusal(condition: Condition, entry: _Entry) -> Change | None:
    if condition.only_pending and entry.nonce is not None:
        return Change.IN_FLIGHT
    return Change.UNCHANGED if condition.due not in (None, entry.due) else None


def _expired(entry: _Entry, now: int) -> bool:
    return entry.expires is not None and now >= entry.expires


def _fate(entry: _Entry, instant: int, limits: Limits) -> Reason | None:
    """Why it is not to be delivered at an instant."""
    if entry.attempts >= limits.max_attempts:
        return Reason.ATTEMPTS
    if entry.claims >= limits.max_claims:
        return Reason.CLAIMS
    too_old = limits.max_age and entry.attempts and instant - entry.due > limits.max_age
    return Reason.AGE if too_old else None


def _standing(entry: _Entry) -> dict[str, Any]:
    """What the journal tells of a timer that stays."""
    return {
        "due": entry.due,
        "score": entry.next_claim,
        "attempts": entry.attempts,
        "claims": entry.claims,
        "suspect": entry.suspect,
    }


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
        claims=entry.claims,
    )
