"""The promoter's pace, the choice of a source, and what tidying says, on a clock of their own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import pytest

from relay.core.dispatch import Dispatch, DispatchState, Promotion, StreamPolicy, Tidied
from relay.core.errors import StoreError, StoreUnavailable, WrongKeyType
from relay.core.outcomes import ClaimRequest, Verdict
from relay.core.policy import Policies, TopicPolicy
from relay.core.ports import Stores, TopicStore
from relay.core.timers import Claim, ClaimedTimer, ClaimedTimers
from relay.engine.claiming.promoter import Promoter
from relay.engine.claiming.timetable import PAUSED_POLL, Timetable
from relay.engine.delivery.dispatcher import Dispatcher
from relay.engine.delivery.lease_keeper import LeaseKeeper
from relay.engine.delivery.leases import Lease, Leases
from relay.engine.delivery.session import Session
from relay.engine.redis_health import REFUSED_WAIT, RedisHealth
from relay.engine.upkeep.tidier import INTERVAL, Tidier
from relay.store.one_place import OnePlace
from tests.worlds.engine.doubles import Counts
from tests.worlds.engine.fake_clock import EPOCH, FakeClock, settle

TOPIC = "t"
LIST = TopicPolicy(dispatch=Dispatch.LIST, max_polling_interval=5.0)


@dataclass
class Timeline:
    """Due times, and who else takes them: `Promotions` for one topic."""

    clock: FakeClock
    dues: list[int] = field(default_factory=list)
    rivals: bool = False
    paused_until: int | None = None
    failure: Exception | None = None
    calls: list[float] = field(default_factory=list)
    tidied: Tidied = field(default_factory=Tidied)
    nonces: set[bytes] = field(default_factory=set)

    async def promote(self, topic: str, *, limit: int, nonce: bytes) -> Promotion:
        assert nonce not in self.nonces
        self.nonces.add(nonce)
        self.calls.append(self.clock.now())
        if self.failure is not None:
            raise self.failure
        now = self.clock.server()
        if self.paused_until is not None and now < self.paused_until:
            return Promotion(0, now, min(self.dues, default=None), paused_until=self.paused_until)
        due = sorted(each for each in self.dues if each <= now)[:limit]
        for each in due:
            self.dues.remove(each)
        late = [] if self.rivals else [(now - each) / 1e6 for each in due]
        return Promotion(0 if self.rivals else len(due), now, min(self.dues, default=None), lateness=late)

    async def tidy(self, topic: str) -> Tidied:
        if self.failure is not None:
            raise self.failure
        return self.tidied

    async def state(self, topic: str) -> DispatchState:
        return DispatchState(Dispatch.LIST)


@contextmanager
def calls(timeline: Timeline) -> Iterator[list[float]]:
    """The calls made within, as seconds since its begin."""
    begin, before = timeline.clock.now(), len(timeline.calls)
    found: list[float] = []
    yield found
    found += [round(at - begin, 6) for at in timeline.calls[before:]]


@dataclass
class Stage:
    clock: FakeClock
    timeline: Timeline
    promoter: Promoter
    counts: Counts


@pytest.fixture
async def stage() -> Any:
    """A promoter that runs, after its first call."""
    clock, counts = FakeClock(), Counts()
    timeline = Timeline(clock)
    numbers = iter(range(10_000))

    async def ping() -> None:
        if isinstance(timeline.failure, StoreUnavailable):
            raise timeline.failure

    link = RedisHealth(OnePlace(ping), clock, counts, lambda: 0.5)
    timetable = Timetable(LIST, clock, lambda: 0.5)
    promoter = Promoter(TOPIC, timetable, timeline, link, counts, lambda: next(numbers).to_bytes(16, "big"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.run)
        tasks.start_soon(promoter.run)
        await settle()
        yield Stage(clock, timeline, promoter, counts)
        tasks.cancel_scope.cancel()


def at(clock: FakeClock, seconds: float) -> int:
    return clock.server() + round(seconds * 1e6)


async def test_it_sleeps_until_the_next_due_time(stage: Stage) -> None:
    """And then calls once; a hint of an earlier timer wakes it for that."""
    with calls(stage.timeline) as made:
        stage.timeline.dues = [at(stage.clock, 2.0), at(stage.clock, 1.0)]
        stage.promoter.due_at(at(stage.clock, 2.0))
        stage.promoter.due_at(at(stage.clock, 1.0))
        await stage.clock.advance(3.0)
    assert made == [1.0, 2.0]
    assert stage.counts.total["timers.promoted"] == 2
    assert stage.counts.latenesses == pytest.approx([0.0, 0.0], abs=0.001)


async def test_a_full_batch_is_followed_at_once(stage: Stage) -> None:
    with calls(stage.timeline) as made:
        stage.timeline.dues = [at(stage.clock, 0.0)] * 1_200
        stage.promoter.due_at(0)
        await stage.clock.advance(0.0)
    assert made == [0.0, 0.0, 0.0]
    assert stage.timeline.dues == []


async def test_what_nobody_told_of_is_found(stage: Stage) -> None:
    """After `max_polling_interval` at the latest."""
    with calls(stage.timeline) as made:
        stage.timeline.dues = [at(stage.clock, 0.1)]
        await stage.clock.advance(5.0)
    assert len(made) == 1
    assert stage.timeline.dues == []


async def test_who_loses_steps_back(stage: Stage) -> None:
    """Other relays are quicker, again and again: the floor grows, and jitters."""
    stage.timeline.rivals = True
    with calls(stage.timeline) as made:
        stage.timeline.dues = [at(stage.clock, 0.01 * n) for n in range(1, 500)]
        stage.promoter.due_at(stage.timeline.dues[0])
        await stage.clock.advance(4.0)
    assert 5 <= len(made) <= 20


async def test_a_pause_is_looked_at(stage: Stage) -> None:
    """It may be ended without a hint."""
    stage.timeline.dues = [EPOCH]
    stage.timeline.paused_until = at(stage.clock, 2.0)
    with calls(stage.timeline) as made:
        stage.promoter.due_at(0)
        await stage.clock.advance(2.0)
    assert made == [0.0, PAUSED_POLL, 2 * PAUSED_POLL, 2.0]
    assert stage.timeline.dues == []


async def test_it_waits_while_redis_is_away(stage: Stage) -> None:
    """No call but the link's pings; and it goes on by itself."""
    stage.timeline.failure = StoreUnavailable()
    stage.timeline.dues = [EPOCH]
    stage.promoter.due_at(0)
    await stage.clock.advance(30.0)
    assert len(stage.timeline.calls) <= 3
    stage.timeline.failure = None
    await stage.clock.advance(10.0)
    assert stage.timeline.dues == []


