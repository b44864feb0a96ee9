"""bulk/replace.lua: a batch takes the place of what lives."""

from __future__ import annotations

import pytest

from relay.core.errors import StoreFull, StoreRefused, WrongKeyType
from relay.core.instants import SECOND
from relay.core.journal import RecordKind
from relay.core.outcomes import Verb, Verdict
from relay.core.timers import NewTimer
from relay.store.bulk.columns_call import LoadRows, PackedRows
from relay.store.bulk.store import BATCH
from relay.store.codec import lease_record
from relay.store.codec.lease_record import LEASED
from tests.worlds.scripts.asking import LEASE, N1, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, ENVELOPE, State, alone, own, record, score

DUE = NOW + SECOND
HELD = record(LEASED, own(NOW + LEASE), due=score(NOW), nonce=N1)


async def test_what_lives_is_replaced(bench: Bench) -> None:
    """Beside what is new. A relay that delivers it at the moment has a token that is worth nothing."""
    bench.put("a", score(NOW), stored=b"old")
    await bench.claim(N1)
    bench.replace("a", "b", due=DUE)
    assert bench.state() == State(dict.fromkeys("ab", score(DUE)), dict.fromkeys("ab", ENVELOPE), {})
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.STALE
    assert list(bench.state().timeline) == ["a", "b"]


async def test_a_record_that_was_left_behind(bench: Bench) -> None:
    """It goes, though its timer was taken away."""
    bench.put_record("a", lease_record._RECORD.pack(*HELD))
    bench.replace("a", due=DUE)
    assert bench.state() == alone("a", score(DUE))


async def test_the_same_as_by_schedule(bench: Bench) -> None:
    """Scores, envelopes, records of what expires; ids that live, due times of all centuries."""
    rows = [
        ("a", DUE + 1, b"1", None),
        ("b", DUE + 7, b"2", DUE + SECOND),
        ("\u00e9", 1, b"", 0),
        ("c", DUE, b"4", None),
        ("d", 253_402_300_799_000_000, b"6", 253_402_300_799_000_000),
        ("e", 0, b"7", None),
    ]
    states = []
    for replacing in (True, False):
        await bench.store.schedule(bench.topic, [NewTimer(name, b"old", due=1) for name in ("a", "b", "z")])
        await bench.claim(N1, limit=2)
        if replacing:
            names, dues, bodies, ends = zip(*rows, strict=True)
            stored = [ENVELOPE.replace(b"payload", body) for body in bodies]
            bench.replace_rows(LoadRows(0, names, dues, stored, [], ends))
        else:
            timers = [NewTimer(name, body, due=due, expires=end) for name, due, body, end in rows]
            await bench.store.schedule(bench.topic, timers)
        states.append(bench.state())
        bench.raw.delete(*bench.keys[:3])
    assert states[0] == states[1]


async def test_a_batch_of_the_largest_size(bench: Bench) -> None:
    """Each has its own due time and payload."""
    ids = [f"timer-{n}" for n in range(BATCH)]
    bench.put(ids[3], score(NOW))
    bench.replace_rows(LoadRows(0, ids, range(DUE, DUE + BATCH), [b"%d" % n for n in range(BATCH)], []))
    state = bench.state()
    assert state.timeline == {name: score(DUE + n) for n, name in enumerate(ids)}
    assert state.payloads == {name: b"%d" % n for n, name in enumerate(ids)}


async def test_a_full_redis_takes_nothing(bench: Bench) -> None:
    """Neither the new timers nor the record of the one that lives."""
    bench.put("a", own(NOW + LEASE), HELD)
    bench.bulk.register(bench.topic)
    with bench.full(), pytest.raises(StoreFull):
        bench.replace("a", "b")
    assert bench.state() == alone("a", own(NOW + LEASE), HELD)


async def test_a_full_redis_takes_no_entry(bench: Bench) -> None:
    """Where there is a journal it is refused first."""
    bench.keep = 1000
    bench.replace("a", due=DUE)
    before, noted = bench.state(), await bench.batches()
    with bench.full(), pytest.raises(StoreFull):
        bench.replace("a", "b", due=DUE + 1)
    assert (bench.state(), await bench.batches()) == (before, noted)


async def test_a_score_that_is_none(bench: Bench) -> None:
    """It is refused with nothing written."""
    columns = PackedRows.of(LoadRows(0, ["a"], [DUE], [ENVELOPE], []))._replace(scores=b"\xa1x")
    bench.bulk.replace(bench.topic, columns)
    with pytest.raises(StoreRefused):
        bench.bulk.flush()
    assert bench.state() == EMPTY


@pytest.mark.parametrize("broken", ["timeline", "payloads", "leases", "journal"])
async def test_a_wrong_type(bench: Bench, broken: str) -> None:
    """It is named, and nothing is written beside somebody else's data."""
    key = getattr(bench, broken)
    bench.keep = 1000
    bench.raw.rpush(key, "x")
    with pytest.raises(WrongKeyType, match=f"{key} holds a list, not a"):
        bench.replace("a")
    assert bench.raw.lrange(key, 0, -1) == [b"x"]
    bench.raw.delete(key)
    assert (bench.state(), bench.raw.exists(bench.journal)) == (EMPTY, 0)


async def test_an_earlier_head_is_hinted(bench: Bench) -> None:
    """Sleeping relays are told of an earlier first timer, and of no later one."""
    with bench.listening() as ear:
        bench.replace("a", due=DUE)
        bench.replace("b", due=DUE)
        bench.replace("c", due=DUE + 1)
        bench.replace("c", due=DUE - 1)
        assert ear.heard() == [score(DUE), score(DUE - 1)]


async def test_the_journal_has_both(bench: Bench) -> None:
    """New timers, and those that were replaced with their lease and due time before."""
    bench.keep = 1000
    bench.put("old", score(NOW))
    await bench.claim(N1)
    rows = LoadRows(0, ["old", "a"], [DUE, DUE + 1], [ENVELOPE] * 2, [], [None, DUE + 9])
    bench.replace_rows(rows)
    noted = [r for batch in await bench.batches() for r in batch.records][1:]
    assert [(r.kind, r.timer_id, r.due, r.previous_due, r.expires) for r in noted] == [
        (RecordKind.REPLACED, "old", DUE, NOW, 0),
        (RecordKind.SCHEDULED, "a", DUE + 1, 0, DUE + 9),
    ]
    assert noted[0].nonce == N1
