"""Lists and streams between real processes: two groups and a killer, workers and their deaths."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from typing import cast

import pytest
from faststream import FastStream
from faststream.redis import RedisBroker, StreamSub
from faststream.redis.annotations import RedisStreamMessage

from tests.chaos import count
from tests.worlds.relay.processes import Application, Journal, Relay, command
from tests.worlds.relay.stage import Stage
from tests.worlds.scripts.desk import read
from tests.worlds.waiting import eventually

TOPIC = "orders"
SEED = 29


def fan(group: str, **more: str) -> Mapping[str, str]:
    """A relay's settings, for the application that is this group."""
    return {
        "RELAY_TOPICS__orders__DISPATCH": "stream",
        "RELAY_TOPICS__orders__STREAM__GROUP": group,
        "RELAY_TOPICS__orders__STREAM__MIN_IDLE_TIME": "1",
        "RELAY_TOPICS__orders__RETRY__MAX": "0.1",
        "RELAY_TOPICS__orders__RETRY__MAX_ATTEMPTS": "1000",
        "RELAY_DRAIN_TIMEOUT": "5",
        **more,
    }


def ready(**more: str) -> Mapping[str, str]:
    return {"RELAY_TOPICS__orders__DISPATCH": "list", **more}


def application(stage: Stage, relay: Relay, name: str) -> Application:
    """With a journal of its own."""
    journal = Journal(stage.directory / f"{name}.jsonl")
    started = stage.join(Application(stage.directory, name, relay.target, [TOPIC], journal))
    started.start()
    return started


def emptied(stage: Stage, *groups: str) -> bool:
    """Every group has acknowledged all, keeps nothing beside it, and the stream is trimmed."""
    stream = f"timers_stream:{TOPIC}"
    pending = [stage.client.xpending(stream, group)["pending"] for group in groups]
    own = [f"timers_{kind}:{group}:{TOPIC}" for kind in ("retries", "group") for group in groups]
    return not any((*pending, stage.client.exists(*own), *stage.left(TOPIC), stage.client.xlen(stream)))


def await_progress(stage: Stage, application: Application, starts: int) -> None:
    """Until so many handlers have started, or nothing is left to do."""
    eventually(lambda: application.journal.count("start") > starts or emptied(stage, "audit"), "it goes on")


@pytest.mark.slow
def test_both_groups_get_all_while_one_is_killed(stage: Stage) -> None:
    """A thousand timers; the one application and its relay die again and again, the other notices nothing."""
    chance = random.Random(SEED)
    names = [f"t{n}" for n in range(1000)]
    patient = {"RELAY_TOPICS__orders__STREAM__MIN_IDLE_TIME": "60"}
    billing = stage.relay("billing", fan("billing", **patient))
    audit = stage.relay("audit", fan("audit"))
    quiet, victim = application(stage, billing, "quiet"), application(stage, audit, "victim")
    producer = stage.producer(billing)
    for start in range(0, 1000, 100):
        producer.schedule_many(TOPIC, names[start : start + 100], {"sleep": 0.02}, delay=1.0 + start / 200)
    for kill in range(count(8, 40)):
        more = min(victim.journal.count("start") + chance.randrange(20, 120), 999)
        await_progress(stage, victim, more)
        process = audit if kill % 4 == 3 else victim
        process.kill()
        process.start()
        if process is audit and not victim.running:
            victim.start()
    eventually(lambda: set(victim.journal.ended()) == set(names), "the victim has all", 120.0)
    eventually(lambda: set(quiet.journal.ended()) == set(names), "the other has all")
    eventually(lambda: emptied(stage, "billing", "audit"), "nothing is left", 200.0)
    starts = quiet.journal.events("start")
    assert Counter(event.timer_id for event in starts) == Counter(names)
    late = sorted(event.late for event in starts)
    print(f"late: median {late[500] * 1000:.1f} ms, worst {late[-1] * 1000:.1f} ms")
    assert late[0] >= 0
    both = [{(e.timer_id, e.occurrence) for e in app.journal.events("start")} for app in (quiet, victim)]
    assert both[0] == both[1]


@pytest.mark.slow
def test_a_thousand_jobs_are_a_thousand_entries(stage: Stage) -> None:
    """Two relays promote, and each timer is in the list once; equal messages are there twice."""
    relays = [stage.relay(name, ready()) for name in ("one", "two")]
    producers = [stage.producer(relay) for relay in relays]
    names = [f"t{n}" for n in range(1000)]
    for n, start in enumerate(range(0, 1000, 50)):
        producers[n % 2].schedule_many(TOPIC, names[start : start + 50], b"same", delay=0.5 + 0.05 * n)
    key = f"timers_ready:{TOPIC}"
    eventually(lambda: stage.client.llen(key) == 1000, "all are there")
    entries = [read(raw) for raw in cast("list[bytes]", stage.client.lrange(key, 0, -1))]
    assert Counter(entry.timer_id for entry in entries) == Counter(names)
    assert {entry.payload for entry in entries} == {b"same"}
    assert stage.left(TOPIC) == (0, 0, 0)

    def promoted() -> float:
        lines = [line for relay in relays for line in relay.metrics().splitlines()]
        return sum(
            float(line.split()[-1]) for line in lines if line.startswith("relay_timers_promoted_total")
        )

    eventually(lambda: promoted() == 1000, "each is counted once its relay has the script's reply")