@pytest.mark.parametrize("failure", [WrongKeyType("a string"), ValueError("odd")])
async def test_a_refusal_is_said_once(
    stage: Stage, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """And tried again, whatever it is."""
    stage.timeline.failure = failure
    stage.promoter.due_at(0)
    with caplog.at_level(logging.ERROR), calls(stage.timeline) as made:
        await stage.clock.advance(3 * REFUSED_WAIT)
    assert len(made) >= 3
    assert caplog.messages == ["Redis refuses to promote"]
    stage.timeline.failure, stage.timeline.dues = None, [EPOCH]
    await stage.clock.advance(REFUSED_WAIT)
    assert stage.timeline.dues == []


class Named:
    """A source that says its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def claim(self, topic: str, request: ClaimRequest) -> Claim:
        return Claim(ClaimedTimers.of([]), 0, None, 0, orphans=(self.name,))

    async def claimed(self, topic: str, request: ClaimRequest, **_: Any) -> Claim:
        return await self.claim(topic, request)

    async def settle(self, topic: str, settlements: Any, **_: Any) -> Any:
        return self.name

    async def extend(self, topic: str, extensions: Any, **_: Any) -> Any:
        return self.name


async def test_a_source_for_each_topic() -> None:
    """Streams are delivered from their group, all else from the timeline."""
    own = {"fan": TopicPolicy(dispatch=Dispatch.STREAM, stream=StreamPolicy("g")), "list": LIST}
    nothing: Any = None
    stores = Stores(cast("Any", Named("timeline")), nothing, nothing, nothing, groups=Named("group"))
    policies = Policies(own=own)
    for topic, name in (("fan", "group"), ("list", "timeline"), ("other", "timeline")):
        assert cast("Named", stores.source(policies(topic))).name == name


class Extended(Named):
    """A source that remembers what was renewed."""

    proofs: list[bytes]

    async def extend(self, topic: str, extensions: Any, **_: Any) -> Any:
        self.proofs = [each.nonce for each in extensions]
        return [Verdict.OK] * len(extensions)


@dataclass
class Held:
    """Of the dispatcher what the keeper looks at."""

    held: list[tuple[Session, Lease]]

    def leases(self) -> list[tuple[Session, Lease]]:
        return self.held

    def sessions(self) -> set[Session]:
        return {session for session, _ in self.held}


async def test_entries_of_one_id_are_renewed_together() -> None:
    """A stream may hold a timer's id many times: each of its deliveries lives on its own."""
    clock, counts, source = FakeClock(), Counts(), Extended("group")
    session, now = Session([TOPIC], 10, clock), clock.now()
    timers = [
        ClaimedTimer("same", b"", {}, "", EPOCH, 1, "same/1", proof=bytes([number]) * 20)
        for number in range(8)
    ]
    leases = Leases.of(
        TOPIC,
        ClaimedTimers.of(timers),
        b"n" * 16,
        deadline_time=EPOCH,
        deadline=now,
        silent_until=now + 600,
        epoch=now,
    )
    session.offer(leases)

    async def ping() -> None:
        """Redis answers."""

    held = cast("Dispatcher", Held([(session, lease) for lease in leases]))
    policy = TopicPolicy(dispatch=Dispatch.STREAM, stream=StreamPolicy("g"))
    places = OnePlace(ping)
    health = RedisHealth(places, clock, counts)
    keeper = LeaseKeeper(lambda _: source, places, held, lambda _: policy, health, clock, counts)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.renew)
        keeper.step()
        await settle()
        tasks.cancel_scope.cancel()
    assert source.proofs == [lease.nonce for lease in leases] == [timer.proof for timer in timers]


