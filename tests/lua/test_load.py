"""bulk/guarded_load, bulk/retire, bulk/marks, and the marks of other scripts: what a sweep relies on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from relay.core.errors import StoreFull, WrongKeyType
from relay.core.instants import LATEST, SECOND
from relay.core.journal import RecordKind
from relay.core.outcomes import Limits, Reason, Verb
from relay.core.partitions import Layout
from relay.core.timers import Change, Changed, Condition, NewTimer
from relay.store.bulk.columns_call import LoadRows, PackedRows
from relay.store.bulk.store import BATCH
from relay.store.bulk.sweeping import Fenced, HeldMarks, Loaded, Marks, StalePlan
from relay.store.codec import lease_record
from relay.store.codec.lease_record import LEASED
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, ENVELOPE, State, alone, own, record, score

DUE = NOW + SECOND
HELD = record(LEASED, own(NOW + LEASE), due=score(NOW), nonce=N1)
INSERTED = Loaded(batches=1, loaded=1)
ALIVE = Loaded(batches=1, live=1)
TOUCHED = Loaded(batches=1, marked=1)
LENGTHS = [(1, 0), (31, 31), (32, 32), (255, 255), (256, 256), (2, 65_535), (2, 65_536)]
"""Of ids and envelopes."""


async def test_new_rows_are_inserted(bench: Bench) -> None:
    """Timeline and payload, and no record; one of a taken away timer goes."""
    marks = bench.open()
    bench.put_record("a", lease_record._RECORD.pack(*HELD))
    assert bench.load(marks, "a", "b", due=DUE) == Loaded(batches=1, loaded=2)
    assert bench.state() == State(dict.fromkeys("ab", score(DUE)), dict.fromkeys("ab", ENVELOPE), {})


async def test_texts_of_any_length(bench: Bench) -> None:
    """Where the length needs another form in MessagePack, and bytes that are no text."""
    marks = bench.open()
    stored = {
        f"{n:0{width}d}": bytes(n % 256 for n in range(size)) for n, (width, size) in enumerate(LENGTHS)
    }
    rows = PackedRows.of(LoadRows(0, list(stored), [DUE] * len(stored), list(stored.values()), [10]))
    bench.loading.load(marks, rows)
    bench.loading.flush()
    assert bench.state() == State(dict.fromkeys(stored, score(DUE)), stored, {})


async def test_a_batch_of_the_largest_size(bench: Bench) -> None:
    """As many as a call takes, and what lives among them."""
    marks = bench.open()
    ids = [f"timer-{n}" for n in range(BATCH)]
    bench.put(ids[7], score(NOW))
    assert bench.load(marks, *ids, due=DUE) == Loaded(batches=1, loaded=BATCH - 1, live=1)
    assert len(bench.state().payloads) == BATCH


async def test_a_part_of_a_batch(bench: Bench) -> None:
    """What is new beside what lives: its own due time and payload, and no record of before."""
    marks = bench.open()
    bench.put("b", own(NOW + LEASE), HELD, stored=b"newer")
    bench.put_record("c", lease_record._RECORD.pack(*HELD))
    rows = PackedRows.of(LoadRows(0, ["a", "b", "c"], [DUE, DUE + 1, DUE + 2], [b"1", b"2", b"3"], [10]))
    bench.loading.load(marks, rows)
    bench.loading.flush()
    timeline = {"a": score(DUE), "b": own(NOW + LEASE), "c": score(DUE + 2)}
    assert bench.state() == State(timeline, {"a": b"1", "b": b"newer", "c": b"3"}, {"b": HELD})


async def test_a_batch_is_loaded_once(bench: Bench) -> None:
    """Again it answers the same, and what has been removed meanwhile, by a foreign worker too, stays away."""
    marks = bench.open()
    assert bench.load(marks, "a") == INSERTED
    bench.raw.zrem(bench.timeline, "a")
    bench.raw.hdel(bench.payloads, "a")
    assert bench.load(marks, "a") == Loaded(batches=1, loaded=1, again=1)
    assert bench.state() == EMPTY


async def test_batches_and_plans_are_apart(bench: Bench) -> None:
    """The ledger of one batch says nothing of another, nor of the same batch in the next plan."""
    marks = bench.open()
    bench.load(marks, "a", batch=1)
    assert bench.load(marks, "b", batch=2) == INSERTED
    assert bench.load(bench.open(plan="2"), "c", batch=1) == INSERTED


async def test_stagings_are_apart(bench: Bench) -> None:
    """A copy of a store, whose plan has the number of one that a killed sweep of the other has left open."""
    left = bench.open(plan="1", driver="killed")._replace(staging="x")
    bench.load(left, "a")
    bench.loading.open(bench.topic, "1", "killed", lock=0, ttl=3600, epoch="e", store="s")
    marks = bench.open(plan="1", driver="restore")._replace(staging="y")
    assert not bench.loading.skip(marks, 0)
    assert bench.load(marks, "b") == INSERTED
    assert bench.loading.skip(marks, 0)


async def test_what_lives_is_left_alone(bench: Bench) -> None:
    """Its due time, payload and lease stay."""
    bench.put("a", own(NOW + LEASE), HELD, stored=b"newer")
    assert bench.load(bench.open(), "a") == ALIVE
    assert bench.state() == alone("a", own(NOW + LEASE), HELD, stored=b"newer")


async def test_a_full_redis_takes_nothing_of_a_batch(bench: Bench) -> None:
    """The batch is refused whole, and is loaded later."""
    marks = bench.open()
    bench.put("x", own(NOW + LEASE), HELD)
    with bench.full(), pytest.raises(StoreFull):
        bench.load(marks, "a", "b")
    assert bench.state() == alone("x", own(NOW + LEASE), HELD)
    assert bench.load(marks, "a", "b") == Loaded(batches=1, loaded=2)


async def test_an_unknown_script_is_sent(bench: Bench) -> None:
    """After SCRIPT FLUSH with calls under way, each batch is loaded once."""
    marks = bench.open()
    bench.raw.script_flush()
    for batch in range(5):
        bench.loading.load(marks, PackedRows.of(LoadRows(batch, [f"t{batch}"], [DUE], [ENVELOPE], [10])))
    bench.loading.flush()
    assert bench.loading.done == Loaded(batches=5, loaded=5)
    assert len(bench.state().timeline) == 5


async def test_rows_that_expire(bench: Bench) -> None:
    """They have a record from the start, and the score that explains it, as if scheduled."""
    marks = bench.open()
    ids, due, ends = "abcd", range(DUE, DUE + 4), [None, DUE + SECOND, None, DUE + 2 * SECOND]
    rows = PackedRows.of(LoadRows(0, ids, due, [ENVELOPE] * 4, [10], ends))
    bench.loading.load(marks, rows)
    bench.loading.flush()
    loaded = bench.state()
    assert set(loaded.leases) == {"b", "d"}
    bench.raw.delete(*bench.keys[:3])
    timers = [NewTimer(*each) for each in zip(ids, [b"payload"] * 4, due, strict=True)]
    timers = [each._replace(expires=end) for each, end in zip(timers, ends, strict=True)]
    await bench.store.schedule(bench.topic, timers)
    assert bench.state() == loaded


async def test_every_digit_of_a_due_time(bench: Bench) -> None:
    """Scores are those of timeline/schedule.lua, to the microsecond and the year 9999."""
    marks = bench.open()
    for n, due in enumerate((NOW + 1, 9_007_199_254_740_993, LATEST - 1)):
        bench.load(marks, "a", batch=n, due=due)
        (found,) = bench.state().timeline.values()
        bench.raw.delete(*bench.keys[:3])
        await bench.store.schedule(bench.topic, [NewTimer("a", b"payload", due=due)])
        assert bench.state() == alone("a", found)
        bench.raw.delete(*bench.keys[:3])


async def test_an_earlier_head_is_hinted(bench: Bench) -> None:
    """Sleeping relays are told of an earlier first timer, and of no later one."""
    marks = bench.open()
    with bench.listening() as ear:
        bench.load(marks, "a", batch=0, due=DUE)
        bench.load(marks, "b", batch=1, due=DUE + 1)
        assert ear.heard() == [score(DUE)]


async def test_a_wrong_type(bench: Bench) -> None:
    """Nothing is loaded beside somebody else's data; and nobody ends timers beside marks that are none."""
    marks = bench.open()
    bench.raw.set(bench.payloads, "x")
    with pytest.raises(WrongKeyType):
        bench.load(marks, "a")
    bench.raw.delete(bench.payloads, bench.marks)
    bench.put("a", score(NOW))
    bench.raw.set(bench.marks, "x")
    with pytest.raises(WrongKeyType):
        await bench.store.cancel(bench.topic, ["a"])
    assert bench.state() == alone("a", score(NOW))


