"""Receiving over HTTP: leases that outlive a call, outcomes that come in another, callers who go."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from starlette.requests import ClientDisconnect

from relay.api import deliveries
from relay.core.endpoints import addresses
from relay.core.errors import StoreUnavailable
from relay.core.policy import RetryPolicy
from relay.web import handover
from relay.web.handover import Carrying, attended, hand_over
from tests.web.described import Reply
from tests.web.rig import Api, with_api
from tests.worlds.engine.served import served
from tests.worlds.engine.stubs import LATER
from tests.worlds.waiting import until

pytestmark = pytest.mark.anyio

RECEIVE = "/v1/topics/t/deliveries:receive"
SETTLE = "/v1/topics/t/deliveries:settle"
AT_ONCE = RetryPolicy(initial=0.0)
NOBODY = base64.b64encode(b"x" * 18).decode()


async def receive(api: Api, **fields: Any) -> list[Any]:
    answer = await api.call("POST", RECEIVE, fields)
    assert answer.status == 200, answer
    deliveries: list[Any] = answer.value["deliveries"]
    return deliveries


async def one(api: Api, **fields: Any) -> Any:
    (delivery,) = await receive(api, **fields)
    return delivery


async def settle(api: Api, *settlements: dict[str, Any]) -> list[str]:
    """The reasons of the problems."""
    answer = await api.call("POST", SETTLE, {"settlements": settlements})
    assert answer.status == 200, answer
    return [problem["reason"].removeprefix("PROBLEM_REASON_") for problem in answer.value["problems"]]


async def end(api: Api, delivery: Any, outcome: str = "ack", **fields: Any) -> list[str]:
    return await settle(api, {"token": delivery["token"], "outcome": outcome, **fields})


async def stored(api: Api, timer_id: str = "a") -> Any:
    return await api.relay.store.inner.get("t", timer_id)


async def nothing_is_held(api: Api) -> None:
    async def idle() -> bool:
        return not api.relay.engine._dispatcher.sessions()

    await until(idle, "no session is left")


async def test_a_timer_is_received_and_acknowledged(api: Api) -> None:
    await api.schedule(timer_id="a", message={"x": 1}, delay_sec=0, headers={"k": "v"})
    delivery = await one(api)
    assert (delivery["topic"], delivery["timer_id"], delivery["attempt"]) == ("t", "a", 1)
    assert (delivery["message"], delivery["headers"]) == ({"x": 1}, {"k": "v"})
    assert (await api.get("a"))["state"] == "TIMER_STATE_LEASED"
    assert await end(api, delivery) == []
    assert await stored(api) is None
    await nothing_is_held(api)


@pytest.mark.parametrize(
    "payload",
    [
        b'"\\ud800"',
        b'{"\\ud800": 1}',
        b"[1e999]",
        b'{"a": 1, "a": 2}',
        b"[" * 20_000,
    ],
)
async def test_json_that_can_t_be_said_again(api: Api, payload: bytes) -> None:
    """It stands in `payload` alone. Were it an error, nobody could receive the timer, for ever."""
    text = base64.b64encode(payload).decode()
    answer = await api.schedule(timer_id="a", payload=text, content_type="application/json", delay_sec=0)
    assert answer.status == 201
    delivery = await one(api)
    assert base64.b64decode(delivery["payload"]) == payload
    assert (await api.get("a"))["payload"] == text
    assert await end(api, delivery) == []


async def test_a_caller_waits_until_a_timer_is_due(api: Api) -> None:
    """Whoever asks before it is due gets it when it is, and not early."""
    found: list[Any] = []

    async def wait() -> None:
        found.extend(await receive(api, wait_sec=60))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await until(lambda: _sessions(api, 1), "it waits")
        answer = await api.schedule(timer_id="a", message=1, delay_sec=0.3)
    (delivery,) = found
    assert delivery["due_time"] == answer.value["timer"]["due_time"]
    assert await end(api, delivery) == []


async def _sessions(api: Api, count: int) -> bool:
    return len(api.relay.engine._dispatcher.sessions()) == count


async def test_without_timers_the_answer_is_empty(api: Api) -> None:
    await api.schedule(timer_id="a", message=1, delay_sec=60)
    assert await receive(api, wait_sec=0) == []
    await nothing_is_held(api)


async def test_no_more_than_asked_for(api: Api) -> None:
    """The rest stays for others."""
    for index in range(5):
        await api.schedule(timer_id=f"a{index}", message=1, delay_sec=0)
    first = await receive(api, max_deliveries=2)
    rest = await receive(api, max_deliveries=500)
    assert (len(first), len(rest)) == (2, 3)
    assert len({delivery["timer_id"] for delivery in first + rest}) == 5
    problems = await settle(
        api, *({"token": delivery["token"], "outcome": "OUTCOME_ACK"} for delivery in first + rest)
    )
    assert problems == []
    assert (await api.call("GET", "/v1/topics/t/timers")).value["timers"] == []


async def test_every_outcome(api: Api) -> None:
    """NACK comes again and counts, EXTEND is no end, RESCHEDULE begins anew, REJECT is the end."""
    api.relay.tune(retry=AT_ONCE)
    await api.schedule(timer_id="a", message=1, delay_sec=0)
    delivery = await one(api)
    assert await end(api, delivery, "extend") == []
    assert await end(api, delivery, "nack", retry_after_sec=0, reason="busy") == []
    delivery = await one(api)
    assert delivery["attempt"] == 2
    changed = base64.b64encode(b"2").decode()
    assert await end(api, delivery, "reschedule", reschedule={"delay_sec": 0, "payload": changed}) == []
    again = await one(api)
    assert (again["attempt"], again["message"]) == (1, 2)
    assert again["occurrence_id"] != delivery["occurrence_id"]
    assert await end(api, again, "reschedule", reschedule={"delay": "0s", "message": {"n": 3}}) == []
    again = await one(api)
    assert again["message"] == {"n": 3}
    assert await end(api, again, "reject", reason="broken") == []
    assert await stored(api) is None


async def test_problems(api: Api) -> None:
    """Only what changed nothing is answered, with its token and the reason; the others stand."""
    api.relay.tune(retry=AT_ONCE)
    for timer_id in "abcd":
        await api.schedule(timer_id=timer_id, message=1, delay_sec=0)
    tokens = {each["timer_id"]: each["token"] for each in await receive(api, max_deliveries=10)}
    assert (await api.call("DELETE", "/v1/topics/t/timers/b")).value["cancelled"]
    await api.schedule(timer_id="c", message=2, delay_sec=60)
    answer = await api.call(
        "POST",
        SETTLE,
        {
            "settlements": [
                *({"token": tokens[timer_id], "outcome": "ack"} for timer_id in "abc"),
                {"token": tokens["a"], "outcome": "nack"},
                {"token": NOBODY, "outcome": "ack"},
                {"token": tokens["d"]},
                {"token": tokens["d"], "outcome": "nack", "retry_after": "-1s"},
                {"token": tokens["d"], "outcome": "ack", "reschedule": {"delay_sec": 1}},
            ]
        },
    )
    said = [
        (each["token"], each["reason"].removeprefix("PROBLEM_REASON_")) for each in answer.value["problems"]
    ]
    assert sorted(said) == sorted(
        [
            (tokens["b"], "GONE"),
            (tokens["c"], "STALE"),
            (tokens["a"], "DUPLICATE"),
            (NOBODY, "UNKNOWN_TOKEN"),
            *[(tokens["d"], "INVALID")] * 3,
        ]
    )
    assert await settle(api, {"token": tokens["d"], "outcome": "ack"}) == []
    assert [await stored(api, timer_id) is None for timer_id in "abcd"] == [True, True, False, True]
    await nothing_is_held(api)


async def test_a_token_is_of_its_topic(api: Api) -> None:
    await api.schedule(timer_id="a", message=1, delay_sec=0)
    delivery = await one(api)
    other = await api.call(
        "POST",
        "/v1/topics/u/deliveries:settle",
        {"settlements": [{"token": delivery["token"], "outcome": "ack"}]},
    )
    assert other.value["problems"][0]["reason"] == "PROBLEM_REASON_UNKNOWN_TOKEN"
    assert await end(api, delivery) == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (RECEIVE, {"max_deliveries": 0}, "max_deliveries"),
        (RECEIVE, {"max_deliveries": 501}, "max_deliveries"),
        (RECEIVE, {"max_deliveries": 1.5}, "max_deliveries"),
        (RECEIVE, {"max_deliveries": True}, "max_deliveries"),
        (RECEIVE, {"wait_sec": -1}, "wait_sec"),
        (RECEIVE, {"wait_sec": 61}, "wait_sec"),
        (RECEIVE, {"wait_sec": "1"}, "wait_sec"),
        (RECEIVE, {"visibility_sec": 0}, "visibility_sec"),
        (RECEIVE, {"visibility_sec": 601}, "visibility_sec"),
        (RECEIVE, {"visibility_sec": 10**400}, "visibility_sec"),
        (RECEIVE, {"topic": "t"}, "topic"),
        (SETTLE, {"settlements": [{"token": NOBODY, "outcome": "\ud800"}]}, "settlements[0].outcome"),
        (RECEIVE, [], "body"),
        (SETTLE, {}, "settlements"),
        (SETTLE, {"settlements": []}, "settlements"),
        (SETTLE, {"settlements": [{"token": NOBODY, "outcome": "ack"}] * 501}, "settlements"),
        (SETTLE, {"settlements": [{"token": "*", "outcome": "ack"}]}, "settlements[0].token"),
        (SETTLE, {"settlements": [{"token": NOBODY, "outcome": "done"}]}, "settlements[0].outcome"),
        (
            SETTLE,
            {"settlements": [{"token": NOBODY, "retry_after_sec": -1}]},
            "settlements[0].retry_after_sec",
        ),
        (SETTLE, {"settlements": [{"reschedule": {"in": 1}}]}, "settlements[0].reschedule.in"),
        (SETTLE, {"received": []}, "received"),
        (SETTLE, {"acknowledged": []}, "acknowledged"),
        ("/v1/topics/pushed/deliveries:receive", {}, "topic"),
        ("/v1/topics/pushed/deliveries:settle", {"settlements": [{"token": NOBODY}]}, "topic"),
        ("/v1/topics/%7B/deliveries:receive", {}, "topic"),
    ],
)
async def test_bad_fields_are_named(api: Api, path: str, body: Any, field: str) -> None:
    api.relay.tune("pushed", target="127.0.0.1:1")
    answer = await api.call("POST", path, body)
    assert (answer.status, answer.field) == (422, field)
    await nothing_is_held(api)


async def test_without_an_outcome_it_comes_again(api: Api) -> None:
    """After its visibility, and counted; what is said of it later is stale, and changes nothing."""
    api.relay.tune(retry=AT_ONCE)
    await api.schedule(timer_id="a", message=1, delay_sec=0)
    first = await one(api, visibility_sec=0.2)
    second = await one(api, wait_sec=60)
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert await end(api, first) == ["STALE"]
    assert await end(api, second) == []
    await nothing_is_held(api)


async def test_an_extension_is_a_new_visibility(api: Api) -> None:
    """Whoever says often enough that he is at work keeps his delivery."""
    await api.schedule(timer_id="a", message=1, delay_sec=0)
    first = await one(api, visibility_sec=30)
    (held,) = set(api.app._calls.consumers._held.values())
    (before,) = held.until.values()
    await anyio.sleep(0.01)
    assert await end(api, first, "extend") == []
    (after,) = held.until.values()
    assert after > before
    assert held.look is not None
    assert held.look.when() == after
    assert await end(api, first) == []


async def test_what_was_given_up_together_comes_back_one_by_one(api: Api) -> None:
    """If it was given up before, or one attempt is left: one of them may have been the consumer's death."""
    api.relay.tune(retry=RetryPolicy(max_attempts=2, initial=0.0))
    for timer_id in "abc":
        await api.schedule(timer_id=timer_id, message=1, delay_sec=0)
    assert len(await receive(api, max_deliveries=10, visibility_sec=0.2)) == 3
    for _ in range(3):
        delivery = await one(api, max_deliveries=10, wait_sec=60)
        assert delivery["attempt"] == 2
        assert await end(api, delivery) == []


