"""Timers in a dictionary: the same contract without Redis, for tests and as a model.

`relay.core.life` decides what happens to a timer; this module looks timers up, keeps and lists them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from time import monotonic

from relay.core.errors import GivenUp, InvalidField
from relay.core.instants import LATEST
from relay.core.journal import NO_JOURNALS, JournalBatch, Journals
from relay.core.life import Effect, Given, LifeEvent, LifeState, TimerLife, step
from relay.core.outcomes import (
    NO_LIMITS,
    Again,
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
from relay.core.partitions import Layout, place_of
from relay.core.ports import ignore_call
from relay.core.timers import (
    NO_CONDITION,
    NO_CONTENT,
    Change,
    Changed,
    Claim,
    ClaimedTimer,
    ClaimedTimers,
    Condition,
    Content,
    NewTimer,
    Page,
    Scheduled,
    StoredTimer,
    TimerState,
)
from relay.store.memory_journal import MemoryJournal
from relay.store.one_place import OnePlace

ENDS = {verb: LifeEvent[verb.name] for verb in Verb}


@dataclass(slots=True)
class _Entry:
    timer_id: str
    content: Content
    life: TimerLife


class MemoryStore:
    """A `TimerStore` whose "now" is `clock()` (microseconds).

    `journals` says which topics have a journal. `died` is called for each death with topic, timer_id and
    effect. Dead timers are not kept.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        *,
        journals: Journals = NO_JOURNALS,
        died: Callable[[str, str, Effect], None] = lambda _topic, _timer_id, _effect: None,
    ) -> None:
        self._clock = clock
        self._journal = MemoryJournal(journals)
        self._died = died
        self._topics: dict[str, dict[str, _Entry]] = {}
        self._watchers: dict[str, Callable[[int], None]] = {}
        self._called: dict[str, Callable[[int], None]] = {}
        self.places = OnePlace(self.ping)

    async def ping(self) -> None:
        """Always alive."""

    async def schedule(
        self,
        topic: str,
        timers: Sequence[NewTimer],
        *,
        max_waiting: int = 0,
        deadlines: Sequence[float] = (),
    ) -> list[Scheduled]:
        """See `TimerStore.schedule`. Raises `InvalidField`."""
        over = _given_up(deadlines, len(timers))
        now = self._clock()
        dues = [_instant(timer, now) for timer in timers]
        if any(due > LATEST for due in dues):
            raise InvalidField("delay", "ends after the year 9999; give a shorter one")
        head = self._head(topic)
        results = [
            Scheduled(None, Change.GIVEN_UP) if late else self._put(topic, timer, now, due, max_waiting)
            for timer, due, late in zip(timers, dues, over, strict=True)
        ]
        self._journal.append(topic, now)
        self._hint(topic, head)
        return results

    def _put(self, topic: str, timer: NewTimer, now: int, due: int, max_waiting: int) -> Scheduled:
        given = Given(
            now=now,
            due=due,
            expires=_expiry(timer, due),
            intent=timer.intent,
            condition=timer.condition,
            occurrence=timer.occurrence,
            full=0 < max_waiting <= len(self._entries(topic)),
        )
        effect = self._step(topic, timer.timer_id, LifeEvent.SCHEDULE, given, Content.of(timer))
        assert isinstance(effect.answer, Change)
        there = effect.after.due if effect.after else None
        return Scheduled(due=there, change=effect.answer, delivery_under_way=effect.delivery_under_way)

    async def cancel(
        self,
        topic: str,
        timer_ids: Sequence[str],
        condition: Condition = NO_CONDITION,
        *,
        deadlines: Sequence[float] = (),
    ) -> list[Changed]:
        """See `TimerStore.cancel`."""
        over = _given_up(deadlines, len(timer_ids))
        there = [timer_id for timer_id, late in zip(timer_ids, over, strict=True) if not late]
        changes = iter(self._change(topic, there, LifeEvent.CANCEL, Given(condition=condition)))
        return [Changed(Change.GIVEN_UP, False) if late else next(changes) for late in over]

    async def run(self, topic: str, timer_ids: Sequence[str]) -> list[Changed]:
        """See `TimerStore.run`."""
        head = self._head(topic)
        changes = self._change(topic, timer_ids, LifeEvent.RUN, Given(now=self._clock()))
        self._hint(topic, head)
        return changes

    def _change(self, topic: str, timer_ids: Sequence[str], event: LifeEvent, given: Given) -> list[Changed]:
        effects = [self._step(topic, timer_id, event, given) for timer_id in timer_ids]
        self._journal.append(topic, self._clock())
        return [
            Changed(effect.answer, effect.delivery_under_way)
            for effect in effects
            if isinstance(effect.answer, Change)
        ]

    async def get(self, topic: str, timer_id: str, *, with_content: bool = True) -> StoredTimer | None:
        """See `TimerStore.get`."""
        entry = self._entries(topic).get(timer_id)
        return _stored(entry, content=with_content) if entry else None

    async def claim(self, topic: str, request: ClaimRequest) -> Claim:
        """See `TimerStore.claim`."""
        now = self._clock()
        given = Given(now=now, lease=request.lease, nonce=request.nonce, limits=request.limits)
        claimed: list[ClaimedTimer] = []
        deaths: list[tuple[str, str]] = []
        size = 0
        for entry in self._order(topic)[: request.limit]:
            timer_id = entry.timer_id
            size += len(entry.content.payload)
            if entry.life.next_claim > now - request.behind or (claimed and size > request.max_bytes):
                break
            effect = self._step(topic, timer_id, LifeEvent.CLAIM, given)
            if isinstance(effect.answer, Reason):
                deaths.append((timer_id, effect.answer.value))
            else:
                claimed.append(_claimed(entry))
        self._journal.append(topic, now)
        return Claim(
            timers=ClaimedTimers.of(claimed),
            now=now,
            next=self._head(topic),
            deadline=now + request.lease,
            deaths=tuple(deaths),
        )

    async def claimed(self, topic: str, request: ClaimRequest, *, since: int, until: int) -> Claim:
        """See `LeaseSource.claimed`."""
        now = self._clock()
        first, last = max(since + request.lease, now + 1), until + request.lease
        found = [
            entry
            for entry in self._order(topic)
            if entry.life.state is LifeState.LEASED
            and entry.life.nonce == request.nonce
            and first <= entry.life.next_claim <= last
        ]
        deadline = found[0].life.next_claim if found else now
        return Claim(ClaimedTimers.of(map(_claimed, found)), now=now, next=None, deadline=deadline)

    async def settle(
        self, topic: str, settlements: Sequence[Settlement], *, limits: Limits = NO_LIMITS
    ) -> list[Settled]:
        """See `TimerStore.settle`."""
        head, now = self._head(topic), self._clock()
        facts = [_facts(settlement, now, limits) for settlement in settlements]
        settled = [
            self._settle(topic, timer_id, settlement.ending, given)
            for settlement, given in zip(settlements, facts, strict=True)
            for timer_id in settlement.timer_ids
        ]
        self._journal.append(topic, now)
        self._hint(topic, head)
        return settled

    def _settle(self, topic: str, timer_id: str, ending: Ending, given: Given) -> Settled:
        content = ending.again.content if ending.again else None
        answer = self._step(topic, timer_id, ENDS[ending.verb], given, content).answer
        assert isinstance(answer, Settled)
        return answer

    async def extend(self, topic: str, extensions: Sequence[Extension], *, lease: int) -> list[Verdict]:
        """See `TimerStore.extend`."""
        now, verdicts = self._clock(), []
        for extension in extensions:
            event = LifeEvent.RECEIPT if extension.received else LifeEvent.EXTEND
            given = Given(now=now, nonce=extension.nonce, lease=lease)
            answer = self._step(topic, extension.timer_id, event, given).answer
            assert isinstance(answer, Verdict)
            verdicts.append(answer)
        self._journal.append(topic, now)
        return verdicts

    def _step(
        self, topic: str, timer_id: str, event: LifeEvent, given: Given, content: Content | None = None
    ) -> Effect:
        """Let an event happen to a timer; `content` is new, if there is any."""
        entries = self._entries(topic)
        entry = entries.get(timer_id)
        before = entry.life if entry else None
        if entry is not None and given.condition.content:
            given = replace(given, other_content=given.condition.content != _digest(entry.content))
        effect = step(before, event, given)
        if effect.after is None or effect.after.state is LifeState.DEAD:
            entries.pop(timer_id, None)
        elif entry is None:
            assert content is not None, "a timer without content"
            entries[timer_id] = _Entry(timer_id, content, effect.after)
        elif effect.after is not before:
            entry.life, entry.content = effect.after, content or entry.content
        if effect.record is not None:
            self._journal.note(effect.record._replace(timer_id=timer_id))
        if isinstance(effect.answer, Reason):
            self._died(topic, timer_id, effect)
        return effect

    async def watch(
        self, topic: str, woken: Callable[[int], None], called: Callable[[int], None] = ignore_call
    ) -> None:
        """See `WakeHints.watch`."""
        self._watchers[topic] = woken
        self._called[topic] = called

    async def unwatch(self, topic: str) -> None:
        """See `WakeHints.unwatch`."""
        self._watchers.pop(topic, None)
        self._called.pop(topic, None)

    async def call_for_help(self, topic: str, rank: int) -> None:
        """See `WakeHints.call_for_help`."""
        if topic in self._called:
            self._called[topic](rank)

    def _entries(self, topic: str) -> dict[str, _Entry]:
        return self._topics.setdefault(place_of(topic), {})

    def _order(self, topic: str) -> list[_Entry]:
        return sorted(self._entries(topic).values(), key=_place)

    def _head(self, topic: str) -> int | None:
        return min((entry.life.next_claim for entry in self._entries(topic).values()), default=None)

    def _hint(self, topic: str, before: int | None) -> None:
        after = self._head(topic)
        if topic in self._watchers and after is not None and (before is None or after < before):
            self._watchers[topic](after)

    def ids(self, topic: str) -> Collection[str]:
        """The ids of all timers of a topic, or of a partition of it."""
        return self._entries(topic).keys()

    def journal(self, topic: str) -> list[JournalBatch]:
        """What is kept of the topic's journal, the oldest first."""
        return list(self._journal.batches.get(topic, ()))

    def cursor_at(self, instant: int) -> str:
        """See `TimerStore.cursor_at`."""
        return f"{instant} "

    async def list(
        self,
        layout: Layout,
        *,
        state: TimerState | None,
        limit: int,
        cursor: str,
        max_bytes: int | None = None,
    ) -> Page:
        """See `TimerStore.list`. Raises `InvalidField`."""
        order = sorted(chain.from_iterable(map(self._order, layout.partitions)), key=_place)
        if cursor:
            instant, _, timer_id = cursor.partition(" ")
            if not instant.isdecimal():
                raise InvalidField("page_token", "is not one that a page gave; start without one")
            order = [e for e in order if _place(e) > (int(instant), timer_id.encode())]
        page = order[:limit]
        if max_bytes is not None:
            sizes = accumulate(len(entry.content.payload) for entry in page)
            page = page[: max(1, sum(size <= max_bytes for size in sizes))]
        timers = [_stored(entry, content=max_bytes is not None) for entry in page]
        timers = [timer for timer in timers if state in (None, timer.state)]
        last = page[-1] if len(order) > len(page) else None
        return Page(timers, f"{last.life.next_claim} {last.timer_id}" if last else "")


