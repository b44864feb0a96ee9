"""One life of a timer, delivered through a group of a stream's consumers: the same rules in another place.

A lease is an entry that is pending, and `claims` are how often the group delivered it, less those that were
never sent. Nobody replaces or cancels what is in the stream, and the group has no journal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from relay.core.instants import SECOND, from_score, to_score
from relay.core.life import Effect, Given, LifeEvent, LifeState, TimerLife, step
from relay.core.outcomes import Extension, Reason, Verdict
from relay.core.timers import NewTimer
from relay.store.dispatch.stream_groups import _PROOF
from tests.contract.life_cases import DUE, HOUR, KEPT, LIMITS, Happening, varied
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.desk import BILLING, Desk, Reader
from tests.worlds.scripts.states import ENVELOPE

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow

OCCURRENCE = b"9" * 16
ROUNDS = 12
"""Claims after which all that a claim finds was found: each looks at some thirty pending entries."""


class Begun(NamedTuple):
    """A timer in the stream before the event. Its lease is over, or has just begun."""

    number: int
    life: TimerLife
    deliveries: int
    over: bool

    @property
    def entry(self) -> str:
        return f"{DUE // 1000}-{self.number}"  # added when it was due

    @property
    def timer_id(self) -> str:
        return f"t{self.number}"


def _begun() -> Iterator[tuple[TimerLife, int, bool]]:
    states = [(LifeState.LEASED, False), (LifeState.LEASED, True), (LifeState.PENDING, False)]
    for (state, received), attempts, (deliveries, unsent), suspect, expires, over in product(
        states, (0, 2), ((1, 0), (5, 0), (6, 1)), (False, True), (0, NOW - SECOND, NOW + HOUR), (False, True)
    ):
        life = TimerLife(
            due=DUE,
            next_claim=NOW - SECOND if over else NOW + LEASE,
            state=state,
            attempts=attempts,
            claims=deliveries - unsent,
            received=received,
            suspect=suspect,
            expires=expires,
            nonce=N1 if state is LifeState.LEASED else b"",
            occurrence=OCCURRENCE,
            recorded=True,
        )
        yield life, deliveries, over


BEGUN = [Begun(n, *facts) for n, facts in enumerate(_begun(), 1)]
FLAGS = (False, True)


def _happenings() -> Iterator[Happening]:
    yield from varied(LifeEvent.CLAIM, nonce=[N2], lease=[LEASE], limits=LIMITS)
    for event in (LifeEvent.RECEIPT, LifeEvent.EXTEND):
        yield from varied(event, nonce=[N1, N2], lease=[2 * LEASE])
    yield from varied(LifeEvent.ACK, nonce=[N1, N2])
    yield from varied(LifeEvent.NACK, nonce=[N2], retry_after=[0])
    yield from varied(LifeEvent.NACK, retry_after=[0, HOUR], limits=LIMITS, error=["no; no"])
    told: dict[str, Any] = {"received": FLAGS, "broken": FLAGS, "suspect": FLAGS, "unsent": FLAGS}
    yield from varied(LifeEvent.RELEASE, **told, retry_after=[None, HOUR])
    yield from varied(LifeEvent.RELEASE, received=FLAGS, broken=FLAGS, limits=LIMITS)
    back = [DUE - HOUR]  # the clock stepped back, as a failover may let it
    yield from varied(LifeEvent.NACK, retry_after=[0], now=back)
    yield from varied(LifeEvent.RELEASE, received=FLAGS, now=back)
    reasons = [Reason.REJECTED, Reason.FAILED]
    yield from varied(LifeEvent.REJECT, nonce=[N1, N2], reason=reasons, limits=[KEPT], error=["no"])
    yield from varied(LifeEvent.RESCHEDULE, nonce=[N1, N2], due=[DUE, NOW + LEASE])


CASES = list(_happenings())
EVENTS = list(dict.fromkeys(case.event for case in CASES))


@pytest.fixture
async def reader(valkey: RunningServer, keyspace: Keyspace) -> AsyncIterator[Reader]:
    desk = Desk(valkey, keyspace.topic(), BILLING)
    yield desk.reader()
    await desk.close()


def keys_of(reader: Reader) -> tuple[str, str]:
    """The retries of a group, and what is known of its entries."""
    return reader.desk.keys_of(reader.group)


def seed(reader: Reader, happening: Happening) -> None:
    """Write the timers as they stand, and the clock."""
    raw: Any = reader.desk.raw
    stream, group, me = reader.desk.stream, reader.group, reader.consumer
    retries, known = keys_of(reader)
    raw.delete(stream, retries, known, reader.desk.dead)
    reader.desk.now = happening.given.now
    with raw.pipeline(transaction=False) as pipe:
        for begun in BEGUN:
            life = begun.life
            entry: dict[str, Any] = {"timer_id": begun.timer_id, "due_time": repr(to_score(life.due))}
            entry["occurrence_id"] = f"{begun.timer_id}/{life.occurrence.hex()}"
            if life.expires:
                entry["expires"] = repr(to_score(life.expires))
            pipe.xadd(stream, {**entry, "__data__": ENVELOPE}, id=begun.entry)
        pipe.xgroup_create(stream, group, "0")
        pipe.xreadgroup(group, me, {stream: ">"})
        for begun in BEGUN:
            life = begun.life
            idle = 0 if life.state is LifeState.PENDING or not begun.over else 2 * LEASE // 1000
            pipe.xclaim(
                *(stream, group, me, 0, [begun.entry]),
                idle=idle,
                retrycount=begun.deliveries,
                justid=True,
            )
            unsent = begun.deliveries - life.claims
            told = f"{life.attempts};{life.received:d};{life.suspect:d};{unsent};"
            waits = life.state is LifeState.PENDING
            pipe.hset(known, begun.entry, told + str(begun.deliveries if waits else 0))
            if waits:
                pipe.zadd(retries, {begun.entry: to_score(life.next_claim)})
        pipe.execute()


class Found(NamedTuple):
    """A timer of a group as Redis has it; `counts` are attempts, claims, received, suspect."""

    state: LifeState
    next_claim: int | None
    counts: tuple[int, int, bool, bool]


def found(reader: Reader) -> dict[str, Found]:
    """All that the group has under way, by entry; without those whose life begins anew."""
    raw: Any = reader.desk.raw
    retries, known = keys_of(reader)
    waiting = {name.decode(): from_score(at) for name, at in raw.zrange(retries, 0, -1, withscores=True)}
    told = {name.decode(): each.decode() for name, each in raw.hgetall(known).items() if each[:1] != b"D"}
    pending = raw.xpending_range(reader.desk.stream, reader.group, "-", "+", 10_000)
    there = {}
    for each in pending:
        entry = each["message_id"].decode()
        attempts, received, suspect, unsent, _ = map(int, told.pop(entry, "0;0;0;0;0").split(";"))
        state = LifeState.PENDING if entry in waiting else LifeState.LEASED
        counts = (attempts, each["times_delivered"] - unsent, bool(received), bool(suspect))
        there[entry] = Found(state, waiting.get(entry), counts)
    assert not told, "something is known of an entry that is not pending"
    return there


def as_found(life: TimerLife) -> Found:
    """What the model has of it. Redis itself keeps the end of a lease, as idle time."""
    next_claim = life.next_claim if life.state is LifeState.PENDING else None
    return Found(life.state, next_claim, (life.attempts, life.claims, life.received, life.suspect))


async def asked(reader: Reader, happening: Happening) -> list[Verdict | Reason | None]:
    """Bring the event to all timers; what is answered of each."""
    event, given, source, topic = happening.event, happening.given, reader.source, reader.desk.topic
    if event is LifeEvent.CLAIM:
        told: dict[str, Verdict | Reason] = {}
        for _ in range(ROUNDS):
            claim = await reader.claim(limit=500, limits=given.limits, max_bytes=1 << 30)
            told |= dict.fromkeys(claim.timers.timer_ids, Verdict.OK)
            told |= {timer_id: Reason(reason) for timer_id, reason in claim.deaths}
        return [told.get(begun.timer_id) for begun in BEGUN]
    proofs = [proof(begun, right=given.nonce == N1) for begun in BEGUN]
    if event in (LifeEvent.RECEIPT, LifeEvent.EXTEND):
        extensions = [Extension("", each, event is LifeEvent.RECEIPT) for each in proofs]
        return [*await source.extend(topic, extensions, lease=given.lease)]
    settlements = [
        happening.settlement(begun.timer_id, each, NewTimer(begun.timer_id, b"", given.due))
        for begun, each in zip(BEGUN, proofs, strict=True)
    ]
    return [*await source.settle(topic, settlements, limits=given.limits)]


def proof(begun: Begun, *, right: bool) -> bytes:
    return _PROOF.pack(DUE // 1000, begun.number, begun.deliveries + (not right))


def letters(reader: Reader) -> dict[str, tuple[Any, ...]]:
    """The dead: reason, attempts, claims, due time, instant, occurrence, error."""
    raw: Any = reader.desk.raw
    read = {}
    for _, each in raw.xrange(reader.desk.dead):
        assert each[b"group"] == reader.group.encode()
        read[each[b"timer_id"].decode()] = (
            *(each[b"reason"].decode(), int(each[b"attempts"]), int(each[b"claims"])),
            *(
                from_score(float(each[b"due"])),
                int(each[b"died"]),
                each[b"occurrence"],
                each[b"error"].decode(),
            ),
        )
    return read


def letter_of(effect: Effect, given: Given) -> tuple[Any, ...] | None:
    life, answer = effect.after, effect.answer
    if life is None or not isinstance(answer, Reason):
        return None
    counts = answer.value, life.attempts, life.claims
    return *counts, life.due, given.now, life.occurrence, effect.error


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.value)
async def test_a_group(reader: Reader, event: LifeEvent) -> None:
    """The scripts of a stream do what the model says."""
    for happening in (case for case in CASES if case.event is event):
        seed(reader, happening)
        answers = await asked(reader, happening)
        there, dead, reborn = found(reader), letters(reader), rescheduled(reader)
        wrong = [
            f"{begun.life}, delivered {begun.deliveries} times\n    {happening}\n"
            f"    found  {got}\n    wanted {want}"
            for begun, answer in zip(BEGUN, answers, strict=True)
            if (
                got := (
                    answer,
                    there.get(begun.entry),
                    dead.get(begun.timer_id),
                    reborn.get(begun.timer_id),
                )
            )
            != (want := wanted(begun, happening))
        ]
        assert not wrong, f"{len(wrong)} of {len(BEGUN)} differ:\n" + "\n".join(wrong[:3])


def wanted(begun: Begun, happening: Happening) -> tuple[Any, ...]:
    """Answer, standing, letter and new due time, by the model."""
    effect = step(begun.life, happening.event, happening.given)
    after = effect.after
    if after is None or after.state is LifeState.DEAD:
        return effect.answer, None, letter_of(effect, happening.given), None
    if not after.occurrence:  # a new life, beside the stream
        return effect.answer, None, None, after.due
    return effect.answer, as_found(after), None, None


def rescheduled(reader: Reader) -> dict[str, int]:
    """Timers whose life begins anew for this group, and when."""
    raw: Any = reader.desk.raw
    retries, known = keys_of(reader)
    waiting = {name: from_score(at) for name, at in raw.zrange(retries, 0, -1, withscores=True)}
    anew = {name for name, each in raw.hgetall(known).items() if each[:1] == b"D"}
    return {f"t{name.decode().partition('-')[2]}": at for name, at in waiting.items() if name in anew}