async def test_so_many_are_held_and_no_more(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who never says how deliveries ended gets no more of them, until one is settled or given up."""
    monkeypatch.setattr(deliveries, "MOST_HELD", 3)
    for timer_id in "abcde":
        await api.schedule(timer_id=timer_id, message=1, delay_sec=0)
    first = await receive(api, max_deliveries=2)
    (third,) = await receive(api, max_deliveries=2)
    refused = await api.call("POST", RECEIVE, {})
    assert (refused.status, refused.value["type"]) == (429, "urn:relay:problem:too-many")
    assert await end(api, third) == []
    (fourth,) = await receive(api, max_deliveries=500, visibility_sec=0.2)
    await until(lambda: _held(api, 2), "it is given up")
    fifth = await one(api, wait_sec=60)
    assert await end(api, fourth) == ["STALE"]
    for delivery in (*first, fifth):
        assert await end(api, delivery) == []


async def _held(api: Api, count: int) -> bool:
    return len(api.app._calls.consumers._held) == count


async def test_so_many_calls_wait_and_no_more(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that has ended, in whichever way, makes room for another."""
    monkeypatch.setattr(deliveries, "MOST_CALLS", 1)
    for _ in range(2):
        async with asking(api, {"wait_sec": 60}):
            await until(lambda: _sessions(api, 1), "it waits")
            refused = await api.call("POST", RECEIVE, {})
            assert (refused.status, refused.value["type"]) == (429, "urn:relay:problem:too-many")
        await nothing_is_held(api)
    assert await receive(api, wait_sec=0) == []
    await api.schedule(timer_id="a", message=1, delay_sec=0)
    delivery = await one(api)
    assert await receive(api, wait_sec=0) == []
    assert await end(api, delivery) == []
    assert not api.app._calls.consumers._asked


async def test_leases_are_renewed_while_a_consumer_works(api: Api) -> None:
    """For longer than a lease is long."""
    api.relay.tune(lease_ttl=4.0)  # which a busy machine renews in time
    await api.schedule(timer_id="a", message=1, delay_sec=0)
    delivery = await one(api)
    renewals = api.relay.store.count("extend")

    async def renewed() -> bool:
        return api.relay.store.count("extend") > renewals + 1

    await until(renewed, "its lease is renewed twice")
    assert await receive(api, wait_sec=0) == []
    assert await end(api, delivery) == []


@asynccontextmanager
async def asking(api: Api, body: dict[str, Any]) -> AsyncIterator[SocketStream]:
    """A caller who has asked for deliveries and may go at any time."""
    content = json.dumps(body).encode()
    stream = await anyio.connect_tcp(*addresses.split(api.server.address))
    async with stream:
        head = f"POST {RECEIVE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        await stream.send(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        yield stream


async def never_received(api: Api) -> None:
    """The timer is as if nobody had asked, and the next one gets it as the first attempt."""
    await nothing_is_held(api)

    async def released() -> bool:
        timer = await stored(api)
        return bool(timer.state.name == "PENDING")

    await until(released, "the timer is released")
    assert (await stored(api)).attempts == 0
    delivery = await one(api, wait_sec=60)
    assert delivery["attempt"] == 1
    assert await end(api, delivery) == []


async def test_a_caller_who_goes_while_he_waits(api: Api) -> None:
    async with asking(api, {"wait_sec": 60}):
        await until(lambda: _sessions(api, 1), "it waits")
    await nothing_is_held(api)
    await api.schedule(timer_id="a", message=1, delay_sec=0)
    await never_received(api)
    assert ("POST", "/v1/topics/{topic}/deliveries:receive", 0) in api.measured


async def test_a_caller_who_goes_while_his_timer_is_claimed(api: Api) -> None:
    """The claim's reply finds nobody: its timer is released without an attempt."""
    await api.schedule(timer_id="a", message=1, delay_sec=0)
    door = api.relay.store.hold("claim", after=True, times=1)
    async with asking(api, {"wait_sec": 60}):

        async def claimed() -> bool:
            return door.reached == 1

        await until(claimed, "the claim is under way")
    await nothing_is_held(api)
    door.open()
    await never_received(api)


async def test_a_caller_who_reads_nothing_and_goes(api: Api) -> None:
    """Most of the answer never left: it is no attempt."""
    api.relay.tune(max_payload_bytes=8 << 20)
    payload = b"x" * (6 << 20)
    async with with_api(api.relay, max_body_bytes=16 << 20) as large:
        body = {"payload": base64.b64encode(payload).decode(), "delay_sec": 0, "timer_id": "a"}
        assert (await large.call("POST", "/v1/topics/t/timers", body)).status == 201
    async with asking(api, {"wait_sec": 60}) as stream:
        stream.extra_attributes[anyio.abc.SocketAttribute.raw_socket]().setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, 4096
        )
        await until(lambda: _leased(api), "it is claimed")
        assert b" 200 " in await stream.receive(100)
    await never_received(api)


