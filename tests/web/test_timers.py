"""Timers over HTTP: what can be said, what is answered, and what is refused by name."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import anyio
import pytest

from relay.core.instants import spread_of
from tests.web.described import Reply
from tests.web.rig import Api

pytestmark = pytest.mark.anyio

TIMERS = "/v1/topics/t/timers"
YEAR_2099 = "2099-01-01T00:00:00Z"


async def test_what_an_ok_means(api: Api) -> None:
    """It is asked by the same words as everywhere, and each answer says what it stands for."""
    answer = await api.schedule(message="x", delay_sec=60, timer_id="a", durability="fsync")
    assert (answer.status, answer.value["reached"]) == (201, "fsync")
    assert (await api.schedule(message="x", delay_sec=60, timer_id="a")).value["reached"] == "stored"
    batch = {"timers": [{"delay_sec": 60, "timer_id": "b"}], "durability": "replicas:1"}
    told = await api.call("POST", f"{TIMERS}:batch", batch)
    assert told.value["results"][0]["scheduled"]["reached"] == "replicas:1"
    told = await api.call("DELETE", f"{TIMERS}/a?durability=fsync%2Breplicas:2")
    assert (told.value["cancelled"], told.value["reached"]) == (True, "fsync+replicas:2")
    wrong = await api.schedule(message="x", delay_sec=60, timer_id="c", durability="sync")
    assert (wrong.status, wrong.value["field"]) == (422, "durability")


async def test_a_delay_becomes_a_due_time(api: Api) -> None:
    """201, the absolute due time by the store's clock, and where the timer is."""
    answer = await api.schedule(message="hello", delay_sec=0.25, timer_id="a")
    assert answer.status == 201
    assert answer.headers["location"] == f"{TIMERS}/a"
    assert answer.value["result"] == "CHANGE_RESULT_CREATED"
    assert (await api.get("a"))["due_time"] == answer.value["timer"]["due_time"]
    stored = await api.relay.store.inner.get("t", "a")
    assert stored is not None
    seconds = datetime.fromisoformat(answer.value["timer"]["due_time"])
    assert stored.due == round(seconds.timestamp() * 1e6)


@pytest.mark.parametrize(
    ("fields", "payload", "content_type", "message"),
    [
        ({"message": {"b": 1, "a": [None, "é"]}}, '{"b":1,"a":[null,"é"]}', "application/json", ...),
        ({"message": "héllo"}, "héllo", "text/plain", ...),
        ({"message": None}, "null", "application/json", ...),
        ({"message": 0.1}, "0.1", "application/json", ...),
        ({"message": 12345678901234567890123}, "12345678901234567890123", "application/json", ...),
        ({"message": False}, "false", "application/json", ...),
        ({"message": "x", "content_type": "application/json"}, '"x"', "application/json", ...),
        ({"message": "x", "content_type": "a/b+json"}, '"x"', "a/b+json", ...),
        ({"message": "<a/>", "content_type": "text/xml"}, "<a/>", "text/xml", ...),
        ({"payload": base64.b64encode(b"\0\xff").decode()}, b"\0\xff", "", None),
        ({"payload": "bm8ganNvbg==", "content_type": "a/b+json"}, "no json", "a/b+json", None),
        ({"payload": "/w==", "content_type": "text/plain"}, b"\xff", "text/plain", None),
        ({}, "", "", None),
    ],
)  # fmt: skip
async def test_a_message_is_any_json_or_text(
    api: Api, fields: dict[str, Any], payload: str | bytes, content_type: str, message: Any
) -> None:
    """Text goes as it is, all else as JSON, with the content type that says which; and it is read back so."""
    assert (await api.schedule(**fields, delay_sec=60, timer_id="a")).status == 201
    timer = await api.get("a")
    wanted = payload.encode() if isinstance(payload, str) else payload
    assert base64.b64decode(timer["payload"]) == wanted
    assert timer["content_type"] == content_type
    if message is None:
        assert "message" not in timer
    else:
        assert timer["message"] == fields["message"]


