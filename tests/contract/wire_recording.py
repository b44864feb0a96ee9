"""What goes over gRPC, recorded byte for byte: the calls of a Python client, and a stream of deliveries.

    python -m tests.contract.wire_recording

writes `recorded/wire.json` anew, which is for a change of the protocol that was decided and written down.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc

from relay.client import NewTimer, RelayClient, TimerState, errors
from relay.core.outcomes import nonces
from relay.store.keys import KeyNames
from relay.v1 import delivery_service_pb2 as pb
from tests.contract.recording import DEAD_ID, NO_ID, record
from tests.worlds.engine.served import Served, served
from tests.worlds.engine.stubs import settlement
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from relay.client.calls.channel import Method
    from tests.servers import RunningServer

WIRE = Path(__file__).with_name("recorded") / "wire.json"
TOPIC = "recorded"
TOPICS = (TOPIC, f"{TOPIC}0", f"{TOPIC}1")
PATIENCE = 60.0
NOW_TIME = datetime.fromtimestamp(NOW / 1e6, UTC)
HOUR = timedelta(hours=1)

Saying = dict[str, str]
"""One thing that was said: by whom, and its bytes in hexadecimal."""


def shown(raw: bytes) -> str:
    """The server makes the ids of dead letters of its own clock."""
    return DEAD_ID.sub(NO_ID, raw).hex()


class TappedWire:
    """A client's way to a relay, which keeps what goes over it."""

    def __init__(self, relay: Served, said: list[Saying]) -> None:
        self._channel = relay.channel
        self._said = said

    async def call(self, method: Method[Any, Any], request: Message, timeout: float) -> Message:
        raw = request.SerializeToString(deterministic=True)
        call: Any = self._channel.unary_unary(method.path)
        told = {"call": method.path, "request": shown(raw)}
        self._said.append(told)
        try:
            answer: bytes = await call(raw, timeout=PATIENCE)
        except grpc.aio.AioRpcError as failure:
            told["error"] = failure.code().name
            raise errors.make(failure.code(), failure.details() or "") from None
        response = method.response.FromString(answer)
        if "topic" in response.DESCRIPTOR.fields_by_name:
            response.topic.ClearField("oldest_death_time")  # by the server's own clock
            answer = response.SerializeToString(deterministic=True)
        told["response"] = shown(answer)
        return cast("Message", response)

    async def close(self) -> None:
        pass


class TappedStream:
    """A `Deliver` call, which keeps what goes over it."""

    def __init__(self, relay: Served, said: list[Saying]) -> None:
        self._call: Any = relay.channel.stream_stream("/relay.v1.DeliveryService/Deliver")()
        self._said = said

    async def send(self, **message: Any) -> None:
        raw = pb.DeliverRequest(**message).SerializeToString(deterministic=True)
        self._said.append({"stream": "application", "message": raw.hex()})
        await self._call.write(raw)

    async def hear(self) -> pb.DeliverResponse:
        raw = await asyncio.wait_for(self._call.read(), PATIENCE)
        assert isinstance(raw, bytes), await self._call.details()
        response = pb.DeliverResponse.FromString(raw)
        if response.HasField("problems"):
            for problem in response.problems.problems:
                problem.ClearField("message")  # words for people may change
            raw = response.SerializeToString(deterministic=True)
        self._said.append({"stream": "relay", "message": raw.hex()})
        return response

    async def finish(self) -> None:
        """End it, when all is written."""
        await self._call.done_writing()
        assert await asyncio.wait_for(self._call.read(), PATIENCE) is grpc.aio.EOF
        assert await self._call.code() is grpc.StatusCode.OK


