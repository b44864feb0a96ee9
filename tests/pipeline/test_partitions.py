"""Loads into topics of several partitions: which has a timer, and what becomes of a load while they move."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from relay.core.errors import InvalidField, WrongKeyType
from relay.core.timers import KEEP_EXISTING
from relay.pipeline.inputs import preflight
from relay.pipeline.rows import dividing, packing
from relay.settings import load
from relay.store.bulk import layouts
from relay.store.bulk.columns_call import Elsewhere, PackedRows
from relay.store.bulk.inserting import RunLedger
from relay.store.bulk.store import BulkStore
from tests.pipeline.laid_out import LaidOut, laid_out

if TYPE_CHECKING:
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow

VECTORS = json.loads((Path(__file__).parents[1] / "core" / "partitions.json").read_text(encoding="utf-8"))
IDS = [f"t{n}" for n in range(3000)]
MORE = [f"u{n}" for n in range(3000)]


@pytest.fixture
def world(valkey: RunningServer, topic: str) -> Iterator[LaidOut]:
    """A topic of eight partitions."""
    with laid_out(valkey.url, topic, [valkey]) as made:
        yield made


WAYS = [{}, {"run": "r"}]
"""A load that replaces, and one whose run has a ledger."""


# ---------------------------------------------------------------------------------- who has which


@pytest.mark.parametrize("count", [8, 1024])
def test_published_vectors(count: int) -> None:
    ids = pa.array([vector["timer_id"] for vector in VECTORS])
    places, parts = packing.divided(ids, count)
    numbers = [number for number, size in parts for _ in range(size)]
    assert numbers == [VECTORS[place][f"of_{count}"] for place in places.tolist()]
    assert sorted(places.tolist()) == list(range(len(VECTORS)))


@pytest.mark.parametrize("way", WAYS)
def test_each_timer_lies_where_it_belongs(world: LaidOut, way: dict[str, str]) -> None:
    """Occurrences of a recurrence lie together; a row that is twice there counts once."""
    daily = [f"daily@2026-11-{day}T08:00:00Z" for day in range(10, 30)]
    world.load([*IDS, *daily], [*MORE, "t1"], **way)
    world.assert_at_home([*IDS, *MORE, *daily])
    assert sum("daily@2026-11-10T08:00:00Z" in names for names in world.homes().values()) == 1


@pytest.mark.parametrize(("way", "payload"), [({}, "1"), ({"run": "r"}, "0")])
def test_of_two_rows_the_last_or_the_runs_first(
    world: LaidOut, valkey: RunningServer, way: dict[str, str], payload: str
) -> None:
    """As in a topic of one partition, also where both wait for one batch."""
    world.load(["a"], ["a"], **way)
    with valkey.client() as raw:
        stored = raw.hget(f"timers_payloads:{world.topic}#3", "a")
    assert stored is not None
    assert stored.endswith(payload.encode())


def test_a_repeated_run_and_spared_timers(world: LaidOut) -> None:
    tally = world.load(IDS, run="r")
    assert (tally.written, tally.skipped_by_ledger) == (3000, 0)
    tally = world.load(IDS, ["new"], run="r")
    assert (tally.written, tally.skipped_by_ledger) == (1, 3000)
    tally = world.load(IDS, ["other"], run="s", on_conflict=KEEP_EXISTING)
    assert (tally.written, tally.skipped_alive) == (1, 3000)
    tally = world.load(IDS, ["again"], run="r", dry=True, asks=True)
    assert (tally.written, tally.skipped_by_ledger) == (1, 3000)


def test_a_new_topic_gets_what_the_settings_say(valkey: RunningServer, topic: str) -> None:
    """The first to come decides, a load or a relay."""
    with laid_out(valkey.url, topic, [valkey], 4, born=False) as world:
        world.load(IDS)
        with valkey.client() as raw:
            assert raw.get(f"timers_leases:{topic}") == b"1 4"
        world.assert_at_home(IDS)


def test_a_topic_that_has_timers_keeps_its_partition(valkey: RunningServer, topic: str) -> None:
    with laid_out(valkey.url, topic, [valkey], 1) as world:
        world.load(["a"])
    with laid_out(valkey.url, topic, [valkey], 1) as world, valkey.client() as raw:
        with laid_out(valkey.url, topic, [valkey], 8, born=False) as other:
            other.load(["b"])
        assert not raw.exists(f"timers_leases:{topic}")
        world.assert_at_home(["a", "b"])


def test_a_topic_that_went_back_to_one(world: LaidOut, valkey: RunningServer) -> None:
    """It keeps its layout, and its lease records lie under the first partition's name."""
    world.load(IDS)
    world.move(1)
    world.load(MORE, run="r")
    world.assert_at_home([*IDS, *MORE])
    with valkey.client() as raw:
        assert raw.get(f"timers_leases:{world.topic}") == b"7 1"