async def test_all_fields_of_a_timer(api: Api) -> None:
    """What gRPC takes, HTTP takes, under the names of the proto or in protobuf's camel case."""
    answer = await api.schedule(
        timer_id="a",
        dueTime="2098-12-31T23:00:00-01:00",
        payload="aGk=",
        headers={"k": "v"},
        content_type="text/x",
        expire_after_sec=1.5,
        mode="create",
    )
    assert answer.status == 201
    timer = await api.get("a")
    assert (timer["due_time"], timer["headers"], timer["message"]) == (YEAR_2099, {"k": "v"}, "hi")


async def test_a_retry_changes_nothing_more(api: Api) -> None:
    """With an id of one's own: 201 and then 200, and one timer."""
    first = await api.call("PUT", f"{TIMERS}/a", {"message": 1, "due_time": YEAR_2099})
    second = await api.call("PUT", f"{TIMERS}/a", {"message": 1, "due_time": YEAR_2099})
    assert (first.status, second.status) == (201, 200)
    assert second.value["replaced"]
    third = await api.schedule(timer_id="a", message=2, delay_sec=1, mode="create")
    assert (third.status, third.value["result"]) == (200, "CHANGE_RESULT_UNCHANGED")
    assert "location" not in third.headers
    listed = await api.call("GET", TIMERS)
    assert [timer["timer_id"] for timer in listed.value["timers"]] == ["a"]
    assert (await api.get("a"))["message"] == 1


async def test_which_timer_stands(api: Api) -> None:
    """As on_conflict says: 200 and UNCHANGED for what was left, one by one and in a batch."""
    first = await api.schedule(timer_id="a", message=1, due_time=YEAR_2099, on_conflict="keep_earliest")
    later: dict[str, Any] = {"timer_id": "a", "message": 2, "due_time": "2099-01-01T00:00:01Z"}
    left = await api.schedule(**later, on_conflict="keep_earliest")
    assert (first.status, left.status) == (201, 200)
    assert (left.value["result"], left.value["timer"]["due_time"]) == ("CHANGE_RESULT_UNCHANGED", YEAR_2099)
    said = {"timers": [later], "on_conflict": "ON_CONFLICT_KEEP_LATEST"}
    answer = await api.call("POST", f"{TIMERS}:batch", said)
    assert answer.value["results"][0]["scheduled"]["result"] == "CHANGE_RESULT_REPLACED"
    assert (await api.get("a"))["message"] == 2


async def test_a_debounced_timer(api: Api) -> None:
    """By both forms of a length; it stays within the first limit."""
    path = f"{TIMERS}/a"
    first = await api.call("PUT", path, {"message": 1, "debounce_sec": 3600, "at_most": "3600s"})
    again = await api.call("PUT", path, {"message": 2, "debounce": "9000s", "at_most_sec": 9000})
    assert (first.status, again.status) == (201, 200)
    assert again.value["timer"]["due_time"] == first.value["timer"]["due_time"]
    assert (await api.get("a"))["message"] == 2


async def test_a_spread_timer(api: Api) -> None:
    """At the place that its id has in the window."""
    place = spread_of("a", 600_000_000)
    answer = await api.schedule(timer_id="a", message=1, due_time=YEAR_2099, spread_sec=600)
    due = datetime.fromisoformat(answer.value["timer"]["due_time"])
    assert due - datetime.fromisoformat(YEAR_2099) == timedelta(microseconds=place)


async def test_without_an_id_each_call_makes_a_timer(api: Api) -> None:
    answers = [await api.schedule(message=1, delay_sec=60) for _ in range(3)]
    assert len({answer.headers["location"] for answer in answers}) == 3
    for answer in answers:
        assert (await api.call("GET", answer.headers["location"])).status == 200


@pytest.mark.parametrize("timer_id", ["a/b", "a:run", "…", "a b?c#d%2F", ".."])
async def test_ids_of_any_letters(api: Api, timer_id: str) -> None:
    """Percent-encoded, in paths; where the timer is told to be, it is."""
    answer = await api.schedule(timer_id=timer_id, message=1, delay_sec=60)
    where = answer.headers["location"]
    assert (await api.call("GET", where)).value["timer"]["timer_id"] == timer_id
    assert (await api.call("POST", f"{where}:run", {})).value["result"] == "CHANGE_RESULT_RUN"
    assert (await api.call("DELETE", where)).value["cancelled"]
    assert (await api.call("GET", where)).status == 404


