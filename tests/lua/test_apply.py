"""bulk/apply.lua: a stream's batch inserts each timer once, whatever became of it since."""

from __future__ import annotations

import time
from typing import Any

import pytest
from redis.exceptions import ResponseError

from relay.core.errors import StoreFull, WrongKeyType
from relay.core.instants import SECOND
from relay.core.journal import RecordKind
from relay.core.outcomes import Verb, Verdict
from relay.core.timers import Change, Changed, NewTimer
from relay.store.bulk.applying import BATCH, Applied, Applying, StaleBatch
from relay.store.bulk.columns_call import LoadRows, PackedRows, text_head
from relay.store.bulk.inserting import KEPT
from relay.store.bulk.store import BATCH as LARGEST
from relay.store.keys import KeyNames
from tests.worlds.scripts.asking import N1, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, ENVELOPE, State, alone, score

DUE = NOW + SECOND
LONG = "x" * 65


def apply(bench: Bench, *timer_ids: str, batch: int = 1, due: int = DUE, run: str = "r") -> Applied:
    """Apply one call's rows of a batch; what became of them."""
    rows = LoadRows(0, timer_ids, [due] * len(timer_ids), [ENVELOPE] * len(timer_ids), [])
    return apply_rows(bench, rows, batch=batch, run=run)


def apply_rows(bench: Bench, rows: LoadRows, *, batch: int = 1, run: str = "r") -> Applied:
    applying = Applying(bench.bulk, run, batch)
    applying.apply(bench.topic, PackedRows.of(rows))
    bench.bulk.flush()
    return applying.done


def entries(bench: Bench) -> set[bytes]:
    """What the ledger has besides its batch."""
    found: Any = bench.raw.hkeys(bench.ledger())
    return set(found) - {BATCH}


async def test_new_timers_are_inserted(bench: Bench) -> None:
    """The ledger has the batch and their ids, for seven days."""
    assert apply(bench, "a", LONG, batch=7) == Applied(2)
    assert bench.state() == State(
        dict.fromkeys(("a", LONG), score(DUE)), dict.fromkeys(("a", LONG), ENVELOPE), {}
    )
    assert bench.raw.hget(bench.ledger(), BATCH.decode()) == b"7"
    assert len(entries(bench)) == 2
    assert LONG.encode() not in entries(bench)
    assert KEPT - 60 < bench.raw.ttl(bench.ledger()) <= KEPT


async def test_what_was_delivered_stays_away(bench: Bench) -> None:
    """A batch that is run again inserts what it had not inserted, and nothing else, long ids included."""
    assert apply(bench, "a", LONG, due=NOW) == Applied(2)
    await bench.claim(N1)
    for name in ("a", LONG):
        assert await bench.settle(name, N1, Verb.ACK) is Verdict.OK
    assert apply(bench, "a", LONG, "b", due=NOW) == Applied(1, known=2)
    assert list(bench.state().timeline) == ["b"]


async def test_what_was_cancelled_or_moved_stays_so(bench: Bench) -> None:
    """The application's word is newer than the batch's."""
    apply(bench, "a", "b")
    assert await bench.store.cancel(bench.topic, ["a"]) == [Changed(Change.CANCELLED)]
    await bench.store.schedule(bench.topic, [NewTimer("b", b"payload", due=DUE + 5)])
    assert apply(bench, "a", "b") == Applied(known=2)
    assert bench.state() == alone("b", score(DUE + 5))


async def test_a_newer_batch_inserts_all_of_its_rows(bench: Bench) -> None:
    """Its row is a newer intent: it replaces what lives, and voids its lease. The ledger forgets the batch
    before, so it does not grow."""
    apply(bench, "a", "b", due=NOW)
    await bench.claim(N1)
    assert apply(bench, "a", "c", batch=2) == Applied(2)
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.STALE
    assert bench.state().timeline["a"] == score(DUE)
    assert entries(bench) == {b"a", b"c"}


async def test_an_older_batch_is_refused(bench: Bench) -> None:
    """The race: a task of a driver that was killed goes on when the next one has begun a newer batch. What it
    has inserted was delivered since, and is in no ledger any more."""
    apply(bench, "a", batch=9, due=NOW)
    await bench.claim(N1)
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.OK
    apply(bench, "b", batch=10)
    with pytest.raises(StaleBatch, match="batch 9 of the stream r comes behind batch 10: another driver"):
        apply(bench, "a", "c", batch=9)
    assert list(bench.state().timeline) == ["b"]
    assert entries(bench) == {b"b"}