def test_batches_are_large(world: LaidOut, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come in small pieces are gathered until each partition has a whole batch."""
    sent: list[int] = []
    replace = BulkStore.replace

    def counted(store: BulkStore, partition: str, rows: PackedRows, elsewhere: Elsewhere) -> None:
        sent.append(rows.size)
        replace(store, partition, rows, elsewhere)

    monkeypatch.setattr(BulkStore, "replace", counted)
    pieces = [[f"{piece}-{n}" for n in range(100)] for piece in range(80)]
    world.load(*pieces)
    assert sum(sent) == 8000
    assert sum(sent) / len(sent) > 250
    sent.clear()
    monkeypatch.setattr(dividing, "HELD", 100_000)
    world.load(*pieces)
    assert sum(sent) == 8000
    assert max(sent) < 250, "what is held is bounded by its bytes"


# ---------------------------------------------------------------------- while the topic moves


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("towards", [16, 4, 1])
def test_the_layout_changes_between_two_batches(world: LaidOut, way: dict[str, str], towards: int) -> None:
    """The race: batches that are made by the old layout come when the topic has another one. Their partitions
    refuse them, and their rows are divided anew."""
    world.load(IDS[:1000], lambda: world.move(towards), IDS[1000:], **way)
    assert world.layout.count == towards
    world.assert_at_home(IDS)


def test_a_topic_that_gets_a_layout_between_two_batches(valkey: RunningServer, topic: str) -> None:
    with laid_out(valkey.url, topic, [valkey], 1) as world:
        world.load(IDS[:1000], lambda: world.move(2), IDS[1000:])
        world.assert_at_home(IDS)


def test_what_was_refused_keeps_its_order(world: LaidOut, valkey: RunningServer) -> None:
    """Two rows of each timer. The first ones come by the old layout and are refused, and the others know the
    new one by then: these stay."""
    ids = [f"t{n}" for n in range(4500)]  # enough for a whole batch in each partition
    world.load(["first"], lambda: world.move(16), ids, ids)
    world.assert_at_home(["first", *ids])
    with valkey.client() as raw:
        for name, ids in world.homes().items():
            for timer_id in set(ids) - {"first"}:
                stored = raw.hget(name.replace("timeline", "payloads"), timer_id)
                assert stored is not None
                assert stored.endswith(b"3"), timer_id


def test_a_load_waits_for_the_end_of_a_move(world: LaidOut, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def looked(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            world.finish()

    world.begin(16)
    monkeypatch.setattr("relay.store.bulk.layouts.sleep", looked)
    world.load(IDS)
    assert len(looks) == 3
    world.assert_at_home(IDS)


def test_a_move_that_lasts(world: LaidOut, monkeypatch: pytest.MonkeyPatch) -> None:
    """The load fails by the topic's name, and says what waits for the end; what it has inserted, the next one
    leaves alone."""
    monkeypatch.setattr(layouts, "MOVE_WAIT", 0.2)
    told = (
        r"^topic: '[\w-]+' moves from 8 to 16 partitions, and did for 0 s; begin again when that has ended: "
    )
    told += r"`relay topics reshard [\w-]+ --partitions 16` waits for it$"
    with pytest.raises(InvalidField, match=told):
        world.load(IDS, lambda: world.begin(16), MORE, run="r")
    world.finish()
    tally = world.load(IDS, MORE, run="r")
    assert tally.written + tally.skipped_by_ledger == 6000
    world.assert_at_home([*IDS, *MORE])


@pytest.mark.parametrize("counts", [(16,), (16, 32), (4,), (1,), (1, 2), (16, 8)])
def test_a_runs_ledger_when_timers_have_moved(world: LaidOut, counts: tuple[int, ...]) -> None:
    """The race: a run inserts its timers, they are delivered, the topic moves, and the run is repeated. What
    it has decided on stands in the ledgers of other partitions than those that would have the timers now."""
    world.load(IDS, run="r")
    gone = [name for name in IDS if world.cancel(name)]
    assert gone == IDS
    for count in counts:
        world.move(count)
        tally = world.load(IDS, [f"n{count}"], run="r")
        assert (tally.written, tally.skipped_by_ledger) == (1, 3000)
        tally = world.load(IDS, run="r", dry=True, asks=True)
        assert (tally.written, tally.skipped_by_ledger) == (0, 3000)
    world.assert_at_home([f"n{count}" for count in counts])


def test_a_ledger_from_before_there_was_a_layout(valkey: RunningServer, topic: str) -> None:
    with laid_out(valkey.url, topic, [valkey], 1) as world:
        world.load(IDS, run="r")
        for count in (2, 4):
            world.move(count)
            assert world.load(IDS, run="r").skipped_by_ledger == 3000


def nobody_asks() -> list[bytes]:
    raise AssertionError


def test_a_run_that_begins_after_a_move_looks_nowhere_else(world: LaidOut) -> None:
    world.move(16)
    with world.target.open() as store:
        ledger = RunLedger(store, "r")
        for name in store.layouts.at_rest(world.topic).partitions:
            assert ledger.decided_elsewhere(name, nobody_asks) is None


@pytest.mark.parametrize("counts", [(8,), (16,), (4, 8)])
def test_what_the_cold_store_was_told_of(world: LaidOut, counts: tuple[int, ...]) -> None:
    ids = [name.encode() for name in IDS[:100]]
    with world.target.open() as store:
        RunLedger(store, "r").note_told(world.topic, ids)
    for count in counts:
        world.move(count)
    with world.target.open() as store:
        assert RunLedger(store, "r").is_told(world.topic, [*ids, b"other"]) == [True] * 100 + [False]
    assert world.load(IDS, run="r").skipped_by_ledger == 100


# ------------------------------------------------------------------------------- what is refused


def test_before_spark_starts(valkey: RunningServer, world: LaidOut) -> None:
    """The keys of all partitions are looked at."""
    settings = load(environ={"RELAY_REDIS__URL": valkey.url})
    preflight.check_redis(settings, world.topic)
    with valkey.client() as raw:
        raw.set(f"timers_payloads:{world.topic}#5", "somebody's")
        with pytest.raises(WrongKeyType, match=r"#5 holds a string, not a hash"):
            preflight.check_redis(settings, world.topic)
        raw.delete(f"timers_payloads:{world.topic}#5")