# ------------------------------------------------------------------------ what leaves a mark


async def end_by_ack(bench: Bench) -> None:
    await bench.claim(N1)
    await bench.settle("a", N1, Verb.ACK)


async def end_by_rejection(bench: Bench) -> None:
    await bench.claim(N1)
    await bench.settle("a", N1, Verb.REJECT, reason=Reason.REJECTED)


async def end_by_cancel(bench: Bench) -> None:
    assert await bench.store.cancel(bench.topic, ["a"]) == [Changed(Change.CANCELLED)]


async def end_in_a_claim(bench: Bench) -> None:
    await bench.claim(N1)
    await bench.extend("a", N1, received=True)
    bench.now += LEASE + 1
    await bench.claim(N2, limits=Limits(max_attempts=1))


@pytest.mark.parametrize("end", [end_by_ack, end_by_rejection, end_by_cancel, end_in_a_claim])
async def test_what_ended_stays_away(bench: Bench, end: Callable[[Bench], Awaitable[None]]) -> None:
    """It ended while the plan was open: its row does not bring it back."""
    marks = bench.open()
    bench.put("a", score(NOW))
    await end(bench)
    assert not bench.state().timeline
    assert bench.load(marks, "a") == TOUCHED
    assert not bench.state().timeline


async def test_a_cancel_of_what_is_not_loaded_yet(bench: Bench) -> None:
    """The cancel finds nothing in Redis, and still the row is over."""
    marks = bench.open()
    assert await bench.store.cancel(bench.topic, ["a"]) == [Changed(Change.GONE)]
    assert bench.load(marks, "a", "b") == Loaded(batches=1, loaded=1, marked=1)
    assert list(bench.state().timeline) == ["b"]


