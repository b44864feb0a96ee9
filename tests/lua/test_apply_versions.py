"""bulk/apply.lua: rows with versions, which come late, twice, or in another order than they were made."""

from __future__ import annotations

from typing import Any

import pytest

from relay.core.errors import StoreFull, WrongKeyType
from relay.core.instants import SECOND
from relay.core.outcomes import Verb, Verdict
from relay.store.bulk.applying import Applied, Applying
from relay.store.bulk.columns_call import LoadRows, PackedRows, each_version_text
from relay.store.keys import KeyNames
from tests.lua.test_apply import DUE, LONG
from tests.worlds.scripts.asking import N1, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import score

HOUR = 3600 * SECOND


def change(
    bench: Bench,
    *rows: tuple[str, str, int],
    due: int = DUE,
    batch: int | None = None,
    moves: tuple[int, ...] = (),
    remember: int = HOUR,
) -> Applied:
    """Apply rows of (op, timer_id, version) as one call; the payload of one that schedules is its version."""
    ops, ids, versions = zip(*rows, strict=True)
    envelopes = [b"%d" % version for version in versions]
    packed = PackedRows.of(LoadRows(0, ids, [due] * len(ids), envelopes, []))._replace(
        ops="".join(ops), versions=each_version_text(versions), moves=each_version_text(moves)
    )
    applying = Applying(bench.bulk, "r", batch, remember=remember)
    applying.apply(bench.topic, packed)
    bench.bulk.flush()
    return applying.done


def hashes(bench: Bench) -> list[str]:
    return [KeyNames().key(name, bench.topic) for name in ("even", "odd")]


def known(bench: Bench) -> dict[str, int]:
    """All that Redis knows of versions."""
    found: dict[str, int] = {}
    for key in hashes(bench):
        entries: Any = bench.raw.hgetall(key)
        found.update((name.decode(), int(version)) for name, version in entries.items() if name != b"\1")
    return found


async def test_a_late_row_loses(bench: Bench) -> None:
    """Against the newer version and against its own; each of a call by its own."""
    assert change(bench, ("s", "a", 5), ("s", "b", 9), ("s", LONG, 5)) == Applied(scheduled=3)
    rows = ("s", "a", 4), ("s", "b", 10), ("s", LONG, 5), ("s", "new", 1)
    assert change(bench, *rows) == Applied(scheduled=2, late=2)
    assert bench.state().payloads == {"a": b"5", "b": b"10", LONG: b"5", "new": b"1"}


async def test_every_digit_of_a_version(bench: Bench) -> None:
    """Where Lua's numbers have no more digits; and ten is more than nine."""
    large = 2**63 - 1
    change(bench, ("s", "a", large - 1), ("s", "b", 10))
    assert change(bench, ("s", "a", large), ("s", "b", 9)) == Applied(scheduled=1, late=1)


async def test_a_cancel_keeps_an_older_row_away(bench: Bench) -> None:
    """Also one that found nothing, since it came first."""
    assert change(bench, ("c", "a", 2)) == Applied()
    assert change(bench, ("s", "a", 1)) == Applied(late=1)
    assert change(bench, ("s", "a", 3)) == Applied(scheduled=1)


async def test_what_was_delivered_stays_away(bench: Bench) -> None:
    """A row that is written again has the version that is known."""
    change(bench, ("s", "a", 1), due=NOW)
    await bench.claim(N1)
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.OK
    assert change(bench, ("s", "a", 1), due=NOW) == Applied(late=1)
    assert bench.state().timeline == {}


async def test_a_move_that_finds_nothing(bench: Bench) -> None:
    """It is not remembered: the row that schedules the timer comes late, and would be lost."""
    assert change(bench, ("m", "a", 2)) == Applied()
    assert change(bench, ("s", "a", 1)) == Applied(scheduled=1)
    assert change(bench, ("m", "a", 3), due=DUE + 1) == Applied(moved=1)
    assert change(bench, ("m", "a", 2), due=DUE + 2) == Applied(late=1)
    assert bench.state().timeline == {"a": score(DUE + 1)}


