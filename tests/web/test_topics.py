"""Topics and dead letters over HTTP, on a real server."""

from __future__ import annotations

from typing import Any

import pytest

from relay.v1 import delivery_service_pb2 as pb
from tests.keyspace import Keyspace
from tests.web.rig import Api
from tests.worlds.engine.stubs import REJECT, settlement
from tests.worlds.waiting import until

pytestmark = pytest.mark.anyio

TOPIC = "/v1/topics/t"


@pytest.fixture(autouse=True)
def adopted(keyspace: Keyspace) -> None:
    keyspace.adopt("t")


async def die(api: Api, *timer_ids: str) -> list[Any]:
    """Dead letters of these timers."""
    for timer_id in timer_ids:
        await api.schedule(timer_id=timer_id, message={"of": timer_id}, delay_sec=0)
    stream = await api.relay.stream().open("t")
    deliveries: list[pb.Delivery] = await stream.deliveries(len(timer_ids))
    await stream.settle(*(settlement(each.token, REJECT, reason="broken") for each in deliveries))
    await stream.finish()
    found: list[Any] = (await api.call("GET", f"{TOPIC}/dead-letters")).value["dead_letters"]
    assert {letter["timer_id"] for letter in found} == set(timer_ids)
    return found


async def test_how_topics_stand(api_on_valkey: Api) -> None:
    api = api_on_valkey
    await api.schedule(message=1, delay_sec=0)
    await api.schedule(message=1, delay_sec=60)
    topic = (await api.call("GET", TOPIC)).value["topic"]
    assert (topic["timers"], topic["due"], topic["paused"]) == ("2", "1", False)

    async def listed() -> bool:
        return bool((await api.call("GET", "/v1/topics")).value["topics"])

    await until(listed, "the topic is registered")
    assert [each["topic"] for each in (await api.call("GET", "/v1/topics?page_size=1")).value["topics"]] == [
        "t"
    ]
    assert (await api.call("GET", "/v1/topics/unheard-of")).value["topic"]["timers"] == "0"


async def test_a_pause_and_its_end(api_on_valkey: Api) -> None:
    api = api_on_valkey
    paused = (await api.call("POST", f"{TOPIC}:pause", {"duration_sec": 60})).value["topic"]
    assert paused["paused"]
    assert "paused_until" in paused
    for_ever = (await api.call("POST", f"{TOPIC}:pause", raw=b"")).value["topic"]
    assert "paused_until" not in for_ever
    assert not (await api.call("POST", f"{TOPIC}:resume", {})).value["topic"]["paused"]


async def test_dead_letters(api_on_valkey: Api) -> None:
    """Listed without payloads, read with them, brought back, removed."""
    api = api_on_valkey
    first, second = sorted(await die(api, "a", "b"), key=lambda letter: str(letter["timer_id"]))
    assert "payload" not in first
    assert (first["reason"], first["last_error"]) == ("rejected", "broken")
    one = await api.call("GET", f"{TOPIC}/dead-letters/{first['dead_id']}")
    assert one.value["dead_letter"]["message"] == {"of": "a"}
    filtered = await api.call("GET", f"{TOPIC}/dead-letters?timer_id=b&died_since={first['death_time']}")
    assert [letter["timer_id"] for letter in filtered.value["dead_letters"]] == ["b"]
    ids = [first["dead_id"], "1-1"]
    redriven = await api.call("POST", f"{TOPIC}/dead-letters:redrive", {"dead_ids": ids})
    assert redriven.value["results"] == ["REDRIVE_RESULT_REDRIVEN", "REDRIVE_RESULT_NOT_FOUND"]
    assert (await api.get("a"))["state"] == "TIMER_STATE_PENDING"
    purged = await api.call("POST", f"{TOPIC}/dead-letters:purge", {"dead_ids": [second["dead_id"]]})
    assert purged.value["purged"] == 1
    assert (await api.call("GET", f"{TOPIC}/dead-letters/{second['dead_id']}")).status == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", ":pause", {"duration_sec": -1}, "duration_sec"),
        ("POST", ":pause", {"until": "2000-01-01T00:00:00Z"}, "until"),
        ("POST", ":pause", {"until": "2099-01-01T00:00:00Z", "duration_sec": "x"}, "duration_sec"),
        ("POST", ":pause", {"for": 1}, "for"),
        ("POST", ":pause", {"topic": "u"}, "topic"),
        ("POST", ":resume", {"now": True}, "now"),
        ("POST", ":reshard", {}, "partitions"),
        ("POST", ":reshard", {"partitions": 3}, "partitions"),
        ("POST", ":reshard", {"partitions": "two"}, "partitions"),
        ("POST", ":reshard", {"partitions": 2, "max_rate": -1}, "max_rate"),
        ("POST", "/dead-letters:redrive", {}, "dead_ids"),
        ("POST", "/dead-letters:redrive", {"dead_ids": "1-1"}, "dead_ids"),
        ("POST", "/dead-letters:redrive", {"dead_ids": [1]}, "dead_ids"),
        ("POST", "/dead-letters:redrive", {"dead_ids": ["1-1", "1-1"]}, "dead_ids"),
        ("POST", "/dead-letters:purge", {"dead_ids": ["1-1"] * 501}, "dead_ids"),
        ("GET", "/dead-letters?page_size=501", None, "page_size"),
        ("GET", "/dead-letters?died_before=x", None, "died_before"),
        ("GET", "/dead-letters?filter=x", None, "filter"),
        ("GET", "/dead-letters?page_token=x", None, "page_token"),
        ("GET", "/dead-letters/x", None, "dead_id"),
    ],
)
async def test_bad_input(api_on_valkey: Api, method: str, path: str, body: Any, field: str) -> None:
    answer = await api_on_valkey.call(method, TOPIC + path, **({} if body is None else {"body": body}))
    assert (answer.status, answer.field) == (422, field)
