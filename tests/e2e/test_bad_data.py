"""What others may have left in Redis: it neither stops the loop nor touches another timer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from tests.judge import stands
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import always, eventually

TOPIC = "orders"
TIMELINE, PAYLOADS, LEASES = (f"timers_{kind}:{TOPIC}" for kind in ("timeline", "payloads", "leases"))
ODD_TOPIC = "odd"
BAD_ID = b"\xff\xfe\x80"

Deed = Callable[[redis.Redis], object]
DEEDS: dict[str, Deed] = {
    "entry without payload": lambda client: client.zadd(TIMELINE, {"bad": 1.0}),
    "entry without payload, long past": lambda client: client.zadd(TIMELINE, {"bad": "-inf"}),
    "entry that is never due": lambda client: client.zadd(TIMELINE, {"bad": "inf"}),
    "payload without entry": lambda client: client.hset(PAYLOADS, "bad", b"x"),
    "record without entry": lambda client: client.hset(LEASES, "bad", b"x"),
    "name that is not UTF-8": lambda client: (
        client.hset(PAYLOADS, BAD_ID, b"x"),
        client.zadd(TIMELINE, {BAD_ID: 1.0}),
    ),
    "name that is empty": lambda client: (client.hset(PAYLOADS, "", b"x"), client.zadd(TIMELINE, {"": 1.0})),
}


@pytest.mark.slow
@pytest.mark.parametrize("deed", DEEDS)
def test_others_are_delivered(stage: Stage, deed: str) -> None:
    """Timers before, beside and after it are delivered once each, and the relay stays ready."""
    settings = {"RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "0.5", "RELAY_REDIS__COMMAND_TIMEOUT": "60"}
    relay = stage.relay(settings=settings)  # for which a slow Redis is not away
    producer = stage.producer(relay)
    producer.schedule_many(TOPIC, ["before-1", "before-2"])
    DEEDS[deed](stage.client)
    stage.application(relay, TOPIC)
    producer.schedule_many(TOPIC, ["beside-1", "beside-2"])
    DEEDS[deed](stage.client)
    producer.schedule(TOPIC, "after")
    wanted = {"before-1", "before-2", "beside-1", "beside-2", "after"}
    eventually(lambda: wanted <= stage.journal.ended().keys(), "the others are handled")
    always(lambda: relay.probe("/healthz/ready") == 200, "ready", 0.5)
    assert {name: count for name, count in stage.journal.ended().items() if name in wanted} == dict.fromkeys(
        wanted, 1
    )
    entries = {name for name, _ in stage.client.zscan_iter(TIMELINE)}
    assert not entries & {name.encode() for name in wanted}, "the others are committed"
    assert relay.said("Redis is away") == 0
    lines = len(relay.lines())
    always(lambda: len(relay.lines()) < lines + 3, "the log is quiet", 1.0)
    assert relay.terminate() == 0


def test_the_judge_looks_for_it(stage: Stage) -> None:
    """A test may end while a journal says that a timer lives whose id is not UTF-8."""
    stage.client.zadd(TIMELINE, {BAD_ID: 1.0})
    stage.client.hset(LEASES, BAD_ID, b"x")
    assert stands(stage.client, TOPIC, BAD_ID.decode(errors="surrogateescape")) == (True, True)
    assert stands(stage.client, TOPIC, "other") == (False, False)


ENVELOPES = {
    "empty": b"",
    "no envelope": b"\x00\xff\xfe garbage",
    "magic alone": b"\x89BIN\x0d\x0a\x1a\x0a",
    "cut off": b"\x89BIN\x0d\x0a\x1a\x0a\x00\x01\x00\x00\x00\x12\x00\x00\x00\x2a",
    "wild lengths": b"\x89BIN\x0d\x0a\x1a\x0a\x00\x01" + b"\xff" * 40,
    "JSON": b'{"data": "x", "headers": {}}',
}


@pytest.mark.parametrize("kind", ENVELOPES)
def test_payload_that_is_no_envelope(stage: Stage, kind: str) -> None:
    """It is delivered as it is, with headers or without, and its neighbours as ever."""
    relay = stage.relay(settings={"RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "0.5"})
    stage.client.hset(PAYLOADS, "bad", ENVELOPES[kind])
    stage.client.zadd(TIMELINE, {"bad": 1.0})
    stage.producer(relay).schedule_many(TOPIC, ["one", "two"])
    stage.application(relay, TOPIC)
    eventually(lambda: {"one", "two", "bad"} <= stage.journal.ended().keys(), "all are handled")
    stage.wait_empty(TOPIC)
    assert set(stage.journal.ended().values()) == {1}


RECORDS = {"junk": b"junk", "right length": b"\x01" * 61, "older version": b"\x01" + b"\0" * 68}


@pytest.mark.parametrize("kind", RECORDS)
def test_record_that_is_none(stage: Stage, kind: str) -> None:
    """A lease record that makes no sense counts as none: the timer is delivered."""
    relay = stage.relay()
    producer = stage.producer(relay)
    producer.schedule_many(TOPIC, ["bad", "good"])
    stage.client.hset(LEASES, "bad", RECORDS[kind])
    stage.application(relay, TOPIC)
    eventually(lambda: {"bad", "good"} <= stage.journal.ended().keys(), "both are handled")
    stage.wait_empty(TOPIC)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["timeline", "payloads", "leases"])
def test_wrong_type(stage: Stage, kind: str) -> None:
    """A key of another type stops its own topic alone, is told once, and costs no timer once it is gone."""
    relay = stage.relay(settings={"RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "0.5"})
    producer = stage.producer(relay)
    key, wanted_type = f"timers_{kind}:{ODD_TOPIC}", "zset" if kind == "timeline" else "hash"
    if kind == "leases":
        producer.schedule(ODD_TOPIC, "standing")
    stage.client.set(key, "mine")
    if kind == "payloads":
        stage.client.zadd(f"timers_timeline:{ODD_TOPIC}", {"entry": 1.0})
    stage.application(relay, [TOPIC, ODD_TOPIC])
    producer.schedule_many(TOPIC, [f"t{n}" for n in range(20)], spread=2.0)
    stage.wait_empty(TOPIC)
    assert relay.probe("/healthz/ready") == 200
    assert stage.client.get(key) == b"mine"
    assert [line["reason"] for line in relay.lines() if line["message"] == "Redis refuses to claim"] == [
        f"{key} holds a string, not a {wanted_type}; move it away or set another key prefix"
    ]

    stage.client.delete(key)
    if kind == "payloads":
        stage.client.delete(f"timers_timeline:{ODD_TOPIC}")
    producer.schedule(ODD_TOPIC, "afterwards")
    wanted = {"afterwards", "standing"} if kind == "leases" else {"afterwards"}
    eventually(lambda: wanted <= stage.journal.ended().keys(), "the topic works again")
