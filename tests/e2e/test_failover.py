"""Sentinel takes the master away under load: the relays find the new one, and keep what WAIT covered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Self, cast

import grpc
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from relay.core.audit import PromiseVerdict
from relay.v1 import timer_pb2
from tests import judge
from tests.chaos import in_long
from tests.sentinels import Group, until_answered
from tests.servers import RunningServer
from tests.worlds.relay.producer import Load, Producer, code_of
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import always, eventually

pytestmark = pytest.mark.slow

TOPIC = "orders"
RECOVERY = 200.0
"""Seconds from the harm to the first delivery after it; a generous bound."""

QUICK = {
    "RELAY_REDIS__COMMAND_TIMEOUT": "3",
    "RELAY_REDIS__WRITE_TTL": "1",
    "RELAY_DEFAULTS__LEASE_TTL": "2",
}
HARMS: dict[str, Callable[[Group, RunningServer], None]] = {
    "kill": lambda _, master: master.kill(),
    "demotion": lambda group, _: group.fail_over(),
    "freeze": lambda _, master: master.freeze(),
}


@pytest.fixture
def group() -> Iterator[Group]:
    with Group() as group:
        yield group


class Cover:
    """Asks the first master again and again, in a thread, how much of the load all replicas have."""

    def __init__(self, group: Group, master: RunningServer, load: Load) -> None:
        self._group, self._master, self._load = group, master, load
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cover")
        self.count = 0

    def _run(self) -> None:
        once = Retry(NoBackoff(), 0)  # a repeated WAIT would speak for another connection's writes
        with (
            suppress(redis.RedisError, OSError),
            self._master.client(retry=once, socket_timeout=20.0) as client,
        ):
            while not self._stopping.is_set():
                accepted = len(self._load.accepted)
                if self._group.covered(client):
                    self.count = accepted

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def relay_connections(server: RunningServer) -> list[dict[str, Any]]:
    with server.client() as client:
        found = cast("list[dict[str, Any]]", client.client_list())
    return [each for each in found if each["name"] == "relay"]


@pytest.mark.parametrize("harm", ["kill", *in_long(["demotion", "freeze"])])
def test_failover_under_load(stage: Stage, group: Group, harm: str) -> None:
    """Nothing that WAIT covered is lost, nothing is early, the newest intent wins; all within seconds."""
    master = group.servers[0]
    relays = [stage.relay(name, QUICK, url=group.url) for name in ("one", "two")]
    for relay in relays:
        stage.application(relay, TOPIC, name=f"app-{relay.name}")
    producers = [stage.producer(relay) for relay in relays]
    standing = {f"t{n}" for n in range(500)}
    producers[0].schedule_many(TOPIC, sorted(standing), {"sleep": 0.01}, delay=2.0, spread=10.0)
    moved = move_while_held(stage, producers[0])
    with master.client() as client:
        until_answered(lambda: group.covered(client), "the replicas have all of it")
    with Load(producers, TOPIC, {"sleep": 0.01}, pause=0.005) as load:
        with Cover(group, master, load) as cover:
            eventually(lambda: cover.count > 100, "a part of the load is covered")
            HARMS[harm](group, master)
            harmed = time.time()
            new = group.new_master(master)
            promoted = time.time() - harmed
        for number, producer in enumerate(producers):
            through(stage, producer, new, f"probe-{number}")
        recovered = time.time() - harmed
        master.thaw()
    with new.client() as client:
        subscribed = f"timers_wake:{TOPIC}"
        eventually(
            lambda: dict(cast("Any", client.pubsub_numsub(subscribed)))[subscribed.encode()] == 2,
            "both listen to the new master's hints",
        )
    always(lambda: len(relay_connections(new)) <= 8, "four connections for each relay", 1.0)
    empty(new)
    ended = stage.journal.ended()
    must = standing | set(load.accepted[: cover.count])
    lost = set(load.accepted) - ended.keys()
    print(
        f"{harm}: a new master after {promoted:.1f} s, through both relays after {recovered:.1f} s; "
        f"{len(load.accepted)} accepted, {load.refusals.total()} refused, {cover.count} covered before, "
        f"{len(lost)} lost that were not, {sum(n > 1 for n in ended.values())} twice"
    )
    assert not must - ended.keys(), "WAIT covered it and it is lost"
    judge_what_is_left(new, must)
    assert min(event.late for event in stage.journal.events("start")) >= 0, "a timer was early"
    first, *_, last = stage.journal.starts("moved")
    assert first.occurrence != last.occurrence
    assert last.at >= moved, "the newer intent stands"
    assert recovered < RECOVERY
    for relay in relays:
        assert relay.running
        assert relay.probe("/healthz/ready") == 200


def move_while_held(stage: Stage, producer: Producer) -> float:
    """A handler works on a timer that is rescheduled; answers the new due time (unix seconds)."""
    insistently(lambda: producer.schedule(TOPIC, "moved", {"sleep": 4.0}))
    eventually(lambda: stage.journal.starts("moved"), "it is in flight")
    due = insistently(lambda: producer.schedule(TOPIC, "moved", b"later", delay=8.0)).due_time
    return float(due.seconds) + due.nanos / 1e9


def insistently(call: Callable[[], timer_pb2.Timer]) -> timer_pb2.Timer:
    """The answer: what a relay can't do within its short time on a busy machine is asked for again."""

    def answered() -> timer_pb2.Timer | None:
        try:
            return call()
        except grpc.RpcError as error:
            if code_of(error) is not grpc.StatusCode.UNAVAILABLE:
                raise
        return None

    answer = eventually(answered, "it is answered")
    assert answer is not None
    return answer


def through(stage: Stage, producer: Producer, server: RunningServer, name: str) -> None:
    """Return once a timer has gone the whole way by this relay and this server."""
    number = 0

    def stored() -> bool:
        nonlocal number
        number += 1
        with suppress(grpc.RpcError), server.client() as client:
            producer.schedule(TOPIC, f"{name}-{number}", delay=0.5, timeout=2.0, wait=False)
            return client.zscore(f"timers_timeline:{TOPIC}", f"{name}-{number}") is not None
        return False

    eventually(stored, "calls reach the new master", RECOVERY)
    eventually(lambda: stage.journal.starts(f"{name}-{number}"), "it comes", RECOVERY)


def judge_what_is_left(server: RunningServer, must: set[str]) -> None:
    """A failover loses the same writes of the timers and of their journal, for these are one step. So the
    journal knows of no loss: what it tells is proved of what survived, and all that WAIT covered has."""
    with server.client() as client:
        batches, report = judge.report_of(client, TOPIC, exclusive=True, at_rest=True)
    assert report.verdict is PromiseVerdict.PROVED, judge.told(report)
    assert must <= judge.Trial(batches).stored.keys()


def empty(server: RunningServer) -> None:
    keys = [f"timers_{part}:{TOPIC}" for part in ("timeline", "payloads", "leases")]
    with server.client() as client:
        eventually(lambda: client.exists(*keys) == 0, "nothing is left", 200.0)