async def test_streams_are_apart(bench: Bench) -> None:
    """The ledger of one says nothing of another."""
    apply(bench, "a", batch=9, run="r")
    assert apply(bench, "a", batch=1, run="s") == Applied(1)


async def test_a_batch_of_the_largest_size(bench: Bench) -> None:
    """As many rows as a call takes, some of them known; each has its own due time and payload."""
    ids = [f"timer-{n}" for n in range(LARGEST)]
    apply(bench, *ids[:2], due=NOW)
    rows = LoadRows(0, ids, [DUE + n for n in range(LARGEST)], [b"%d" % n for n in range(LARGEST)], [])
    assert apply_rows(bench, rows) == Applied(LARGEST - 2, known=2)
    state = bench.state()
    assert state.timeline[ids[1]] == score(NOW)
    assert state.timeline[ids[2]] == score(DUE + 2)
    assert (state.payloads[ids[0]], state.payloads[ids[-1]]) == (ENVELOPE, b"%d" % (LARGEST - 1))


@pytest.mark.parametrize("before", [False, True], ids=["first", "next"])
async def test_a_full_redis_takes_nothing(bench: Bench, before: bool) -> None:
    """Neither a timer nor an entry of the ledger, and the ledger of the batch before stands."""
    bench.bulk.register(bench.topic)
    if before:
        apply(bench, "old")
    was = bench.state()
    with bench.full(), pytest.raises(StoreFull):
        apply(bench, "a", "b", batch=2)
    assert bench.state() == was
    assert entries(bench) == ({b"old"} if before else set())
    assert apply(bench, "a", "b", batch=2) == Applied(2)


async def test_a_repeated_batch_on_a_full_redis(bench: Bench) -> None:
    """What the ledger has needs no room."""
    apply(bench, "a")
    with bench.full():
        assert apply(bench, "a") == Applied(known=1)


async def test_a_ledger_that_is_refused(bench: Bench) -> None:
    """Where its write fails, the timer may come once more and is not lost: it is inserted first."""
    user = f"user-{bench.topic}"
    bench.bulk.register(bench.topic)
    apply(bench, "old")
    bench.raw.execute_command("ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all", "-unlink")
    texts = (b"%d" % (DUE // SECOND), b"a", ENVELOPE)
    columns = [b"\x91" + text_head(len(text)) + text for text in texts]
    versions = [KeyNames().key(name, bench.topic) for name in ("even", "odd")]
    keys, until = (*bench.keys[:3], bench.ledger(), *versions, bench.marks), (int(time.time()) + 60) * SECOND
    try:
        with (
            bench.server.client(username=user, password="secret") as client,
            pytest.raises(ResponseError, match=r"permission|can't run this command"),
        ):
            client.eval(
                bench.texts["bulk/apply"], 7, *keys, until, "channel", KEPT, 2, "", 1, "", "", "", *columns
            )
    finally:
        bench.raw.execute_command("ACL", "DELUSER", user)
    assert bench.state().timeline["a"] == score(DUE)


@pytest.mark.parametrize("broken", ["timeline", "payloads", "leases", "ledger", "marks"])
async def test_a_wrong_type(bench: Bench, broken: str) -> None:
    """Nothing is inserted beside somebody else's data."""
    key = bench.ledger() if broken == "ledger" else getattr(bench, broken)
    bench.raw.rpush(key, "x")
    with pytest.raises(WrongKeyType):
        apply(bench, "a")
    assert bench.raw.lrange(key, 0, -1) == [b"x"]
    bench.raw.delete(key)
    assert (bench.state(), bench.raw.exists(bench.ledger())) == (EMPTY, 0)


async def test_an_earlier_head_is_hinted(bench: Bench) -> None:
    """Sleeping relays are told of an earlier first timer, and of no later one nor of one that was known."""
    with bench.listening() as ear:
        apply(bench, "a")
        apply(bench, "a", due=DUE - 1)
        apply(bench, "b", due=DUE + 1)
        assert ear.heard() == [score(DUE)]


async def test_the_journal_has_what_is_inserted(bench: Bench) -> None:
    """Once, with the lease and the due time of what was replaced."""
    bench.keep = 1000
    bench.put("old", score(NOW))
    await bench.claim(N1)
    for _ in range(2):
        apply(bench, "old", "a")
    noted = [r for batch in await bench.batches() for r in batch.records][1:]
    assert [(r.kind, r.timer_id, r.due, r.previous_due) for r in noted] == [
        (RecordKind.REPLACED, "old", DUE, NOW),
        (RecordKind.SCHEDULED, "a", DUE, 0),
    ]
