"""Bytes that are no message: the same answer from every method there is, and nothing else suffers."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

import relay.v1 as v1
from relay.core.policy import RetryPolicy
from relay.rpc import server as rpc
from relay.v1 import delivery_service_pb2 as pb
from relay.v1.timer_service_pb2 import ScheduleRequest
from tests.worlds.engine.served import Served, put
from tests.worlds.engine.stubs import named_field, spec, unpacked
from tests.worlds.waiting import PATIENCE

POOL = descriptor_pool.Default()
LENGTH_DELIMITED = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE)

BROKEN = {
    "a length without its bytes": b"\x0a\x7f",
    "a varint without an end": b"\x08" + b"\xff" * 11,
    "a wire type that does not exist": b"\x0f\x01",
    "the end of a group that never began": b"\x0c",
    "field number 0": b"\x02\x00",
}


METHODS = [
    method
    for service in (*rpc.SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
    for method in POOL.FindServiceByName(service).methods
]


def pool_type(method: MethodDescriptor) -> type[Message]:
    return message_factory.GetMessageClass(method.input_type)


def hostile(method: MethodDescriptor) -> Iterator[bytes]:
    """What is no message of the method's type, or is one by chance."""
    yield from BROKEN.values()
    drawn = random.Random(method.full_name)
    for _ in range(15):
        yield drawn.randbytes(drawn.randrange(1, 80))
    for field in method.input_type.fields:
        yield bytes([(field.number << 3 | 7) & 0x7F])
        if field.type in LENGTH_DELIMITED and field.number < 16:
            whole = bytes([field.number << 3 | 2, 40]) + b"\xff" * 40
            yield whole  # no UTF-8, no message within the message; bytes may be so
            yield whole[:-1]
        if field.number < 16:
            yield bytes([field.number << 3 | 5]) + b"\x01\x00\x00\x00"  # another wire type than the field's
            yield bytes([field.number << 3]) + b"\x01"


def is_readable(method: MethodDescriptor, raw: bytes) -> bool:
    try:
        pool_type(method).FromString(raw)
    except DecodeError:
        return False
    return True


async def status_of(relay: Served, method: MethodDescriptor, raw: bytes) -> tuple[Any, str, list[Message]]:
    """How a call with these bytes ends."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    kind = f"{'stream' if method.client_streaming else 'unary'}_" + (
        "stream" if method.server_streaming else "unary"
    )
    start = getattr(relay.channel, kind)(path)
    with anyio.fail_after(PATIENCE):
        if method.client_streaming:
            call = start()
            await call.write(raw)
            await call.done_writing()
        else:
            call = start(raw)
        if method.server_streaming:
            with suppress(grpc.aio.AioRpcError):
                while await call.read() is not grpc.aio.EOF:
                    pass
        return await call.code(), await call.details(), unpacked(await call.trailing_metadata())


def test_no_service_is_forgotten() -> None:
    """The methods below are all that a relay serves: one that is added to the protos is among them."""
    modules = [
        importlib.import_module(f"relay.v1.{found.name}") for found in pkgutil.iter_modules(v1.__path__)
    ]
    files = [module.DESCRIPTOR for module in modules if hasattr(module, "DESCRIPTOR")]
    services = {service.full_name for file in files for service in file.services_by_name.values()}
    assert services - {"relay.v1.TimerHandler"} == set(rpc.SERVICES)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.full_name)
async def test_every_method_says_what_it_could_not_read(relay: Served, method: MethodDescriptor) -> None:
    """INVALID_ARGUMENT with the type's name, on unary calls and on streams; counted, once a message. What is
    readable by chance is never answered UNKNOWN or INTERNAL."""
    unreadable = 0
    for raw in hostile(method):
        readable = is_readable(method, raw)
        if readable and method.server_streaming and not method.client_streaming:
            continue  # it would go on for ever
        code, words, details = await status_of(relay, method, raw)
        if readable:
            assert code not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL), (raw, words)
            continue
        unreadable += 1
        assert code is grpc.StatusCode.INVALID_ARGUMENT, (raw, code, words)
        assert f"not a {method.input_type.full_name}" in words
        assert named_field(words, details) == "message"
    assert unreadable >= len(BROKEN)
    service = method.containing_service.full_name
    assert relay.counts.total[f"messages.unreadable {service}/{method.name}"] == unreadable
    await relay.timers.Schedule(ScheduleRequest(timer=spec()))


async def test_a_stream_that_can_t_be_read_is_a_broken_one(relay: Served) -> None:
    """It ends and says why. What it held is released at once, and goes alone if it was lost before or one
    attempt is left: one of these timers may be what makes its application send such bytes. With a receipt it
    was an attempt."""
    relay.tune(retry=RetryPolicy(max_attempts=2, initial=0.0))
    await put(relay, "a", "b")
    call: Any = relay.channel.stream_stream("/relay.v1.DeliveryService/Deliver")()
    await call.write(pb.DeliverRequest(open=pb.Open(topics=["t"], max_outstanding=10)).SerializeToString())
    held: dict[str, pb.Delivery] = {}
    with anyio.fail_after(PATIENCE):
        while len(held) < 2:
            said = pb.DeliverResponse.FromString(await call.read())
            held |= {each.timer_id: each for each in said.deliveries.deliveries}
        receipt = pb.DeliverRequest(settle=pb.Settle(received=[held["a"].token]))
        await call.write(receipt.SerializeToString())
        await call.write(b"\x0a\x7f")
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await call.details() == "message: not a relay.v1.DeliverRequest; check what sends it"
    stream = await relay.stream().open()
    attempts = {}
    for _ in range(2):
        alone = await stream.delivery()
        attempts[alone.timer_id] = alone.attempt
        assert not stream.waiting
        await stream.ack([alone])
    assert attempts == {"a": 2, "b": 1}
    await stream.finish()


async def test_other_streams_don_t_notice(relay: Served) -> None:
    """Their deliveries go on, on the same connection."""
    stream = await relay.stream().open()
    for _ in range(20):
        call: Any = relay.channel.stream_stream("/relay.v1.DeliveryService/Deliver")()
        await call.write(b"\x0f")
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    await put(relay, "a")
    await stream.ack([await stream.delivery()])
    await stream.finish()


async def test_a_fault_of_the_relay_tells_nothing_of_it(
    relay: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On unary calls and on streams: gRPC would send the exception's type and words."""

    def fail(*_: object, **__: object) -> None:
        raise LookupError("a secret of the relay")

    monkeypatch.setattr(relay.engine, "schedule", fail)
    monkeypatch.setattr(relay.engine, "attach", fail)
    raw = ScheduleRequest(timer=spec()).SerializeToString()
    opened = pb.DeliverRequest(open=pb.Open(topics=["t"], max_outstanding=1)).SerializeToString()
    for name, message in (("Schedule", raw), ("Deliver", opened)):
        (method,) = [each for each in METHODS if each.name == name]
        code, words, _ = await status_of(relay, method, message)
        assert (code, words) == (grpc.StatusCode.INTERNAL, "the relay could not do it; its log says more")
    assert caplog.text.count("LookupError: a secret of the relay") == 2
