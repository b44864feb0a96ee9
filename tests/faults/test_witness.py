"""The witness: clocks that it reads, and what it says was lost in a failover."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import redis

from chaos import ledger
from chaos.judging.clocks import ServerClocks
from chaos.ledger import Entry, Ledger
from chaos.witness import Look, Machine, Witness
from tests.servers import RunningServer, start_server
from tests.worlds.waiting import eventually

MASTER, REPLICA = 7001, 7002


class Seen:
    """A witness to whom servers say what a test says."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._witness = Witness([], Ledger(directory, "nemesis"))

    def say(self, port: int, at: float, offset: int, master: int = 0) -> None:
        """A server was asked at this moment, and answered 0.01 s later."""
        self._witness.take(port, Look(at, at + 0.01, master, offset, buffered=False))

    def silent(self, port: int, at: float) -> None:
        """There was no answer at this moment."""
        self._witness.silent(port, at)

    @property
    def losses(self) -> list[Entry]:
        return [entry for entry in ledger.read(self._directory) if entry["kind"] == "loss"]


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path)


def failover(seen: Seen) -> None:
    """The master has written 300 bytes when it was seen last, the replica has 200; then it takes over."""
    for n in range(1, 4):
        seen.say(MASTER, float(n), 100 * n)
    seen.say(REPLICA, 3.5, 200, MASTER)
    seen.say(REPLICA, 5.0, 200)


def test_what_a_replica_did_not_have_when_it_took_over_is_lost(seen: Seen) -> None:
    """Until the last moment at which the master had written no more than that."""
    failover(seen)
    (loss,) = seen.losses
    assert (loss["why"], loss["safe"]) == ("lag", 2.0)
    assert loss["lag"] == pytest.approx(1.01), "the master was heard of at 3.01"


def test_a_replica_that_has_everything_loses_only_what_came_after_the_last_look(seen: Seen) -> None:
    seen.say(MASTER, 3.0, 300)
    seen.say(REPLICA, 3.5, 300, MASTER)
    seen.say(REPLICA, 5.0, 300)
    assert [loss["safe"] for loss in seen.losses] == [3.0]


def test_a_replaced_master_answers_until_it_is_told(seen: Seen) -> None:
    failover(seen)
    seen.say(MASTER, 6.0, 350)
    seen.say(MASTER, 8.0, 400)
    seen.say(MASTER, 9.0, 200, REPLICA)
    _, loss = seen.losses
    assert (loss["why"], loss["safe"]) == ("split", pytest.approx(3.51))
    assert loss["lag"] == pytest.approx(3.0), "from 6.01 to 9.01"


def test_a_replaced_master_that_does_not_come_back_answers_nobody(seen: Seen) -> None:
    failover(seen)
    seen.say(MASTER, 9.0, 200, REPLICA)
    assert seen.losses[1]["lag"] == 0.0


def test_a_replaced_master_answers_nobody_before_it_is_back(seen: Seen) -> None:
    """And may have answered from then on. That it dies once more does not take that back."""
    seen.silent(MASTER, 3.3)
    failover(seen)
    seen.silent(MASTER, 5.5)
    seen.say(MASTER, 6.0, 350)
    seen.silent(MASTER, 7.0)
    seen.say(MASTER, 9.0, 200, REPLICA)
    assert seen.losses[1]["safe"] == 5.5
    assert seen.losses[1]["lag"] == pytest.approx(3.0)


def test_a_server_that_is_gone_or_stands_still_is_silent(tmp_path: Path) -> None:
    """Of one that is there this is known once it was asked twice in vain: it may be slow to one alone."""
    vain: list[str] = []
    silences: list[tuple[str, int]] = []
    state = "running"

    class Noting(Witness):
        def _look(self, *who: Any) -> None:
            try:
                super()._look(*who)
            except redis.RedisError:
                vain.append(state)
                raise

        def silent(self, port: int, at: float) -> None:
            silences.append((state, len(vain)))

    def are(kind: str) -> list[int]:
        return [count for state, count in silences if state == kind]

    with start_server("valkey") as server, Noting([server], Ledger(tmp_path, "nemesis")):
        state = "frozen"
        server.freeze()
        eventually(lambda: are("frozen"), "it stands still")
        server.thaw()
        state = "killed"
        server.kill()
        eventually(lambda: are("killed"), "it is gone")
    assert min(are("frozen")) >= 2


def test_a_replica_that_stays_one_loses_nothing(seen: Seen) -> None:
    seen.say(REPLICA, 1.0, 100, MASTER)
    seen.say(REPLICA, 2.0, 50, MASTER)
    assert not seen.losses


def test_it_reads_a_server_s_clock(valkey: RunningServer, tmp_path: Path) -> None:
    """By what it has read, the judge knows the clock to a fraction of a second; it is this machine's."""
    own = Ledger(tmp_path, "nemesis")

    def read() -> list[Entry]:
        return [entry for entry in ledger.read(tmp_path) if entry["kind"] == "clock"]

    with Witness([valkey], own):
        eventually(lambda: len(read()) > 10, "it has read the clock")
    readings = read()
    assert all(entry["master"] for entry in readings)
    quickest = min(entry["heard"] - entry["sent"] for entry in readings)
    latest = ServerClocks(readings).latest(readings[-1]["at"])
    assert abs(latest - readings[-1]["wall"]) < quickest + 0.05


def test_the_machine_is_never_more_than_busy() -> None:
    before = Machine.read()
    time.sleep(0.05)
    told = Machine.read().since(before)
    assert 0.0 <= told["busy"] <= 1.0
    assert told["stolen"] >= 0.0
    assert told["waiting"] >= 0.0
