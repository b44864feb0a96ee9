"""What the end of a load means: all of its batches share one wait, over the connections that they took."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import pytest

from relay.core.durability import STORED, Durability
from relay.core.errors import DurabilityMissed, NotOffered
from relay.core.partitions import Layout
from relay.store.bulk.columns_call import LoadRows, PackedRows, version_text
from relay.store.bulk.store import BulkStore
from relay.store.bulk.sweeping import Loading, Marks
from relay.store.codec import envelope
from relay.store.server.blocking import BlockingServer
from relay.store.server.durable import owed
from tests.servers import RunningServer, start_server
from tests.store.test_durability import FSYNC, REPLICA, calls_of
from tests.worlds.replicated import EVERYSEC, replicated
from tests.worlds.waiting import PATIENCE, eventually

LATER = 4_000_000_000_000_000


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[RunningServer, RunningServer]]:
    with replicated() as both:
        yield both


def rows(*ids: str) -> PackedRows:
    stored = [envelope.encode(b"x", {}, "")] * len(ids)
    return PackedRows.of(LoadRows(0, ids, [LATER] * len(ids), stored, []))


@contextmanager
def load(url: str, level: Durability | Callable[[str], Durability]) -> Iterator[BulkStore]:
    level_of = level if callable(level) else lambda _: level
    with BulkStore(BlockingServer(url, timeout=PATIENCE, durability=level_of)) as store:
        yield store


def fill(url: str, level: Durability | Callable[[str], Durability], *named: str) -> None:
    """Load topics, whose names come before those of their timers."""
    with load(url, level) as store:
        for topic, name in zip(named[::2], named[1::2], strict=True):
            store.replace(topic, rows(name))


def test_all_batches_share_one_wait(pair: tuple[RunningServer, RunningServer]) -> None:
    """The end waits until the replica has what every batch has written, and a batch waits for none."""
    master, replica = pair
    before, ended = calls_of(master, "wait"), threading.Event()

    def run() -> None:
        with load(master.url, REPLICA) as store:
            for number in range(5):
                store.replace("shared", rows(f"a{number}"))
            store.flush()
            written.set()
        ended.set()

    written, thread = threading.Event(), threading.Thread(target=run)
    with load(master.url, REPLICA) as warm:
        warm.register("shared")
    replica.freeze()
    thread.start()
    assert written.wait(PATIENCE)
    eventually(lambda: master.control.info("clients")["blocked_clients"], "the load waits")
    assert not ended.is_set()
    assert len(master.control.zrange("timers_timeline:shared", 0, -1)) == 5
    replica.thaw()
    thread.join(PATIENCE)
    assert ended.is_set()
    assert calls_of(master, "wait") == before + 1


@pytest.mark.slow
def test_a_server_that_takes_all_for_synced() -> None:
    """Valkey answers WAITAOF before the fsync; see `GroupCommit`. Between two ends of loads lies an fsync."""
    with start_server("valkey", config=EVERYSEC) as server:
        began = monotonic()
        for name in "abc":
            fill(server.url, FSYNC, "synced", name)
        assert monotonic() - began > 1.9
        assert calls_of(server, "waitaof") > 3


def test_the_topics_say_it(pair: tuple[RunningServer, RunningServer]) -> None:
    """Topics have levels of their own; what waits for none costs none."""
    master, _ = pair
    before = calls_of(master, "wait")

    def level_of(topic: str) -> Durability:
        return REPLICA if topic == "b" else STORED

    fill(master.url, level_of, "a", "x")
    assert calls_of(master, "wait") == before
    fill(master.url, level_of, "a", "x", "b", "x")
    assert calls_of(master, "wait") == before + 1


def test_what_the_server_cannot_give(pair: tuple[RunningServer, RunningServer]) -> None:
    """It is refused before the first batch, and before a sweep opens its marks, with what to set."""
    master, _ = pair

    def sweep() -> None:
        with load(master.url, Durability(replicas=2)) as store:
            Loading(store.server).open("refused", "1", "driver", lock=1, ttl=3600, epoch="e", store="cold")

    with pytest.raises(NotOffered, match="durability: replicas:2 needs 2 replicas"):
        sweep()
    with pytest.raises(NotOffered, match="durability: replicas:2 needs 2 replicas"):
        fill(master.url, Durability(replicas=2), "refused", "x")
    assert not master.control.keys("*refused*")


def test_a_connection_that_was_made_again(pair: tuple[RunningServer, RunningServer]) -> None:
    """The server that answered the first batch may have lost it; the wait at the end would not find out."""
    master, _ = pair

    def loaded(level: Durability, *, more: bool) -> None:
        with load(master.url, level) as store:
            store.replace("cut", rows("x"))
            store.flush()
            (line,) = store.server._servers.lines
            line._connection.disconnect()
            if more:
                store.replace("cut", rows("y"))

    for more in (True, False):  # a batch finds it out, or the wait
        with pytest.raises(DurabilityMissed, match=r"the connection was lost in between.*run the load again"):
            loaded(REPLICA, more=more)
        loaded(STORED, more=more)


def test_not_in_time(pair: tuple[RunningServer, RunningServer], monkeypatch: pytest.MonkeyPatch) -> None:
    """The load fails with what stands, and is to be run again."""
    master, replica = pair
    monkeypatch.setattr(owed, "SHARE", 0.2 / PATIENCE)
    replica.freeze()
    try:
        with pytest.raises(DurabilityMissed, match=r"replicas:1 was not reached: 0 of 1 replicas"):
            fill(master.url, REPLICA, "late", "x")
    finally:
        replica.thaw()
    assert master.control.zcard("timers_timeline:late") == 1


def test_a_sweep_waits_for_batches_that_it_finds_loaded(
    pair: tuple[RunningServer, RunningServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Race: a sweep has loaded a batch, and is killed before the replica has it. The next one passes the
    batch over, and its end would stand for nothing."""
    master, replica = pair
    with load(master.url, STORED) as store:
        loading = Loading(store.server)
        epoch = loading.open("swept", "1", "driver", lock=1_000_000, ttl=3600, epoch="e", store="cold")
        marks = Marks(Layout("swept"), str(epoch), "1")
        loading.load(marks, rows("x")._replace(versions=version_text(1)))
        loading.flush()

    def again() -> None:
        with load(master.url, REPLICA) as store:
            assert Loading(store.server).skip(marks, 0)

    again()
    monkeypatch.setattr(owed, "SHARE", 0.2 / PATIENCE)
    replica.freeze()
    try:
        with pytest.raises(DurabilityMissed, match=r"replicas:1 was not reached: 0 of 1 replicas"):
            again()
    finally:
        replica.thaw()


def test_a_load_that_failed_waits_for_nothing(pair: tuple[RunningServer, RunningServer]) -> None:
    master, _ = pair
    before = calls_of(master, "wait")

    def failing() -> None:
        with load(master.url, REPLICA) as store:
            store.replace("failed", rows("x"))
            store.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert calls_of(master, "wait") == before