async def test_a_refused_cancel_leaves_no_mark(bench: Bench) -> None:
    """Its condition did not hold: the timer lives on, and when a foreign worker took it, no word of ours
    stands."""
    marks = bench.open()
    bench.put("a", score(NOW))
    assert await bench.store.cancel(bench.topic, ["a"], Condition(due=NOW + 1)) == [Changed(Change.UNCHANGED)]
    bench.raw.zrem(bench.timeline, "a")
    assert bench.load(marks, "a") == INSERTED


async def test_a_late_end_leaves_no_mark(bench: Bench) -> None:
    """A handler's ACK after newer rows took the timer's place: its token is worth nothing, and they stand."""
    marks = bench.open()
    bench.put("a", score(NOW))
    await bench.claim(N1)
    assert bench.retire("a", version=20) == 1
    await bench.settle("a", N1, Verb.ACK)
    assert bench.load(marks, "a", version=20) == INSERTED


async def test_a_return_leaves_no_mark(bench: Bench) -> None:
    """NACK and RESCHEDULE end nothing."""
    bench.open()
    bench.put("a", score(NOW))
    await bench.claim(N1)
    await bench.settle("a", N1, Verb.NACK, retry_after=SECOND)
    assert not bench.raw.hexists(bench.marks, "any")


async def test_without_a_plan_there_are_no_marks(bench: Bench) -> None:
    """Nothing is written where no sweep is under way."""
    bench.put("a", score(NOW))
    await end_by_ack(bench)
    await bench.store.cancel(bench.topic, ["b"])
    assert not bench.raw.exists(bench.marks)


async def test_a_full_redis_drains_beside_a_plan(bench: Bench) -> None:
    """Marks come behind a delete: ends are written whatever maxmemory says."""
    marks = bench.open()
    bench.put("a", score(NOW))
    with bench.full():
        await end_by_ack(bench)
        await bench.store.cancel(bench.topic, ["b"])
    assert bench.load(marks, "a", "b") == Loaded(batches=1, marked=2)


# ---------------------------------------------------------------------------------- retire


async def test_retired_timers_are_gone(bench: Bench) -> None:
    """Whatever their state; what is not there is no matter."""
    bench.put("a", score(NOW))
    bench.put("b", own(NOW + LEASE), HELD)
    bench.put("d", score(NOW))
    assert bench.retire("a", "b", "c") == 2
    assert bench.state() == alone("d", score(NOW))