def test_a_worker_by_brpop(stage: Stage) -> None:
    """It waits, and has the job when it is due."""
    relay = stage.relay(settings=ready())
    producer = stage.producer(relay)
    producer.schedule(TOPIC, "first", b"hello", delay=0.3)
    taken = stage.client.brpop([f"timers_ready:{TOPIC}"], timeout=60)
    assert taken is not None
    entry = read(cast("bytes", taken[1]))
    assert (entry.timer_id, entry.payload) == ("first", b"hello")
    seconds, micros = stage.client.time()
    assert seconds + micros / 1e6 >= entry.head["due_time"]


@pytest.mark.slow
def test_the_worker_of_the_examples(stage: Stage) -> None:
    """It takes what is due, and leaves nothing behind."""
    relay = stage.relay(settings=ready(RELAY_TOPICS__orders__LIST__PROCESSING_TIMEOUT="60"))
    stage.producer(relay).schedule_many(TOPIC, ["a", "b"], b"hello")
    worker = stage.process("worker", "examples.workers.worker", TOPIC, stage.server.url, "2")
    assert worker.wait() == 0
    keys = (f"timers_{kind}:{TOPIC}" for kind in ("ready", "processing"))
    assert [stage.client.llen(key) for key in keys] == [0, 0]


@pytest.mark.slow
def test_a_dead_workers_job_comes_back(stage: Stage) -> None:
    """What stays in the processing list is given to the next worker."""
    relay = stage.relay(settings=ready(RELAY_TOPICS__orders__LIST__PROCESSING_TIMEOUT="1"))
    stage.producer(relay).schedule(TOPIC, "job", b"work")
    source, target = f"timers_ready:{TOPIC}", f"timers_processing:{TOPIC}"
    lost = stage.client.brpoplpush(source, target, timeout=60)
    assert lost is not None

    def finished() -> bool:
        """A worker that takes it for longer than the timeout loses it in its turn."""
        again = stage.client.brpoplpush(source, target, timeout=60)
        assert again == lost
        return stage.client.lrem(target, 1, cast("str", again)) == 1

    eventually(finished, "the next worker finishes it")
    eventually(lambda: relay.said("entries given back to the ready list"), "it is told")


def test_who_is_told_what(stage: Stage) -> None:
    """A stream on a topic with a list is refused; Cancel and Get say what has become of a timer that was
    due."""
    relay = stage.relay(settings=ready())
    stage.producer(relay).schedule(TOPIC, "gone")
    eventually(lambda: stage.client.llen(f"timers_ready:{TOPIC}") == 1, "it is promoted")
    cancelled = command("cancel", TOPIC, "gone", "--target", relay.target)
    assert cancelled.code != 0
    assert "can't be cancelled any more" in cancelled.err
    found = command("get", TOPIC, "gone", "--target", relay.target)
    assert found.code != 0
    assert "list" in found.err
    stats = command("stats", TOPIC, "--target", relay.target, "--json").documents[0]
    assert (stats["dispatch"], stats["ready"], stats["timers"]) == ("list", 1, 0)


def test_groups_are_told(stage: Stage) -> None:
    """How each group stands: in the stats, in the metrics, and by the doctor."""
    # Nothing of it is taken for a dead consumer's, however busy the machine is.
    relay = stage.relay(settings=fan("billing", RELAY_TOPICS__orders__STREAM__MIN_IDLE_TIME="600"))
    application(stage, relay, "app")
    producer = stage.producer(relay)
    stage.client.xgroup_create(f"timers_stream:{TOPIC}", "abandoned", "$", mkstream=True)
    producer.schedule_many(TOPIC, ["a", "b"], {"hang": True})
    eventually(lambda: 'relay_group_pending{group="billing",topic="orders"} 2' in relay.metrics(), "told")
    stats = command("stats", TOPIC, "--target", relay.target, "--json").documents[0]
    groups = {each["group"]: each for each in stats["groups"]}
    assert (groups["billing"]["pending"], groups["abandoned"]["pending"]) == (2, 0)
    assert stats["entries"] == 2


def test_faststream_reads_the_same_stream(stage: Stage) -> None:
    """FastStream's own subscriber of streams is a group like any other."""
    relay = stage.relay(settings=fan("billing"))
    ours = application(stage, relay, "ours")
    producer = stage.producer(relay)
    names = [f"t{n}" for n in range(50)]

    async def subscribe() -> list[tuple[str, bytes]]:
        broker = RedisBroker(stage.server.url)
        got: list[tuple[str, bytes]] = []
        done = asyncio.Event()

        stream = StreamSub(f"timers_stream:{TOPIC}", group="faststream", consumer="one", polling_interval=10)

        @broker.subscriber(stream=stream)
        async def handle(body: str, message: RedisStreamMessage) -> None:
            raw = message.raw_message["data"]
            got.append((raw[b"timer_id"].decode(), body.encode()))
            if len(got) == len(names):
                done.set()

        app = FastStream(broker, logger=None)
        async with broker:
            await app.start()
            await asyncio.to_thread(producer.schedule_many, TOPIC, names, b"payload", delay=0.2)
            await asyncio.wait_for(done.wait(), 60)
            await app.stop()
        return got

    got = asyncio.run(subscribe())
    assert sorted(got) == sorted((name, b"payload") for name in names)
    eventually(lambda: set(ours.journal.ended()) == set(names), "ours has them too")
    eventually(lambda: stage.client.xlen(f"timers_stream:{TOPIC}") == 0, "all of it is trimmed")
