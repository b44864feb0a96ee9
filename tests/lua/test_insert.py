"""bulk/insert.lua: a run inserts each timer once, whatever became of it since."""

from __future__ import annotations

import time

import pytest
from redis.exceptions import ResponseError

from relay.core.errors import StoreFull, StoreRefused, WrongKeyType
from relay.core.instants import SECOND
from relay.core.journal import RecordKind
from relay.core.outcomes import Verb, Verdict
from relay.core.timers import KEEP_EXISTING, Change, Changed, NewTimer, OnConflict
from relay.store.bulk import inserting
from relay.store.bulk.columns_call import LoadRows, PackedRows, text_head
from relay.store.bulk.inserting import KEPT, Inserted, Inserting, RunLedger
from relay.store.bulk.store import BATCH
from relay.store.codec import lease_record
from relay.store.codec.lease_record import LEASED
from tests.worlds.scripts.asking import LEASE, N1, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, ENVELOPE, State, alone, own, record, score

DUE = NOW + SECOND
HELD = record(LEASED, own(NOW + LEASE), due=score(NOW), nonce=N1)
LONG = "x" * 65


async def test_new_timers_are_inserted(bench: Bench) -> None:
    """They have a score and a payload and no record; the ledger has their ids, for seven days."""
    bench.put_record("a", lease_record._RECORD.pack(*HELD))
    assert bench.insert("a", "b", due=DUE) == Inserted(2)
    assert bench.state() == State(dict.fromkeys("ab", score(DUE)), dict.fromkeys("ab", ENVELOPE), {})
    assert bench.raw.smembers(bench.ledger()) == {b"a", b"b"}
    assert KEPT - 60 < bench.raw.ttl(bench.ledger()) <= KEPT


async def test_what_was_delivered_stays_away(bench: Bench) -> None:
    """A repeated run inserts what it had not inserted, and nothing else."""
    assert bench.insert("a", due=NOW) == Inserted(1)
    await bench.claim(N1)
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.OK
    assert bench.insert("a", "b", due=NOW) == Inserted(1, known=1)
    assert list(bench.state().timeline) == ["b"]


async def test_what_was_cancelled_or_moved_stays_so(bench: Bench) -> None:
    """The application's word is newer than the run's."""
    bench.insert("a", "b", due=DUE)
    assert await bench.store.cancel(bench.topic, ["a"]) == [Changed(Change.CANCELLED)]
    await bench.store.schedule(bench.topic, [NewTimer("b", b"payload", due=DUE + 5)])
    assert bench.insert("a", "b", due=DUE) == Inserted(known=2)
    assert bench.state() == alone("b", score(DUE + 5))


async def test_a_lease_of_this_runs_timer_stands(bench: Bench) -> None:
    """Repeated while a relay delivers the timer, the run does not void the delivery."""
    bench.insert("a", due=NOW)
    await bench.claim(N1)
    assert bench.insert("a", due=NOW) == Inserted(known=1)
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.OK


async def test_runs_are_apart(bench: Bench) -> None:
    """The ledger of one run says nothing of another, which replaces what lives, and voids its lease."""
    bench.insert("a", run="r", due=NOW)
    await bench.claim(N1)
    assert bench.insert("a", run="s", due=DUE) == Inserted(1)
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.STALE
    assert bench.state() == alone("a", score(DUE))


async def test_what_lives_is_spared(bench: Bench) -> None:
    """Where that is asked for. The run has decided on it: a repeated run does not bring it back."""
    bench.put("a", own(NOW + LEASE), HELD, stored=b"newer")
    assert bench.insert("a", "b", due=DUE, on_conflict=KEEP_EXISTING) == Inserted(1, alive=1)
    assert bench.state().of("a") == (own(NOW + LEASE), b"newer", HELD)
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.OK
    assert bench.insert("a", "b", due=DUE, on_conflict=KEEP_EXISTING) == Inserted(known=2)
    assert list(bench.state().timeline) == ["b"]