@pytest.mark.parametrize(
    ("between", "payload", "remembered"), [(None, b"1", 3), (0, b"1", 3), (2, b"2", 3), (3, b"3", 3)]
)
async def test_a_row_and_the_move_behind_it(
    bench: Bench, between: int | None, payload: bytes, remembered: int
) -> None:
    """They came as one. A version between theirs keeps its content, and is moved; a newer one stands."""
    if between is not None:
        change(bench, ("s", "a", between))
    change(bench, ("s", "a", 1), moves=(3,), due=DUE + 5)
    assert bench.state().payloads == {"a": payload}
    assert bench.state().timeline == {"a": score(DUE if between == 3 else DUE + 5)}
    assert known(bench)["a"] == remembered


async def test_a_cancel_and_the_move_behind_it(bench: Bench) -> None:
    """The cancel is what is remembered, so that a row between the two can still come."""
    change(bench, ("s", "a", 1))
    assert change(bench, ("c", "a", 2), moves=(4,)) == Applied(cancelled=1)
    assert change(bench, ("s", "a", 3)) == Applied(scheduled=1)


async def test_evenre_known_for_their_time(bench: Bench) -> None:
    """At least for that long behind the last row, and at most for about twice as long: then they go."""
    change(bench, ("s", "old", 5))
    bench.now += HOUR - 1
    change(bench, ("s", "young", 5))
    bench.now += 1
    change(bench, ("s", "turn", 5))
    assert known(bench) == {"old": 5, "young": 5, "turn": 5}
    assert change(bench, ("s", "young", 4), ("s", "old", 4)) == Applied(late=2)
    bench.now += HOUR - 1
    assert change(bench, ("s", "young", 4)) == Applied(late=1)
    change(bench, ("s", "again", 5))
    assert set(known(bench)) == {"old", "young", "turn", "again"}
    bench.now += 1
    change(bench, ("s", "second-turn", 5))
    assert set(known(bench)) == {"turn", "again", "second-turn"}
    assert change(bench, ("s", "old", 4), ("s", "again", 4)) == Applied(scheduled=1, late=1)


async def test_the_newest_of_both_hashes(bench: Bench) -> None:
    """One has the older version still."""
    change(bench, ("s", "a", 5), ("s", "b", 7))
    bench.now += HOUR
    change(bench, ("s", "a", 6))
    assert change(bench, ("s", "a", 6), ("s", "b", 6)) == Applied(late=2)


async def test_a_stream_that_rests(bench: Bench) -> None:
    """Its versions expire, by twice their time, and no key stays."""
    change(bench, ("s", "a", 5))
    (key,) = [key for key in hashes(bench) if bench.raw.exists(key)]
    assert 7200 - 60 < bench.raw.ttl(key) <= 7200


async def test_two_rows_of_a_batch_in_two_calls(bench: Bench) -> None:
    """As two tasks have them: the newer one counts, whichever comes first. Run again, neither does."""
    first, second = ("s", "a", 1), ("s", "a", 2)
    assert change(bench, first, batch=1) == Applied(scheduled=1)
    assert change(bench, second, batch=1) == Applied(scheduled=1)
    bench.raw.delete(*hashes(bench))  # as if they were forgotten by now
    for row in (first, second):
        assert change(bench, row, batch=1) == Applied(known=1)
    assert bench.state().payloads == {"a": b"2"}


async def test_a_full_redis(bench: Bench) -> None:
    """It takes no version of a row that it does not take."""
    change(bench, ("s", "b", 1))
    with bench.full(), pytest.raises(StoreFull):
        change(bench, ("s", "a", 1), ("c", "b", 2))
    assert known(bench) == {"b": 1}
    assert change(bench, ("s", "a", 1), ("c", "b", 2)) == Applied(scheduled=1, cancelled=1)


@pytest.mark.parametrize("which", [0, 1])
async def test_a_wrong_type(bench: Bench, which: int) -> None:
    key = hashes(bench)[which]
    bench.raw.rpush(key, "x")
    with pytest.raises(WrongKeyType):
        change(bench, ("s", "a", 1))
    bench.raw.delete(key)