def _given_up(deadlines: Sequence[float], count: int) -> list[bool]:
    """Which items' callers have given them up. Raises `GivenUp` if that is so of all."""
    if not deadlines:
        return [False] * count
    now = monotonic()
    over = [deadline < now for deadline in deadlines]
    if all(over):
        raise GivenUp
    return over


def _instant(told: NewTimer | Again, now: int) -> int:
    return now + (told.delay or 0) if told.due is None else told.due


def _facts(settlement: Settlement, now: int, limits: Limits) -> Given:
    ending = settlement.ending
    return Given(
        now=now,
        nonce=settlement.nonce,
        limits=limits,
        due=min(_instant(ending.again, now), LATEST) if ending.again else 0,
        retry_after=ending.retry_after,
        received=ending.received,
        broken=ending.broken,
        suspect=ending.suspect,
        unsent=ending.unsent,
        reason=ending.reason,
        error=ending.error,
    )


def _expiry(timer: NewTimer, due: int) -> int:
    """When a timer expires; 0: never."""
    if timer.expires_after is not None:
        return min(due + timer.expires_after, LATEST)
    return 0 if timer.expires is None else max(timer.expires, 1)


def _place(entry: _Entry) -> tuple[int, bytes]:
    return entry.life.next_claim, entry.timer_id.encode()


def _stored(entry: _Entry, *, content: bool = False) -> StoredTimer:
    life = entry.life
    return StoredTimer(
        timer_id=entry.timer_id,
        state=TimerState.LEASED if life.state is LifeState.LEASED else TimerState.PENDING,
        due=life.due,
        next_claim=life.next_claim,
        attempts=life.attempts,
        **(entry.content if content else NO_CONTENT).fields(),
        digest=_digest(entry.content) if content else "",
    )


def _digest(content: Content) -> str:
    told = repr((content.payload, sorted(content.headers.items()), content.content_type))
    return hashlib.sha1(told.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()


def _claimed(entry: _Entry) -> ClaimedTimer:
    life = entry.life
    return ClaimedTimer(
        timer_id=entry.timer_id,
        **entry.content.fields(),
        due=life.due,
        attempt=life.attempts + 1,
        occurrence_id=f"{entry.timer_id}/{life.occurrence.hex()}",
        suspect=life.suspect,
        claims=life.claims,
    )