async def test_the_callers_trace_is_kept(api: Api) -> None:
    """As with gRPC: `traceparent` and `tracestate` go into the headers, unless they have a trace."""
    trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "x=1"}
    for timer_id, headers in (("a", {}), ("b", {"traceparent": "own"})):
        body = {"message": 1, "delay_sec": 60, "headers": headers}
        assert (await api.call("PUT", f"{TIMERS}/{timer_id}", body, headers=trace)).status == 201
    assert (await api.get("a"))["headers"] == trace
    assert (await api.get("b"))["headers"] == {"traceparent": "own"}


async def test_cancel_can_be_repeated(api: Api) -> None:
    await api.schedule(timer_id="a", message=1, delay_sec=60)
    answers = [await api.call("DELETE", f"{TIMERS}/a") for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert [answer.value["cancelled"] for answer in answers] == [True, False]


async def test_conditions(api: Api) -> None:
    """412 where the condition does not hold, 404 where there is no timer to hold it against."""
    await api.schedule(timer_id="a", message=1, due_time=YEAR_2099)
    other = "2099-01-01T00:00:01Z"
    body = {"message": 2, "delay_sec": 1, "condition": {"due_time": other}}
    refused = await api.call("PUT", f"{TIMERS}/a", body)
    assert (refused.status, refused.value["answer"]["timer"]["due_time"]) == (412, YEAR_2099)
    assert (await api.call("DELETE", f"{TIMERS}/a?due_time={other}")).status == 412
    assert (await api.call("PUT", f"{TIMERS}/b", body)).status == 404
    assert (await api.get("a"))["message"] == 1
    held = await api.call("DELETE", f"{TIMERS}/a?due_time={YEAR_2099}&only_if_pending=true")
    assert (held.status, held.value["cancelled"]) == (200, True)
    assert (await api.call("DELETE", f"{TIMERS}/a?only_if_pending=true")).status == 200


async def test_what_is_being_delivered(api: Api) -> None:
    """It is LEASED, runs already, and is not `only_if_pending`."""
    await api.schedule(timer_id="a", message=1, delay_sec=0)
    stream = await api.relay.stream().open("t")
    delivery = await stream.delivery()
    assert (await api.get("a"))["state"] == "TIMER_STATE_LEASED"
    running = await api.call("POST", f"{TIMERS}/a:run", {})
    told = {"result": "CHANGE_RESULT_IN_FLIGHT", "delivery_under_way": True, "reached": "stored"}
    assert running.value == told
    assert (await api.call("DELETE", f"{TIMERS}/a?only_if_pending=true")).status == 412
    listed = await api.call("GET", f"{TIMERS}?state=leased")
    assert [timer["timer_id"] for timer in listed.value["timers"]] == ["a"]
    assert (await api.call("GET", f"{TIMERS}?state=pending")).value["timers"] == []
    await stream.ack([delivery])
    await stream.finish()


async def test_changes_of_what_is_being_delivered(api: Api) -> None:
    """Each tells that a delivery was under way, once."""
    stream = await api.relay.stream().open("t")
    for method, path, body in (
        ("PUT", f"{TIMERS}/a", {"message": 2, "delay_sec": 60}),
        ("DELETE", f"{TIMERS}/a", None),
    ):
        await api.schedule(timer_id="a", message=1, delay_sec=0)
        await stream.delivery()
        answers = [await api.call(method, path, body) for _ in range(2)]
        assert [answer.value["delivery_under_way"] for answer in answers] == [True, False]


async def test_pages(api: Api) -> None:
    """Page by page, each timer once, in the order of their due times, without payloads."""
    for index in range(5):
        await api.schedule(timer_id=f"a{index}", message=1, delay_sec=60 + index)
    seen: list[str] = []
    path = f"{TIMERS}?page_size=2"
    while True:
        page = (await api.call("GET", path)).value
        assert len(page["timers"]) <= 2
        seen += [timer["timer_id"] for timer in page["timers"]]
        assert not any("payload" in timer for timer in page["timers"])
        if not page["next_page_token"]:
            break
        path = f"{TIMERS}?page_size=2&page_token={quote(page['next_page_token'])}"
    assert seen == [f"a{index}" for index in range(5)]


async def test_a_batch_has_a_result_for_each(api: Api) -> None:
    """A bad one stops no other, and its field has the name that the caller gave it."""
    api.relay.tune(max_payload_bytes=4)
    answer = await api.call(
        "POST",
        f"{TIMERS}:batch",
        {
            "timers": [
                {"timer_id": "a", "message": 1, "delay_sec": 60},
                {"timer_id": "{", "message": 1, "delay_sec": 60},
                {"message": "too long", "delay_sec": 60},
                {"message": 1},
                {"message": 1, "due_time": YEAR_2099},
            ]
        },
    )
    results = answer.value["results"]
    assert [result.get("error", {}).get("field") for result in results] == [
        *(None, "timer_id", "message", "due_time", None)
    ]
    assert results[2]["error"]["message"].startswith("message: is 8 bytes long")
    assert results[0]["scheduled"]["timer"]["timer_id"] == "a"
    listed = await api.call("GET", TIMERS)
    assert len(listed.value["timers"]) == 2


GOOD = {"message": 1, "delay_sec": 60}
LONG = "x" * 257


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"topic": "u"}, "topic"),
        ({"timer_id": 5}, "timer_id"),
        ({"timer_id": LONG}, "timer_id"),
        ({"timer_id": "a{"}, "timer_id"),
        ({"timer_id": "\ud800"}, "timer_id"),
        ({"mode": "\ud800"}, "mode"),
        ({"delay_sec": -0.1}, "delay_sec"),
        ({"delay_sec": "1"}, "delay_sec"),
        ({"delay_sec": True}, "delay_sec"),
        ({"delay_sec": 1e300}, "delay_sec"),
        ({"delay_sec": [1]}, "delay_sec"),
        ({"delay_sec": None}, "due_time"),
        ({"delay": "1s"}, "delay"),
        ({"delay": 1, "delay_sec": None}, "delay"),
        ({"due_time": YEAR_2099}, "due_time"),
        ({"due_time": "tomorrow", "delay_sec": None}, "due_time"),
        ({"due_time": 4070908800, "delay_sec": None}, "due_time"),
        ({"due_time": "1969-12-31T23:59:59Z", "delay_sec": None}, "due_time"),
        ({"due_time": "2099-01-01", "delay_sec": None}, "due_time"),
        ({"payload": "aGk="}, "payload"),
        ({"payload": "a*k=", "message": ...}, "payload"),
        ({"payload": "aGkaa", "message": ...}, "payload"),
        ({"payload": {"a": 1}, "message": ...}, "payload"),
        ({"message": "x" * 101}, "message"),
        ({"message": "\udc00"}, "message"),
        ({"headers": ["a"]}, "headers"),
        ({"headers": {"a": 1}}, "headers"),
        ({"headers": {"": "x"}}, "headers"),
        ({"headers": {"a": None}}, "headers"),
        ({"headers": {"a": "\ud800"}}, "headers"),
        ({"content_type": 1}, "content_type"),
        ({"content_type": LONG}, "content_type"),
        ({"expire_time": "2000-01-01T00:00:00"}, "expire_time"),
        ({"expire_time": YEAR_2099, "expire_after": "1s"}, "expire_time"),
        ({"expire_after": "never"}, "expire_after"),
        ({"expire_after_sec": 0}, "expire_after_sec"),
        ({"mode": "upsert"}, "mode"),
        ({"mode": 7}, "mode"),
        ({"mode": {}}, "mode"),
        ({"condition": 1}, "condition"),
        ({"condition": {"due_time": "x"}}, "condition.due_time"),
        ({"condition": {"only_if_pending": "yes"}}, "condition.only_if_pending"),
        ({"condition": {"if": 1}}, "condition.if"),
        ({"condition": {"only_if_pending": True}, "mode": "create"}, "condition"),
        ({"on_conflict": "keep"}, "on_conflict"),
        ({"on_conflict": 9}, "on_conflict"),
        ({"on_conflict": "replace", "mode": "replace"}, "on_conflict"),
        ({"debounce_sec": 5}, "debounce_sec"),
        ({"debounce_sec": 5, "delay_sec": None}, "timer_id"),
        ({"debounce_sec": 0, "delay_sec": None, "timer_id": "a"}, "debounce_sec"),
        ({"debounce": "5s", "at_most_sec": 4, "delay_sec": None, "timer_id": "a"}, "at_most_sec"),
        ({"debounce": "5s", "on_conflict": "replace", "delay_sec": None, "timer_id": "a"}, "debounce"),
        ({"at_most_sec": 4}, "at_most_sec"),
        ({"spread_sec": -1}, "spread_sec"),
        ({"spread_sec": "1"}, "spread_sec"),
        ({"spread": "soon"}, "spread"),
    ],
)
async def test_bad_fields_are_named(api: Api, changes: dict[str, Any], field: str) -> None:
    """Every field, in every way in which it can be wrong; and nothing is stored."""
    api.relay.tune(max_payload_bytes=100)
    body = {name: value for name, value in {**GOOD, **changes}.items() if value is not ...}
    answer = await api.call("POST", TIMERS, body)
    assert (answer.status, answer.field) == (422, field)
    assert answer.value["detail"].startswith(f"{field}: ")
    assert (await api.call("GET", TIMERS)).value["timers"] == []


