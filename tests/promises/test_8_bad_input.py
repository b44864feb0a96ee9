"""Promise 8, bad input gets a clear error that names the field, and loses nothing.

The same mistakes are made by every way in: the client, plain gRPC, HTTP and the command line.

Each of these breaks was seen to fail here:
- The relay accepts any topic name.
- A batch fails as a whole because of one bad timer.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from relay.client import InvalidArgument, NewTimer, RelayClient
from relay.v1.timer_pb2 import TimerSpec
from relay.v1.timer_service_pb2 import ScheduleBatchRequest, ScheduleRequest
from relay.v1.timer_service_pb2_grpc import TimerServiceStub
from tests.promises.world import Handler, World, serving
from tests.worlds.relay.processes import CHANNEL, command

WRONG = "no {braces}"


async def test_the_client_names_the_argument(world: World) -> None:
    """Before any call where the mistake is plain; by the relay's answer where only the relay can know."""
    topic = world.topic()
    async with RelayClient(world.ahead.target) as client:
        for arguments, field in (
            ({"topic": WRONG}, "topic"),
            ({"topic": topic, "delay": -1}, "delay"),
            ({"topic": topic, "payload": b"x" * (1 << 20) + b"x"}, "payload"),
        ):
            with pytest.raises(InvalidArgument) as caught:
                await client.schedule(**{"payload": b"", "delay": 1, **arguments})  # type: ignore[arg-type]
            assert caught.value.field == field
    assert world.ids(topic) == set()


def test_grpc_names_the_field(world: World) -> None:
    """INVALID_ARGUMENT, with the field's path in the details that google.rpc.BadRequest defines."""
    with grpc.insecure_channel(world.ahead.target, options=CHANNEL) as channel:
        request = ScheduleRequest(timer=TimerSpec(topic=WRONG, timer_id="t"))
        request.timer.delay.seconds = 1
        with pytest.raises(grpc.RpcError) as caught:
            TimerServiceStub(channel).Schedule(request, timeout=60, wait_for_ready=True)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    trailers: Any = dict(caught.value.trailing_metadata())  # type: ignore[arg-type]
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    bad = error_details_pb2.BadRequest()
    assert any(detail.Unpack(bad) for detail in status.details)
    assert [violation.field for violation in bad.field_violations] == ["topic"]


def test_one_bad_timer_of_a_batch_loses_no_other(world: World) -> None:
    """Two of three are stored; the third has an error of its own, which names its field."""
    topic = world.topic()
    specs = [TimerSpec(topic=name, timer_id=f"t{n}") for n, name in enumerate((topic, WRONG, topic))]
    for spec in specs:
        spec.delay.seconds = 3600
    with grpc.insecure_channel(world.ahead.target, options=CHANNEL) as channel:
        stub = TimerServiceStub(channel)
        answer = stub.ScheduleBatch(ScheduleBatchRequest(timers=specs), timeout=60, wait_for_ready=True)
    assert [result.WhichOneof("result") for result in answer.results] == ["scheduled", "error", "scheduled"]
    assert "topic" in answer.results[1].error.message
    assert world.ids(topic) == {"t0", "t2"}


def test_http_names_the_field(world: World) -> None:
    """Status 422 and a problem document, as RFC 9457 has it."""
    request = urllib.request.Request(
        f"http://{world.ahead.api}/v1/topics/orders/timers/t",
        method="PUT",
        data=json.dumps({"message": "x", "delay_sec": "soon"}).encode(),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with pytest.raises(urllib.error.HTTPError) as caught, opener.open(request, timeout=60):
        pass
    with caught.value as answer:
        assert answer.code == 422
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert "delay_sec" in answer.read().decode()


def test_the_command_line_names_the_option(world: World) -> None:
    """One sentence on standard error, no traceback, and the exit code for wrong usage."""
    ran = command("schedule", "orders", "--in", "soon", settings={"RELAY_TARGET": world.ahead.target})
    assert ran.code == 2
    assert "--in" in ran.err
    assert "Traceback" not in ran.err


async def test_a_stream_goes_on_after_a_mistake(world: World) -> None:
    """A refused call costs the application beside it nothing: its deliveries go on."""
    topic, handler = world.topic(), Handler(world)
    async with serving(world.ahead, topic, handler) as client:
        with pytest.raises(InvalidArgument):
            await client.schedule(topic, b"", delay=0, timer_id="\x00")
        refused = await client.schedule_batch(
            [NewTimer(topic=topic, payload=b"x" * (1 << 20) + b"x", delay=0)]
        )
        assert isinstance(refused[0].error, InvalidArgument)
        good = await client.schedule(topic, b"", delay=0)
        await handler.has({good.timer_id})