async def test_older_rows_are_held_off(bench: Bench) -> None:
    """What a newer write has retired is not loaded from an older row, and is from its own or one newer
    still."""
    marks = bench.open()
    bench.retire("a", "b", "c", version=20)
    assert bench.load(marks, "a", batch=1, version=19) == TOUCHED
    assert bench.load(marks, "b", batch=2, version=20) == INSERTED
    assert bench.load(marks, "c", batch=3, version=21) == INSERTED


async def test_a_late_older_retirement(bench: Bench) -> None:
    """Of two writes the newer one's word stands, whichever retires last."""
    marks = bench.open()
    bench.retire("a", version=21)
    bench.retire("a", version=20)
    assert bench.load(marks, "a", version=20) == TOUCHED


async def test_versions_of_each_row(bench: Bench) -> None:
    """A batch may hold rows of several writes."""
    marks = bench.open()
    bench.retire("a", "b", "c", version=20)
    rows = PackedRows.of(LoadRows(0, ["a", "b", "c"], [DUE] * 3, [ENVELOPE] * 3, [19, 20, 3]))
    bench.loading.load(marks, rows)
    bench.loading.flush()
    assert list(bench.state().timeline) == ["b"]


async def test_a_mark_before_the_retirement(bench: Bench) -> None:
    """The timer was delivered, and then a newer row took its place: the row stands. What comes later
    counts."""
    marks = bench.open()
    for timer_id in "ab":
        await bench.store.cancel(bench.topic, [timer_id])
    bench.retire("a", "b", version=20)
    await bench.store.cancel(bench.topic, ["b"])
    assert bench.load(marks, "a", "b", version=20) == Loaded(batches=1, loaded=1, marked=1)
    assert list(bench.state().timeline) == ["a"]


async def test_a_fenced_writer_removes_nothing(bench: Bench) -> None:
    """A sweep has finished the write in its place, and loaded its rows."""
    bench.loading.may_retire(Layout(bench.topic), 20, "slow")
    bench.loading.may_retire(Layout(bench.topic), 20, "sweep")
    bench.put("a", score(NOW))
    with pytest.raises(Fenced):
        bench.loading.retire(bench.topic, 20, "slow", ["a"])
    bench.loading.has_retired(Layout(bench.topic), 20)
    with pytest.raises(Fenced):
        bench.loading.retire(bench.topic, 20, "sweep", ["a"])
    assert bench.state() == alone("a", score(NOW))


# ----------------------------------------------------------------------------------- marks


async def test_lost_marks_stop_the_load(bench: Bench) -> None:
    """Redis came back without them: nothing is loaded under new ones, however they are named."""
    marks = bench.open(epoch="one")
    bench.load(marks, "a", batch=0)
    bench.raw.delete(bench.marks)
    with pytest.raises(StalePlan):
        bench.load(marks, "b", batch=1)
    assert bench.open(epoch="two").epoch == "two"
    with pytest.raises(StalePlan):
        bench.load(marks, "b", batch=1)
    assert list(bench.state().timeline) == ["a"]


async def test_another_plan_has_the_marks(bench: Bench) -> None:
    """What the one before it has not loaded by then it loads no more; what was noted stays noted."""
    marks = bench.open(plan="1")
    await bench.store.cancel(bench.topic, ["a"])
    following = bench.open(plan="2", epoch="other")
    with pytest.raises(StalePlan):
        bench.load(marks, "a", "b")
    assert following.epoch == marks.epoch
    assert bench.load(following, "a", "b") == Loaded(batches=1, loaded=1, marked=1)


async def test_one_driver_at_a_time(bench: Bench) -> None:
    """Another may take the marks over once the first has not kept them; then the first has lost them."""

    def open_by(driver: str) -> str | HeldMarks:
        return bench.loading.open(
            bench.topic, "1", driver, lock=SECOND, ttl=60, epoch=driver, store="s", place="/cold"
        )

    def keep_by(driver: str) -> bool:
        return bench.loading.keep(Layout(bench.topic), "1", driver, lock=SECOND, ttl=60)

    assert open_by("a") == "a"
    bench.now += SECOND // 4
    assert open_by("b") == HeldMarks(750_000, "1", "/cold")
    assert keep_by("a")
    assert not keep_by("b")
    bench.now += SECOND
    assert open_by("b") == "a", "the marks live on"
    assert not keep_by("a")
    assert not bench.loading.close(Layout(bench.topic), "1", "a")
    assert bench.raw.exists(bench.marks)
    bench.now += SECOND
    assert not keep_by("a"), "what was lost stays lost, also when nobody keeps it"
    assert bench.loading.close(Layout(bench.topic), "1", "b")
    assert not bench.raw.exists(bench.marks)