class Locks:
    """Of the registry only its locks."""

    def __init__(self) -> None:
        self.free = True

    async def lock(self, name: str, topic: str = "", *, ttl: int) -> bool:
        assert (name, topic) == ("tidy", TOPIC)
        assert 0 < ttl < INTERVAL * 1e6
        return self.free


def tidier(timeline: Timeline, locks: Locks, counts: Counts) -> Tidier:
    async def ping() -> None:
        """Redis answers."""

    health = RedisHealth(OnePlace(ping), timeline.clock, counts)
    return Tidier(timeline, cast("TopicStore", locks), [TOPIC], health, timeline.clock, counts, lambda: 0.5)


async def test_tidying_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """What was dropped or given back is said aloud; what nobody needed is counted."""
    timeline, counts = Timeline(FakeClock()), Counts()
    timeline.tidied = Tidied(trimmed=3, dropped=2, consumers=1, returned=4, deaths=(("a", "attempts"),))
    with caplog.at_level(logging.WARNING):
        await tidier(timeline, Locks(), counts).step()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "ERROR"]
    told = ("stream.trimmed", "list.returned", "stream.dropped", "timers.dead attempts")
    assert [counts.total[name] for name in told] == [3, 4, 2, 1]


async def test_one_relay_tidies() -> None:
    timeline, counts, locks = Timeline(FakeClock()), Counts(), Locks()
    timeline.tidied, locks.free = Tidied(trimmed=3), False
    await tidier(timeline, locks, counts).step()
    assert counts.total["stream.trimmed"] == 0


@pytest.mark.parametrize("failure", [StoreUnavailable(), StoreError("no"), ValueError("odd")])
async def test_tidying_survives(failure: Exception) -> None:
    """Whatever goes wrong, the next round comes."""
    timeline, counts = Timeline(FakeClock()), Counts()
    timeline.failure = failure
    each = tidier(timeline, Locks(), counts)
    await each.step()
    timeline.failure, timeline.tidied = None, Tidied(trimmed=1)
    await each.step()
    assert counts.total["stream.trimmed"] == 1
