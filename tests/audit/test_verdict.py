"""The judge of a Cluster in trouble: what it calls lost, early and undone, and what a failover excuses."""

from __future__ import annotations

from typing import Any

import pytest

from relay.core.instants import SECOND
from relay.store.codec import envelope
from tests.asked_for import AskedFor
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.worlds.cluster.failovers import Held, Undone, differences, timers_at
from tests.worlds.cluster.verdict import Verdict
from tests.worlds.relay.processes import Event

NOON = 43_200 * SECOND
LATER = NOON + 60 * SECOND


def at(offset: float) -> float:
    """The instant `offset` seconds after noon."""
    return NOON / SECOND + offset


def wanted(due: int = NOON, said: float = -10.0, timer_id: str = "t") -> AskedFor:
    """A call for that due time, and when it was answered."""
    return AskedFor(timer_id, at(said - 1), at(said), answered=True, due=due)


def cancelled(said: float) -> AskedFor:
    return AskedFor("t", at(said - 1), at(said), answered=True, cancels=True)


def handled(due: int = NOON, *, late: float = 0.1, end: bool = True) -> list[Event]:
    """A handler's start, and its end."""
    about: dict[str, Any] = {"timer_id": "t", "due": due / SECOND, "late": late}
    start = Event("start", due / SECOND + late, 1, **about)
    return [start, Event("end", due / SECOND + late, 1, **about)] if end else [start]


def left(due: int = NOON) -> dict[Held, int]:
    return {("timers_timeline:{orders}", "t"): due}


def undone(had: int | None, has: int | None, died: float = 0.0, timer_id: str = "t") -> Undone:
    """By a failover `died` seconds after noon."""
    return Undone(timer_id, had, has, at(died))


def test_all_is_well() -> None:
    """It is handled once, and nothing is left."""
    verdict = Verdict([wanted()], handled())
    assert (verdict.lost, verdict.early, verdict.ghosts, verdict.twice) == (set(), [], set(), 0)
    assert verdict.is_over


@pytest.mark.parametrize("events", [[], handled(end=False), handled(LATER)], ids=["never", "begun", "other"])
def test_lost(events: list[Event]) -> None:
    """No handler came to the end of what was asked for last."""
    verdict = Verdict([wanted()], events)
    assert verdict.lost == {"t"}
    assert not verdict.is_over


def test_lost_after_it_was_moved() -> None:
    """What was handled is the call of before."""
    assert Verdict([wanted(), wanted(LATER, said=5.0)], handled()).lost == {"t"}
    assert not Verdict([wanted(), wanted(LATER, said=5.0)], [*handled(), *handled(LATER)]).lost


@pytest.mark.parametrize(
    ("failover", "excused"),
    [
        (undone(NOON, None), True),
        (undone(NOON, None, -11.0), True),
        (undone(NOON, None, -20.0), False),
        (undone(NOON, LATER), True),
        (undone(None, NOON), False),
        (undone(LATER, None), False),
        (undone(NOON, None, timer_id="other"), False),
    ],
)
def test_a_failover_loses(failover: Undone, excused: bool) -> None:
    """It excuses what the dead master alone had, by that very call, which was answered before or as it died;
    and nothing else."""
    verdict = Verdict([wanted()], [], [failover])
    assert verdict.missing == {"t"}
    assert verdict.is_over == (not verdict.lost) == excused


def test_early() -> None:
    """By however little."""
    (event,) = Verdict([wanted()], handled(late=-0.001)).early
    assert event.event == "start"


@pytest.mark.parametrize("second", [cancelled(-1.0), wanted(LATER, said=-1.0)], ids=["cancelled", "moved"])
def test_undone(second: AskedFor) -> None:
    """It is delivered, or still there, though the later call was answered before it was due."""
    calls, later = [wanted(), second], [] if second.cancels else handled(LATER)
    assert Verdict(calls, [*handled(end=False), *later]).ghosts == {("t", NOON)}
    verdict = Verdict(calls, later, left=left())
    assert verdict.ghosts == {("t", NOON)}
    assert not Verdict(calls, later).ghosts