async def refused(api: Api, method: str, path: str, body: Any = None) -> Reply:
    answer = await api.call(method, path) if body is None else await api.call(method, path, body)
    assert answer.status == 422, answer
    return answer


@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("GET", "/v1/topics//timers", "topic"),
        ("GET", f"/v1/topics/{LONG}/timers", "topic"),
        ("GET", "/v1/topics/%7B/timers", "topic"),
        ("GET", "/v1/topics/%FF/timers", "topic"),
        ("PUT", f"{TIMERS}/", "timer_id"),
        ("GET", f"{TIMERS}/", "timer_id"),
        ("DELETE", f"{TIMERS}/%00", "timer_id"),
        ("GET", f"{TIMERS}?state=gone", "state"),
        ("GET", f"{TIMERS}?state=9", "state"),
        ("GET", f"{TIMERS}?page_size=-1", "page_size"),
        ("GET", f"{TIMERS}?page_size=501", "page_size"),
        ("GET", f"{TIMERS}?page_size=", "page_size"),
        ("GET", f"{TIMERS}?page_size=1&page_size=2", "page_size"),
        ("GET", f"{TIMERS}?topic=u", "topic"),
        ("GET", f"{TIMERS}?page_token=%FF", "query"),
        ("DELETE", f"{TIMERS}/a?only_if_pending=1", "only_if_pending"),
        ("DELETE", f"{TIMERS}/a?due_time=x", "due_time"),
        ("DELETE", f"{TIMERS}/a?force=true", "force"),
    ],
)
async def test_bad_paths_and_queries_are_named(api: Api, method: str, path: str, field: str) -> None:
    answer = await refused(api, method, path, GOOD if method == "PUT" else None)
    assert answer.field == field


async def test_bodies_of_batches_are_named_by_place(api: Api) -> None:
    for body, field in (
        ({"timers": [GOOD, {"message": 1, "in": 5}]}, "timers[1].in"),
        ({"timers": [GOOD, 5]}, "timers[1]"),
        ({"timers": {}}, "timers"),
        ({"timers": [], "mode": "no"}, "mode"),
        ({"timers": [GOOD] * 3, "condition": {}}, "condition"),
        ([], "body"),
    ):
        assert (await refused(api, "POST", f"{TIMERS}:batch", body)).field == field


async def test_many_callers_at_once(api: Api) -> None:
    """Each has its own timer, and its own answer."""
    answers: dict[str, Reply] = {}

    async def one(timer_id: str) -> None:
        answers[timer_id] = await api.schedule(timer_id=timer_id, message=timer_id, delay_sec=60)

    async with anyio.create_task_group() as tasks:
        for index in range(100):
            tasks.start_soon(one, f"a{index}")
    assert {answer.status for answer in answers.values()} == {201}
    assert all(answer.value["timer"]["timer_id"] == name for name, answer in answers.items())
    listed = await api.call("GET", f"{TIMERS}?page_size=500")
    assert len(listed.value["timers"]) == 100
