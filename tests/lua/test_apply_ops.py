"""bulk/apply.lua: rows that cancel and move timers, beside those that schedule."""

from __future__ import annotations

import pytest

from relay.core.errors import StoreFull
from relay.core.instants import SECOND
from relay.core.journal import RecordKind
from relay.core.outcomes import Verb, Verdict
from relay.store.bulk.applying import Applied, Applying
from relay.store.bulk.columns_call import LoadRows, PackedRows
from tests.lua.test_apply import DUE, apply, entries
from tests.worlds.scripts.asking import LEASE, N1, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import ENVELOPE, own, score

NEW = b"new"


def change(
    bench: Bench, *rows: tuple[str, str, int], batch: int | None = 1, expires: tuple[int | None, ...] = ()
) -> Applied:
    """Apply rows of (op, timer_id, due) as one call."""
    ops, ids, due = zip(*rows, strict=True)
    envelopes = [NEW if op == "s" else b"" for op in ops]
    packed = PackedRows.of(LoadRows(0, ids, due, envelopes, [], expires))._replace(ops="".join(ops))
    applying = Applying(bench.bulk, "r", batch)
    applying.apply(bench.topic, packed)
    bench.bulk.flush()
    return applying.done


async def test_each_row_by_its_op(bench: Bench) -> None:
    """A move keeps the payload; a cancel leaves nothing; each has the due time of its row."""
    apply(bench, "gone", "moved", "replaced", batch=0)
    rows = ("c", "gone", 0), ("s", "new", DUE + 1), ("m", "moved", DUE + 2), ("s", "replaced", DUE + 3)
    assert change(bench, *rows) == Applied(scheduled=2, cancelled=1, moved=1)
    state = bench.state()
    assert state.timeline == {"new": score(DUE + 1), "moved": score(DUE + 2), "replaced": score(DUE + 3)}
    assert state.payloads == {"new": NEW, "moved": ENVELOPE, "replaced": NEW}
    assert state.leases == {}


async def test_what_is_not_there(bench: Bench) -> None:
    """It is neither cancelled nor moved. The batch has decided on it: run again, it does not move what has
    come since."""
    assert change(bench, ("m", "a", DUE), ("c", "b", 0)) == Applied()
    assert entries(bench) == {b"a", b"b"}
    bench.put("a", score(NOW))
    bench.put("b", score(NOW))
    assert change(bench, ("m", "a", DUE), ("c", "b", 0)) == Applied(known=2)
    assert bench.state().timeline == {"a": score(NOW), "b": score(NOW)}


async def test_a_payload_alone_goes_with_a_cancel(bench: Bench) -> None:
    """It is an orphan."""
    bench.put_payload("a")
    assert change(bench, ("c", "a", 0)) == Applied()
    assert bench.state().payloads == {}


@pytest.mark.parametrize("op", ["c", "m"])
async def test_a_delivery_under_way(bench: Bench, op: str) -> None:
    """Its lease is void: its ACK ends nothing that came behind it."""
    apply(bench, "a", due=NOW, batch=0)
    await bench.claim(N1)
    change(bench, (op, "a", DUE))
    change(bench, ("s", "a", own_due(bench)), batch=2)
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.STALE
    assert "a" in bench.state().timeline


def own_due(bench: Bench) -> int:
    """The instant at which a lease that was taken now ends, so that only its record could tell them apart."""
    return bench.now + LEASE


@pytest.mark.parametrize("op", ["c", "m"])
async def test_a_record_goes(bench: Bench, op: str) -> None:
    """What a relay knew of the timer before is not known of the next one under its id."""
    apply(bench, "a", due=NOW, batch=0)
    await bench.claim(N1)
    change(bench, (op, "a", DUE))
    assert bench.state().leases == {}