async def timers(client: RelayClient) -> None:
    """Every call about timers."""
    await client.schedule(TOPIC, b"42", delay=5, timer_id="a", headers={"k": "v"}, content_type="text/plain")
    await client.schedule(TOPIC, b"43", due_time=NOW_TIME + HOUR, timer_id="a", expire_after=60)
    await client.schedule(TOPIC, b"44", due_time=NOW_TIME, timer_id="a", create_only=True)
    await client.schedule(TOPIC, b"", delay=0.000001, timer_id="b", expire_time=NOW_TIME + 2 * HOUR)
    alike = [NewTimer(topic=TOPIC, payload=b"%d" % n, delay=n, timer_id=f"alike {n}") for n in range(3)]
    await client.schedule_batch(alike)
    mixed = [NewTimer(topic=f"{TOPIC}{n}", payload=b"x", delay=60, timer_id=f"mixed {n}") for n in range(2)]
    await client.schedule_batch(mixed, create_only=True)
    await client.get(TOPIC, "a")
    await client.get(TOPIC, "none")
    _ = [timer async for timer in client.list(TOPIC, state=TimerState.PENDING, page_size=3)]
    await client.run_timer(TOPIC, "a")
    await client.run_timer(TOPIC, "none")
    await client.cancel(TOPIC, "b", only_if_pending=True)
    await client.cancel(TOPIC, "alike 2", only_if_due_at=NOW_TIME)
    await client.cancel(TOPIC, "none")
    await client.schedule(TOPIC, b"d", delay=0, timer_id="d")
    with suppress(errors.NotFound):
        await client.schedule(TOPIC, b"", delay=0, timer_id="none", only_if_pending=True)
    with suppress(errors.InvalidArgument):
        await client.schedule(TOPIC, b"123456789", delay=0, timer_id="big")


async def rows(stream: TappedStream) -> None:
    """Deliveries one by one, and all outcomes."""
    await stream.send(open=pb.Open(topics=[TOPIC], max_outstanding=10))
    assert (await stream.hear()).HasField("opened")
    first, second, third = (await stream.hear()).deliveries.deliveries
    await stream.send(settle=pb.Settle(received=[first.token, second.token]))
    again = settlement(third.token, pb.OUTCOME_RESCHEDULE)
    again.reschedule.payload = b"next"
    again.reschedule.delay.FromTimedelta(HOUR)
    await stream.send(
        settle=pb.Settle(
            settlements=[
                settlement(first.token, pb.OUTCOME_EXTEND),
                settlement(first.token, pb.OUTCOME_REJECT, reason="no such customer"),
                settlement(second.token, pb.OUTCOME_ACK),
                again,
                settlement(b"unknown", pb.OUTCOME_ACK),
            ]
        )
    )
    assert (await stream.hear()).HasField("problems")
    await stream.finish()


async def columns(stream: TappedStream) -> None:
    """Deliveries by columns, which come again later."""
    await stream.send(open=pb.Open(topics=[TOPIC], max_outstanding=10, columns=True))
    assert (await stream.hear()).HasField("opened")
    tokens = (await stream.hear()).columns.tokens
    nack = settlement(tokens[0], pb.OUTCOME_NACK, reason="busy")
    nack.retry_after.FromTimedelta(HOUR)
    await stream.send(settle=pb.Settle(received=tokens, settlements=[nack]))
    await stream.send(drain=pb.Drain())
    await stream.finish()


async def topics(client: RelayClient) -> None:
    """Every call about a topic."""
    await client.topics.get(TOPIC)
    await client.topics.pause(TOPIC, until=NOW_TIME + HOUR)
    await client.topics.pause(TOPIC, duration=60)
    await client.topics.resume(TOPIC)
    (letter,) = [letter async for letter in client.topics.dead_letters(TOPIC)]
    await client.topics.dead_letter(TOPIC, letter.dead_id)
    await client.topics.redrive(TOPIC, [letter.dead_id])
    await client.topics.redrive(TOPIC, [letter.dead_id])
    await client.topics.purge(TOPIC, [letter.dead_id])
    await client.get(TOPIC, "a")
    await client.topics.reshard(TOPIC, 1)
    with suppress(errors.InvalidArgument):
        await client.topics.reshard(TOPIC, 3, max_rate=500)


async def overheard(server: RunningServer) -> list[Saying]:
    """All that goes over the wire of a relay on a fresh server, whose clock stands still."""
    said: list[Saying] = []
    bench = Bench(server, TOPIC)
    for topic in TOPICS:
        bench.raw.delete(*KeyNames().of(topic))
        bench.raw.set(f"{KeyNames().timeline}:{topic}:now", NOW)
    async with served(bench.store, topics=bench.topics) as relay:
        relay.engine._loops._nonce = nonces(b"recorded")
        relay.tune(TOPIC, max_payload_bytes=8)
        client = RelayClient()
        client.double = TappedWire(relay, said)
        await timers(client)
        bench.now = NOW + 1
        await rows(TappedStream(relay, said))
        await client.schedule(TOPIC, b"c", delay=0, timer_id="c")
        await columns(TappedStream(relay, said))
        await topics(client)
    await bench.close()
    return said


if __name__ == "__main__":
    record(WIRE, overheard)