@pytest.mark.parametrize("on_conflict", [OnConflict.KEEP_EARLIEST, OnConflict.KEEP_LATEST])
async def test_which_row_stands(bench: Bench, on_conflict: OnConflict) -> None:
    """The one that is due earlier or later than what lives, which has its due time also under a lease; what
    lives stands if both are due at once. The run has decided on all of them."""
    ids = ("before", "same", "behind")
    for timer_id in ids:
        bench.put(timer_id, own(NOW + LEASE), HELD, stored=b"old")
    at = round(HELD.due * 1e6)
    rows = LoadRows(0, ids, [at - 1, at, at + 1], [b"new"] * 3, [])
    assert bench.insert_rows(rows, on_conflict=on_conflict) == Inserted(1, alive=2)
    wanted = {"before", "same", "behind"} - {
        "before" if on_conflict is OnConflict.KEEP_EARLIEST else "behind"
    }
    assert {name for name, stored in bench.state().payloads.items() if stored == b"old"} == wanted
    assert bench.state().leases.keys() == wanted
    assert bench.insert_rows(rows, on_conflict=on_conflict) == Inserted(known=3)


async def test_long_ids(bench: Bench) -> None:
    """The ledger has a digest of an id that is longer than 64 bytes; the timer has the id."""
    longest = LONG[1:]
    assert bench.insert(LONG, longest) == Inserted(2)
    assert bench.raw.smembers(bench.ledger()) == {
        longest.encode(),
        inserting.ledger_name(LONG.encode()),
    }
    assert bench.insert(LONG, longest) == Inserted(known=2)
    assert set(bench.state().timeline) == {LONG, longest}


async def test_a_batch_of_the_largest_size(bench: Bench) -> None:
    """As many as a call takes, some of them known; each has its own due time and payload."""
    ids = [f"timer-{n}" for n in range(BATCH)]
    bench.insert(*ids[:2], due=NOW)
    rows = LoadRows(0, ids, [DUE + n for n in range(BATCH)], [b"%d" % n for n in range(BATCH)], [])
    assert bench.insert_rows(rows) == Inserted(BATCH - 2, known=2)
    state = bench.state()
    assert state.timeline[ids[1]] == score(NOW)
    assert state.timeline[ids[2]] == score(DUE + 2)
    assert (state.payloads[ids[0]], state.payloads[ids[-1]]) == (ENVELOPE, b"%d" % (BATCH - 1))


async def test_timers_that_expire(bench: Bench) -> None:
    """They have a record from the start, and the score that explains it, as if they had been scheduled."""
    ids, due, ends = "abcd", range(DUE, DUE + 4), [None, DUE + SECOND, None, DUE + 2 * SECOND]
    bench.insert("a")
    rows = LoadRows(0, ids, due, [ENVELOPE] * 4, [], ends)
    assert bench.insert_rows(rows, run="s") == Inserted(4)
    inserted = bench.state()
    assert set(inserted.leases) == {"b", "d"}
    bench.raw.delete(*bench.keys[:3])
    timers = [NewTimer(*each) for each in zip(ids, [b"payload"] * 4, due, strict=True)]
    timers = [each._replace(expires=end) for each, end in zip(timers, ends, strict=True)]
    await bench.store.schedule(bench.topic, timers)
    assert bench.state() == inserted


async def test_a_full_redis_takes_nothing_of_a_batch(bench: Bench) -> None:
    """The ledger has no timer that was refused: the batch is inserted when there is room."""
    bench.bulk.register(bench.topic)
    with bench.full(), pytest.raises(StoreFull):
        bench.insert("a", "b")
    assert (bench.state(), bench.raw.exists(bench.ledger())) == (EMPTY, 0)
    assert bench.insert("a", "b") == Inserted(2)


async def test_a_full_redis_beside_a_lease(bench: Bench) -> None:
    """A batch that replaces a timer is refused before its record goes."""
    bench.put("a", own(NOW + LEASE), HELD)
    bench.bulk.register(bench.topic)
    with bench.full(), pytest.raises(StoreFull):
        bench.insert("a")
    assert bench.state() == alone("a", own(NOW + LEASE), HELD)


async def test_a_repeated_run_on_a_full_redis(bench: Bench) -> None:
    """What the ledger has needs no room."""
    bench.insert("a")
    with bench.full():
        assert bench.insert("a") == Inserted(known=1)


