"""Relays that tick are killed wherever they are, and so is Redis: no nominal instant is lost, none comes
twice."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from relay.client import SyncRelayClient
from relay.core.audit import Promise, PromiseVerdict
from relay.store.keys import KeyNames
from relay.store.server.scripts import Scripts
from tests import judge
from tests.chaos import count, seed
from tests.ghosts.slow_line import SlowLine
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import PATIENCE, eventually

pytestmark = pytest.mark.slow

TOPIC = "ticks"
KILLS = count(6, 400)
RECURRENCES = count(40, 400)
SETTINGS = {
    f"RELAY_TOPICS__{TOPIC}__MAX_POLLING_INTERVAL": "0.5",
    "RELAY_REDIS__WRITE_TTL": "1",
    f"RELAY_TOPICS__{TOPIC}__JOURNAL_MAX_LENGTH": "100000000",
}


TIMELINES = [f"timers_timeline:{TOPIC}", *(f"timers_timeline:{TOPIC}#{n}" for n in range(1, 4))]


def names(stage: Stage) -> set[str]:
    found = [cast("list[bytes]", stage.client.zrange(key, 0, -1)) for key in TIMELINES]
    return {name.decode() for some in found for name in some}


def size(stage: Stage) -> int:
    """How many occurrences there are; during a move one may count twice, or not at all."""
    return sum(map(stage.client.zcard, TIMELINES))


@pytest.mark.timeout(1800)
def test_relays_are_killed_while_they_tick(stage: Stage) -> None:
    """Two relays tick recurrences of every second; one after the other is killed and comes back, and in the
    midst the topic gets other numbers of partitions. At the end there is a timer for each second of each
    recurrence, and nothing else: nobody takes them. The journal proves it, too."""
    start = seed(7)
    print(f"RELAY_TEST_SEED={start}")
    chance = random.Random(start)
    relays = [stage.relay(name, SETTINGS) for name in ("first", "second")]
    ids = [f"r{n}" for n in range(RECURRENCES)]
    with SyncRelayClient(relays[0].target, timeout=PATIENCE) as client:
        for name in ids:
            client.recur(name, topic=TOPIC, every=1, overlap="allow", catch_up="all")
    moves = {KILLS // 3: 4, 2 * KILLS // 3: 1}
    for number in range(KILLS):
        victim = relays[number % 2]
        other = relays[1 - number % 2]
        seen = size(stage) + chance.randrange(2 * RECURRENCES)
        eventually(lambda seen=seen: size(stage) > seen, "they tick")  # type: ignore[misc]
        if number in moves:
            with SyncRelayClient(other.target, timeout=PATIENCE) as client:
                client.topics.reshard(TOPIC, moves[number])
        victim.kill()
        victim.start()
    with SyncRelayClient(relays[0].target, timeout=PATIENCE) as client:
        eventually(lambda: not client.topics.get(TOPIC).moving_to, "the last move has ended")
        check_seconds(stage, client, ids)
    print(f"{size(stage)} occurrences, {KILLS} kills")


def check_seconds(stage: Stage, client: SyncRelayClient, ids: list[str]) -> None:
    """Pause these recurrences of every second. Each has a timer for each second until then, and no other one;
    and the journal proves it."""
    for name in ids:
        client.recurrences.pause(TOPIC, name)
    found = names(stage)
    for name in ids:
        stands = client.recurrences.get(TOPIC, name)
        assert stands is not None
        own = {each for each in found if each.startswith(f"{name}@")}
        first = min(datetime.fromisoformat(each.partition("@")[2]) for each in own)
        until = stands.next_time
        assert until is not None
        assert until.tzinfo is UTC
        assert stands.runs + sum(stands.left_out.values()) == (until - first) // timedelta(seconds=1)
        expected = {
            f"{name}@{(first + timedelta(seconds=n)).strftime('%Y-%m-%dT%H:%M:%SZ')}"
            for n in range(stands.runs)
        }
        assert own == expected, name
    _, report = judge.report_of(stage.client, TOPIC)
    verdict = report.of(Promise.EVERY_INSTANT)
    assert verdict.verdict is PromiseVerdict.PROVED, verdict
    assert verdict.checked > len(ids), "each was put, and has ticked"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("script", "becomes"),
    [
        ("recur/due", "lost"),
        ("recur/due", "unheard"),
        ("recur/turn+journal", "lost"),
        ("recur/turn+journal", "late"),
        ("recur/turn+journal", "unheard"),
    ],
)
def test_a_relay_is_killed_at_each_step(stage: Stage, script: str, becomes: str) -> None:
    """The line to Redis stops a relay in the midst of a tick, and there it is killed: its call is lost on the
    way, or arrives when the next one has ticked, or has run already, and the relay has not heard of it."""
    with SlowLine(stage.server.port) as line:
        relay = stage.relay("killed", SETTINGS, url=line.url)
        with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
            client.recur("r", topic=TOPIC, every=1, overlap="allow", catch_up="all")
        for _ in range(count(2, 20)):
            seen = size(stage)
            eventually(lambda seen=seen: size(stage) > seen, "it ticks")  # type: ignore[misc]
            line.hold(Scripts(KeyNames()).named(script).sha, pass_on=becomes == "unheard")
            eventually(lambda: line.holds, "it is at this step")
            if becomes == "unheard":
                line.wait_run()
            line.let_pass()
            relay.kill()
            relay.start()
            if becomes == "late":  # the one that was started has ticked meanwhile
                seen = size(stage)
                eventually(lambda seen=seen: size(stage) > seen, "it ticks again")  # type: ignore[misc]
                line.deliver()
            else:
                line.drop()
        with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
            check_seconds(stage, client, ["r"])


def test_redis_restarts(stage: Stage) -> None:
    """What it had written stands, and the instants of the outage are caught up with."""
    server = stage.redis(config={"appendonly": "yes", "appendfsync": "always"})
    relay = stage.relay("relay", SETTINGS)
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        client.recur("r", topic=TOPIC, every=1, overlap="allow", catch_up="all")
        eventually(lambda: size(stage) >= 2, "it ticks")
        server.restart()
        before = size(stage)
        eventually(lambda: size(stage) >= before + 3, "it goes on")
        past = client.recurrences.history(TOPIC, "r")
        times = [each.time for each in past]
        assert times == [times[0] + timedelta(seconds=n) for n in range(len(times))]
        assert all(each.timer_id for each in past)