@pytest.mark.parametrize("second", [cancelled(0.5), wanted(LATER, said=0.5)], ids=["cancelled", "moved"])
def test_a_delivery_was_under_way(second: AskedFor) -> None:
    """The later call was answered only when the timer was due: it may have been claimed by then."""
    assert not Verdict([wanted(), second], handled(late=3.0)).ghosts


@pytest.mark.parametrize(
    ("failover", "excused"),
    [
        (undone(None, NOON), True),
        (undone(None, NOON, 0.2), False),
        (undone(LATER, NOON), True),
        (undone(NOON, None), False),
        (undone(None, LATER), False),
        (undone(None, NOON, timer_id="other"), False),
    ],
)
def test_a_failover_brings_back(failover: Undone, excused: bool) -> None:
    """It excuses what the replica alone had, from then on."""
    verdict = Verdict([wanted(), cancelled(-1.0)], handled(), [failover])
    assert verdict.overtaken.keys() == {("t", NOON)}
    assert (not verdict.ghosts) == excused


def test_a_failover_leaves_what_it_brings_back() -> None:
    calls = [wanted(), cancelled(-1.0)]
    assert not Verdict(calls, [], [undone(None, NOON)], left()).ghosts
    assert Verdict(calls, [], [undone(NOON, None)], left()).ghosts


def test_what_nobody_asked_for() -> None:
    """A due time, or a timer, of which no caller knows."""
    assert Verdict([wanted()], [*handled(), *handled(LATER)]).ghosts == {("t", LATER)}
    assert Verdict([], handled()).ghosts == {("t", NOON)}


def test_what_is_left_is_waited_for() -> None:
    """It may still be delivered again, after a lost outcome."""
    assert not Verdict([wanted()], handled(), left=left()).is_over


def test_twice() -> None:
    """It is counted, and allowed."""
    verdict = Verdict([wanted()], [*handled(), *handled(late=5.0)])
    assert (verdict.twice, verdict.is_over) == (1, True)


def test_differences() -> None:
    """By place and timer."""
    here, there = "timers_timeline:{orders}", "timers_timeline:{orders#1}"
    had = {(here, "same"): 1, (here, "moved"): 2, (here, "new"): 3, (there, "both"): 4}
    has = {(here, "same"): 1, (here, "moved"): 1, (here, "old"): 5, (here, "both"): 4}
    assert set(differences(had, has, 7.0)) == {
        Undone("moved", 2, 1, 7.0),
        Undone("new", 3, None, 7.0),
        Undone("old", None, 5, 7.0),
        Undone("both", 4, None, 7.0),
        Undone("both", None, 4, 7.0),
    }


@pytest.mark.parametrize(
    ("failover", "retired", "excused"),
    [
        (undone(None, NOON), True, True),
        (undone(None, NOON), False, False),
        (undone(NOON, None), True, False),
        (undone(None, LATER), True, False),
    ],
)
def test_a_failover_brings_back_what_a_move_had_taken_away(
    failover: Undone, retired: bool, excused: bool
) -> None:
    """Where nobody takes it any more; that is not waited for. What was brought back elsewhere is."""
    (there,) = {key for key, _ in left()}
    verdict = Verdict([wanted()], handled(), [failover], left(), [there] if retired else [])
    assert verdict.is_over is excused
    assert verdict.stranded == (set(left()) if excused else set())


def test_what_is_on_its_way_is_there(keyspace: Keyspace, valkey: RunningServer) -> None:
    """A move has taken it out of its partition, and the master may die before it is put into another one.
    That is a place of its own: a failover that gives it back to its partition has undone something."""
    topic = keyspace.topic("orders")
    with valkey.client() as client:
        key, stored = f"timers_leases:{{{topic}}}#move", envelope.encode(b"%d" % NOON, {}, "")
        pack = "redis.call('HSET', KEYS[1], 'note', '1', 'tt', cmsgpack.pack({'1', '', ARGV[1]}))"
        client.eval(pack, 1, key, stored)
        assert timers_at(valkey) == {(key, "t"): NOON}
        client.delete(key)