async def test_a_score_that_is_none(bench: Bench) -> None:
    """It is refused with nothing written, in the ledger neither."""
    columns = PackedRows.of(LoadRows(0, ["a"], [DUE], [ENVELOPE], []))._replace(scores=b"\xa1x")
    with pytest.raises(StoreRefused):
        insert(bench, columns)
    assert (bench.state(), bench.raw.exists(bench.ledger())) == (EMPTY, 0)


async def test_a_ledger_that_is_refused(bench: Bench) -> None:
    """Where SADD fails, the timer may come once more and is not lost: it is inserted before the ledger is
    written."""
    user = f"user-{bench.topic}"
    bench.bulk.register(bench.topic)
    bench.raw.execute_command("ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all", "-sadd")
    texts = (b"%d" % (DUE // SECOND), b"a", ENVELOPE)
    columns = [b"\x91" + text_head(len(text)) + text for text in texts]
    keys, until = (*bench.keys[:3], bench.ledger()), (int(time.time()) + 60) * SECOND
    try:
        with (
            bench.server.client(username=user, password="secret") as client,
            pytest.raises(ResponseError, match=r"permission|can't run this command"),
        ):
            client.eval(bench.texts["bulk/insert"], 4, *keys, until, "channel", KEPT, "", "", *columns)
    finally:
        bench.raw.execute_command("ACL", "DELUSER", user)
    assert bench.state() == alone("a", score(DUE))


@pytest.mark.parametrize("broken", ["timeline", "payloads", "leases", "ledger"])
async def test_a_wrong_type(bench: Bench, broken: str) -> None:
    """Nothing is inserted beside somebody else's data."""
    key = bench.ledger() if broken == "ledger" else getattr(bench, broken)
    bench.raw.rpush(key, "x")
    with pytest.raises(WrongKeyType):
        bench.insert("a")
    assert bench.raw.lrange(key, 0, -1) == [b"x"]
    bench.raw.delete(key)
    assert (bench.state(), bench.raw.exists(bench.ledger())) == (EMPTY, 0)


async def test_an_unknown_script_is_sent(bench: Bench) -> None:
    """After SCRIPT FLUSH with calls under way, each batch is inserted once."""
    bench.insert("t")
    bench.raw.script_flush()
    inserting = Inserting(bench.bulk, "r")
    for n in range(5):
        inserting.insert(bench.topic, PackedRows.of(LoadRows(0, [f"t{n}"], [DUE], [ENVELOPE], [])))
    inserting.flush()
    assert inserting.done == Inserted(5)
    assert len(bench.state().timeline) == 6


async def test_an_earlier_head_is_hinted(bench: Bench) -> None:
    """Sleeping relays are told of an earlier first timer, and of no later one nor of one that was known."""
    with bench.listening() as ear:
        bench.insert("a", due=DUE)
        bench.insert("a", due=DUE - 1)
        bench.insert("b", due=DUE + 1)
        assert ear.heard() == [score(DUE)]


async def test_the_journal_has_what_is_inserted(bench: Bench) -> None:
    """New timers, those that were replaced with their lease and due time before, and no known ones."""
    bench.keep = 1000
    bench.put("old", score(NOW))
    await bench.claim(N1)
    for _ in range(2):
        bench.insert("old", "a", due=DUE)
    noted = [r for batch in await bench.batches() for r in batch.records][1:]
    assert [(r.kind, r.timer_id, r.due, r.previous_due) for r in noted] == [
        (RecordKind.REPLACED, "old", DUE, NOW),
        (RecordKind.SCHEDULED, "a", DUE, 0),
    ]
    assert noted[0].nonce == N1


async def test_what_the_cold_store_was_told_of(bench: Bench) -> None:
    """It is not inserted; and what was inserted is nothing that the cold store was told of."""
    ledger = RunLedger(bench.bulk, "r")
    ledger.note_told(bench.topic, [b"a", LONG.encode()])
    assert 0 < bench.raw.ttl(bench.ledger()) <= KEPT
    assert bench.insert("a", "b", LONG) == Inserted(1, known=2)
    told = ledger.is_told(bench.topic, [b"a", b"b", LONG.encode()])
    assert told == [True, False, True]


def insert(bench: Bench, columns: PackedRows) -> None:
    run = Inserting(bench.bulk, "r")
    run.insert(bench.topic, columns)
    run.flush()