async def _leased(api: Api) -> bool:
    timer = await stored(api)
    return bool(timer and timer.state.name == "LEASED")


async def test_a_caller_who_reads_nothing_and_stays(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """He can't keep a delivery that he does not take."""
    monkeypatch.setattr(handover, "WRITE_TIMEOUT", 0.3)
    api.relay.tune(max_payload_bytes=8 << 20)
    async with with_api(api.relay, max_body_bytes=16 << 20) as large:
        body = {"message": "x" * (6 << 20), "delay_sec": 0, "timer_id": "a"}
        assert (await large.call("POST", "/v1/topics/t/timers", body)).status == 201
    async with asking(api, {"wait_sec": 60}):
        await until(lambda: _leased(api), "it is claimed")
        await nothing_is_held(api)
        monkeypatch.undo()
        await never_received(api)


# What an answer that carries deliveries does in every order of events


class FakeTaken:
    """Notes what became of it."""

    def __init__(self) -> None:
        self.fate: list[str] = []

    def handed(self) -> None:
        self.fate.append("handed")

    def give_back(self) -> None:
        self.fate.append("given back")


class Line:
    """An ASGI connection in the test's hand."""

    def __init__(self, *, breaks_at: int = -1) -> None:
        self.gone = asyncio.Event()
        self.sent: list[Any] = []
        self._breaks_at = breaks_at

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if len(self.sent) == self._breaks_at:
            self.gone.set()
        self.sent.append(message)


def carrying() -> tuple[Carrying, FakeTaken]:
    taken = FakeTaken()
    response = Carrying(b"{}")
    response.taken = taken  # type: ignore[assignment]
    return response, taken


async def test_an_answer_that_came_through_counts() -> None:
    response, taken = carrying()
    line = Line()
    await hand_over(response, line.receive, line.send)
    assert taken.fate == ["handed"]
    assert b"".join(each.get("body", b"") for each in line.sent) == b"{}"
    assert line.sent[-1]["more_body"] is False


async def test_nobody_has_an_answer_that_does_not_count_yet() -> None:
    """Whoever has read all of it may settle at once, or hang up, as curl does: it counted before."""
    response, taken = carrying()
    line = Line()
    seen: list[tuple[bytes, list[str]]] = []

    async def send(message: Any) -> None:
        await line.send(message)
        seen.append((b"".join(each.get("body", b"") for each in line.sent), list(taken.fate)))
        if seen[-1][0] == b"{}":
            line.gone.set()

    await hand_over(response, line.receive, send)
    assert taken.fate == ["handed"]
    assert [fate for content, fate in seen if content == b"{}"] == [["handed"]]


@pytest.mark.parametrize("part", [0, 1, 2])
async def test_a_caller_who_goes_while_the_answer_is_written(part: int) -> None:
    """At whatever part of it; it is not finished then, and counts nothing."""
    response, taken = carrying()
    line = Line(breaks_at=part)
    with pytest.raises(ClientDisconnect):
        await hand_over(response, line.receive, line.send)
    assert taken.fate == ["given back"]
    assert not [each for each in line.sent if each.get("more_body") is False]


async def test_a_server_that_stops_while_the_answer_is_written() -> None:
    response, taken = carrying()
    with anyio.CancelScope() as scope:

        async def send(_: Any) -> None:
            scope.cancel()
            await anyio.sleep_forever()

        await hand_over(response, Line().receive, send)
    assert taken.fate == ["given back"]


async def test_who_goes_as_the_work_is_done_loses_no_result() -> None:
    """The work and the disconnect end in one turn of the loop, in either order: either there is a result,
    or the work was cancelled before it took anything."""
    for first in ("work", "caller"):
        line, ready = Line(), asyncio.Event()
        took: list[str] = []

        async def work(ready: asyncio.Event = ready, took: list[str] = took) -> str:
            await ready.wait()
            took.append("it")
            return "it"

        async def both(line: Line = line, ready: asyncio.Event = ready, first: str = first) -> None:
            for event in (ready, line.gone) if first == "work" else (line.gone, ready):
                event.set()

        turn = asyncio.ensure_future(attended(line.receive, work))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await both()
        try:
            got = [await turn]
        except ClientDisconnect:
            got = []
        assert got == took, first


async def test_two_who_settle_at_once(api: Api) -> None:
    """Each hears of his own outcome, and of no other."""
    api.relay.tune(retry=LATER)
    for timer_id in "ab":
        await api.schedule(timer_id=timer_id, message=1, delay_sec=0)
    first, second = await receive(api, max_deliveries=2)
    assert (await api.call("DELETE", f"/v1/topics/t/timers/{second['timer_id']}")).value["cancelled"]
    door = api.relay.store.hold("settle", times=1)
    said: dict[str, list[str]] = {}

    async def say(name: str, delivery: Any) -> None:
        said[name] = await end(api, delivery)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(say, "first", first)
        await until(lambda: _reached(door), "the first is being written")
        tasks.start_soon(say, "again", first)
        tasks.start_soon(say, "second", second)
        await until(lambda: _unwritten(api, 2), "the second has been said")
        door.open()
    assert said == {"first": [], "again": ["DUPLICATE"], "second": ["GONE"]}


async def _reached(door: Any) -> bool:
    return bool(door.reached)


async def _unwritten(api: Api, count: int) -> bool:
    return api.relay.engine._settler.unwritten == count


async def test_outcomes_wait_for_redis(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """503, and what was said is written when Redis is back; said again, it is a duplicate."""
    await api.schedule(timer_id="a", message=1, delay_sec=0)
    delivery = await one(api)
    away = api.relay.store.fail("settle", StoreUnavailable("away"))
    said = {"settlements": [{"token": delivery["token"], "outcome": "ack"}]}
    with monkeypatch.context() as patch:
        patch.setattr("relay.api.deliveries.SETTLE_TIMEOUT", 0.1)
        answer = await api.call("POST", SETTLE, said)
    assert (answer.status, answer.value["type"]) == (503, "urn:relay:problem:store-unavailable")
    assert "kept" in answer.value["detail"]
    away.open()

    async def gone() -> bool:
        return await stored(api) is None

    await until(gone, "it is written")
    assert await end(api, delivery) == ["DUPLICATE"]


async def test_a_drain_sends_those_who_wait_away_and_waits_for_outcomes(api: Api) -> None:
    await api.schedule(timer_id="a", message=1, delay_sec=0)
    delivery = await one(api)
    answers: list[Reply] = []
    drained: list[bool] = []

    async def wait() -> None:
        answers.append(await api.call("POST", RECEIVE, {"wait_sec": 60}))

    async def drain() -> None:
        await api.relay.engine.drain(60.0)
        drained.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await until(lambda: _sessions(api, 2), "it waits")
        tasks.start_soon(drain)
        await until(lambda: _any(answers), "who waits is answered")
        assert not drained
        assert (await api.call("POST", RECEIVE, {})).status == 503
        assert await end(api, delivery) == []
    assert (answers[0].status, answers[0].value["type"]) == (503, "urn:relay:problem:draining")
    assert drained
    assert await stored(api) is None


async def _any(answers: list[Reply]) -> bool:
    return bool(answers)


async def test_a_drain_that_is_over_releases_what_is_held(api: Api) -> None:
    """With an attempt: it had been received."""
    api.relay.tune(retry=LATER)
    await api.schedule(timer_id="a", message=1, delay_sec=0)
    delivery = await one(api)
    await api.relay.engine.drain(0.0)
    assert (await stored(api)).attempts == 1
    assert await end(api, delivery) == ["STALE"]


async def test_streams_and_callers_share_a_topic() -> None:
    """Each timer goes to one of them."""
    async with served() as relay, with_api(relay) as api:
        stream = await relay.stream().open("t", max_outstanding=1)
        for index in range(6):
            await api.schedule(timer_id=f"a{index}", message=1, delay_sec=0)
        first = await stream.delivery()
        rest = await receive(api, max_deliveries=10)
        while len(rest) < 5:
            rest += await receive(api, max_deliveries=10)
        assert first.timer_id not in {each["timer_id"] for each in rest}
        assert await settle(api, *({"token": each["token"], "outcome": "ack"} for each in rest)) == []
        await stream.ack([first])
        await stream.finish()
