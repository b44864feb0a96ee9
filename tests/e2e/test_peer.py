"""Relays and faststream-redis-timers on one topic: under load, while both are killed, and at odds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest

from relay.core.audit import Promise
from tests.chaos import count
from tests.e2e.calls import Call, calls, cut_off
from tests.e2e.mixed import TOPIC, Mixed
from tests.e2e.peer import LEASE
from tests.worlds.relay.producer import Load
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

COUNT = count(1000, 4000)
SPREAD = 5.0
"""Seconds over which the timers of each side fall due."""
WORK = 0.1
"""Seconds that each handler takes."""
SLACK = 7.0
"""Seconds that a busy machine may need from a claim to its handler, and from there to the commit."""


def test_both_under_load_and_killed(stage: Stage) -> None:
    """Both publish thousands, both handle them, workers and relays die by SIGKILL: every timer is handled,
    none early, and twice only what a dead one held, once its lease was over."""
    mixed = Mixed(stage, relays=2, workers=2, sleep=WORK, concurrency=10)  # less than comes: each has a part
    producers = [stage.producer(relay) for relay in mixed.relays]
    publisher = mixed.peer("publisher", "--publish", str(COUNT), "--spread", str(SPREAD))
    begin = time.time()
    ours = [f"relay-{number}" for number in range(COUNT)]
    producers[0].schedule_many(TOPIC, ours, {"sleep": WORK}, spread=SPREAD)
    with Load(producers, TOPIC, {"sleep": WORK}, pause=0.005) as load:
        held = []
        for turn, kill in enumerate(
            (mixed.kill_worker, mixed.kill_relay, mixed.kill_worker, mixed.kill_relay)
        ):
            goal = (turn + 1) * COUNT // 2
            eventually(lambda: len(stage.journal.ended()) > goal, "the load goes on")  # noqa: B023
            held.append(kill(turn // 2))
        assert publisher.wait() == 0, publisher.output()
    left_behind = mixed.drained()
    made = calls(stage.journal)
    due = {event.timer_id: event.due for event in stage.journal.events("publish")}
    due |= {name: begin + SPREAD * number / COUNT for number, name in enumerate(ours)}
    wanted = due.keys() | set(load.accepted)
    lost = {name for name in wanted if not any(call.end for call in made.get(name, []))}
    by_peer = sum(call.pid in mixed.peers for of_one in made.values() for call in of_one)
    again = [pair for of_one in made.values() for pair in pairwise(of_one)]
    print(
        f"{len(wanted)} timers, {sum(map(len, made.values()))} calls, {by_peer} of them the peer's; "
        f"held at the deaths: {held}; called again: {len(again)}; records left: {len(left_behind)}"
    )
    assert not lost
    assert COUNT // 10 < by_peer < COUNT * 2, "both have had a large part"
    assert sum(held) > 0, "the deaths hit somebody at work"
    assert not early(made, due)
    for first, second in again:
        assert cut_off(first, mixed.deaths, SLACK), f"nobody's death explains {first}, {second}"
        assert second.start - first.start > LEASE - SLACK, f"again within a lease: {first}, {second}"
    # What a worker took before any relay had claimed it has no record: it may as well be lost.
    stage.judged(TOPIC, [*ours, *load.accepted], exclusive=False, doubted=[Promise.AT_LEAST_ONCE])
    assert left_behind <= mixed.leased_at_a_death
    assert all(made[name][-1].pid in mixed.peers for name in left_behind)


def early(made: Mapping[str, Sequence[Call]], due: Mapping[str, float]) -> list[Call]:
    """Calls before the due time, by the clock that is this machine's and the server's."""
    return [call for name, of_one in made.items() for call in of_one if call.start < due.get(name, 0.0)]