def open_other(bench: Bench, *, take_over: bool = False) -> str | HeldMarks:
    """Open the topic's marks for a plan of another store, whose number is the same."""
    return bench.loading.open(
        bench.topic, "1", "o", lock=SECOND, ttl=60, epoch="theirs", store="other", take_over=take_over
    )


async def test_one_store_at_a_time(bench: Bench) -> None:
    """A plan that nobody keeps is its store's still, whoever of that goes on with it; a sweep of another is
    told of it, and has its turn when it is done."""
    bench.loading.open(bench.topic, "1", "d", lock=SECOND, ttl=60, epoch="e", store="s", place="/cold")
    await bench.store.cancel(bench.topic, ["a"])
    assert open_other(bench, take_over=True) == HeldMarks(SECOND, "1", "/cold"), "it is kept"
    bench.now += SECOND
    assert open_other(bench) == HeldMarks(0, "1", "/cold")
    marks = bench.open(plan="2", driver="e")
    assert bench.load(marks, "a", "b") == Loaded(batches=1, loaded=1, marked=1), "what was noted stays noted"
    assert bench.loading.close(Layout(bench.topic), "2", "e")
    assert open_other(bench) == "theirs"


async def test_a_plan_that_is_given_up(bench: Bench) -> None:
    """Nothing is loaded by it any more, and what it noted was for its rows: the other begins with nothing."""
    marks = bench.open()
    await bench.store.cancel(bench.topic, ["a"])
    bench.now += 15 * SECOND
    assert open_other(bench, take_over=True) == "theirs"
    with pytest.raises(StalePlan):
        bench.load(marks, "b")
    theirs = marks._replace(epoch="theirs")
    assert bench.load(theirs, "a", "b") == Loaded(batches=1, loaded=2)


async def test_abandoned_marks_go(bench: Bench) -> None:
    """Nobody pays for a sweep that is never run again: nothing more is noted, and nothing loaded by them.
    Each look at them puts their end off. They have no time to live, which an eviction could cut short."""

    def open_at(epoch: str) -> Marks:
        told = bench.loading.open(bench.topic, "1", "d", lock=SECOND, ttl=60, epoch=epoch, store="s")
        return Marks(Layout(bench.topic), str(told), "1")

    marks = open_at("e")
    assert bench.loading.keep(Layout(bench.topic), "1", "d", lock=SECOND, ttl=600)
    bench.now += 600 * SECOND - 1
    await bench.store.cancel(bench.topic, ["a"])
    assert bench.load(marks, "a", "b") == Loaded(batches=1, loaded=1, marked=1)
    assert bench.raw.ttl(bench.marks) == -1
    noted = bench.raw.hlen(bench.marks)
    bench.now += 1
    await bench.store.cancel(bench.topic, ["b"])
    bench.retire("c")
    assert bench.raw.hlen(bench.marks) == noted
    with pytest.raises(StalePlan):
        bench.load(marks, "b", batch=1)
    assert not bench.loading.keep(Layout(bench.topic), "1", "d", lock=SECOND, ttl=600)
    assert not bench.raw.exists(bench.marks)
    assert open_at("other").epoch == "other"


# --------------------------------------------------------------------------------- journal


async def test_the_journal_has_what_is_loaded_and_retired(bench: Bench) -> None:
    """A loaded timer is scheduled, one that lived and was retired is cancelled, and a second load adds
    nothing."""
    bench.keep = 1000
    marks = bench.open()
    bench.put("live", score(DUE))
    for _ in range(2):
        bench.load(marks, "live", "a", due=DUE)
    assert bench.retire("live", "gone") == 1
    noted = [(r.kind, r.timer_id, r.due) for batch in await bench.batches() for r in batch.records]
    assert noted == [(RecordKind.SCHEDULED, "a", DUE), (RecordKind.CANCELLED, "live", DUE)]
    assert bench.state() == alone("a", score(DUE))


async def test_a_journal_that_is_there_is_kept(bench: Bench) -> None:
    """Also where nobody told the load of it."""
    bench.keep = 1000
    await bench.store.schedule(bench.topic, [NewTimer("x", b"", due=DUE)])
    bench.keep = 0
    bench.load(bench.open(), "a", due=DUE)
    bench.keep = 1000
    assert [r.timer_id for batch in await bench.batches() for r in batch.records] == ["x", "a"]