async def test_a_move_keeps_the_expiry(bench: Bench) -> None:
    """And nothing else of the record; without one there is none afterwards."""
    ends = DUE + 10 * SECOND
    rows = ("s", "a", DUE), ("s", "b", DUE)
    change(bench, *rows, expires=(ends, None))
    assert change(bench, ("m", "a", DUE + 5), ("m", "b", DUE + 5), batch=2) == Applied(moved=2)
    state = bench.state()
    assert set(state.leases) == {"a"}
    assert (state.leases["a"].expires, state.leases["a"].due) == (score(ends), score(DUE + 5))
    assert state.timeline == {"a": own(DUE + 5), "b": score(DUE + 5)}


async def test_a_batch_that_runs_again(bench: Bench) -> None:
    """Whatever its rows do, they do it once."""
    apply(bench, "a", "b", batch=0)
    rows = ("c", "a", 0), ("m", "b", DUE + 5), ("s", "d", DUE)
    change(bench, *rows)
    bench.put("a", score(NOW))
    bench.put("b", score(NOW))
    assert change(bench, *rows) == Applied(known=3)
    assert bench.state().timeline == {"a": score(NOW), "b": score(NOW), "d": score(DUE)}


async def test_without_a_ledger(bench: Bench) -> None:
    """A load without a run does all of it each time, and writes no ledger."""
    rows = ("s", "a", DUE), ("c", "b", 0)
    for _ in range(2):
        bench.put("b", score(NOW))
        assert change(bench, *rows, batch=None) == Applied(scheduled=1, cancelled=1)
    assert not bench.raw.exists(bench.ledger())


async def test_a_full_redis(bench: Bench) -> None:
    """It takes cancels, and lets nothing else begin."""
    apply(bench, "a", "b", batch=0)
    bench.bulk.register(bench.topic)
    before = bench.state()
    with bench.full():
        for rows in ([("c", "a", 0), ("s", "new", DUE)], [("c", "a", 0), ("m", "b", DUE + 1)]):
            with pytest.raises(StoreFull):
                change(bench, *rows)
            assert bench.state() == before
        assert change(bench, ("c", "a", 0)) == Applied(cancelled=1)
    assert list(bench.state().timeline) == ["b"]


async def test_a_sweep_is_told_of_a_cancel(bench: Bench) -> None:
    """While one is under way, also of a timer that is not here: it may rest in the cold store."""
    marks = bench.open()
    apply(bench, "a", batch=0)
    change(bench, ("c", "a", 0), ("c", "resting", 0), ("m", "other", DUE))
    loaded = bench.load(marks, "a", "resting", "other")
    assert (loaded.loaded, loaded.marked) == (1, 2)
    assert list(bench.state().timeline) == ["other"]


async def test_a_move_to_the_front_is_hinted(bench: Bench) -> None:
    """Sleeping relays would come too late."""
    apply(bench, "a", batch=0)
    with bench.listening() as ear:
        change(bench, ("m", "a", DUE - 1))
        assert ear.heard() == [score(DUE - 1)]


@pytest.mark.parametrize("beside", [False, True])
async def test_the_journal_has_what_was_changed(bench: Bench, beside: bool) -> None:
    """With the lease and the due time of what there was, in one entry, whether something is moved or not."""
    bench.keep = 1000
    bench.put("gone", score(NOW))
    await bench.claim(N1)
    bench.put("moved", score(NOW + 5))
    bench.put_payload("orphan")
    rows = [
        ("c", "gone", 0),
        ("m", "moved", DUE),
        ("c", "orphan", 0),
        ("c", "absent", 0),
        ("m", "absent2", DUE),
    ]
    change(bench, *(rows if beside else [row for row in rows if row[0] == "c"]))
    noted = (await bench.batches())[-1].records
    cancelled = [(RecordKind.CANCELLED, "gone", NOW, 0), (RecordKind.REPAIRED, "orphan", 0, 0)]
    moved = [(RecordKind.REPLACED, "moved", DUE, NOW + 5)] if beside else []
    assert [(r.kind, r.timer_id, r.due, r.previous_due) for r in noted] == [*cancelled, *moved]
    assert noted[0].nonce == N1
