"""A double of the relay, in process: it records what the client says and says what a test wants.

It keeps no promises of its own. tests/contract/test_doubles.py holds its answers to a real relay's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2  # type: ignore[import-untyped, unused-ignore]

from relay.v1 import delivery_service_pb2 as pb
from relay.v1 import delivery_service_pb2_grpc, timer_pb2, timer_service_pb2_grpc
from relay.v1 import timer_service_pb2 as timer_service
from tests.worlds.doubled import bad_field, trailers, without_content
from tests.worlds.waiting import PATIENCE


class Failure(Exception):
    """What the double shall answer instead of a result."""

    def __init__(
        self, code: grpc.StatusCode, message: str, *, field: str = "", retry_after: float = 0.0
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: list[Message] = []
        if field:
            self.details.append(bad_field(field, message))
        if retry_after:
            delay = duration_pb2.Duration(seconds=int(retry_after), nanos=int(retry_after % 1 * 1e9))
            self.details.append(error_details_pb2.RetryInfo(retry_delay=delay))

    async def abort(self, context: Any) -> None:
        await context.abort(self.code, self.message, trailers(self.code, self.message, self.details))


class Watched:
    """Something whose changes can be waited for."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def changed(self) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class Link(Watched):
    """One delivery stream, as the relay sees it; deliveries go by `columns` or one by one."""

    def __init__(self, context: Any, *, columns: bool = False) -> None:
        super().__init__()
        self._context = context
        self._columns = columns
        """Whether the relay knows them; they are sent to who asks for them."""
        self.requests: list[pb.DeliverRequest] = []
        self.received: list[bytes] = []
        self.settlements: list[pb.Settlement] = []
        self.half_closed = False
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.broken: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()

    # ------------------------------------------------------- what the client said

    @property
    def kinds(self) -> list[str]:
        return [request.WhichOneof("message") or "" for request in self.requests]

    @property
    def outcomes(self) -> dict[str, int]:
        """The last outcome by timer_id."""
        return {s.token.decode(): s.outcome for s in self.settlements}

    async def settled(self, *timer_ids: str) -> None:
        ends = (pb.OUTCOME_ACK, pb.OUTCOME_NACK, pb.OUTCOME_REJECT, pb.OUTCOME_RESCHEDULE)
        await self.until(lambda: all(self.outcomes.get(each) in ends for each in timer_ids))

    # ------------------------------------------------------- what the relay says

    async def deliver(self, *timer_ids: str, topic: str = "t", **fields: Any) -> None:
        """Send one batch; each token is the timer_id."""
        batch = [
            pb.Delivery(
                **{
                    "topic": topic,
                    "timer_id": each,
                    "token": each.encode(),
                    "attempt": 1,
                    "due_time": timestamp_pb2.Timestamp(seconds=1_700_000_000, nanos=250_000_000),
                    **fields,
                }
            )
            for each in timer_ids
        ]
        asked = self._columns and self.requests[0].open.columns
        if asked and not batch[0].due_time_approximate:
            await self.send(columns=in_columns(batch))
        else:
            await self.send(deliveries=pb.DeliveryBatch(deliveries=batch))

    async def begin(self, *timer_ids: str, **fields: Any) -> None:
        """Deliver, and wait for the receipts."""
        await self.deliver(*timer_ids, **fields)
        await self.until(lambda: {each.encode() for each in timer_ids} <= set(self.received))

    async def problem(self, timer_id: str, reason: pb.ProblemReason) -> None:
        one = pb.Problem(token=timer_id.encode(), reason=reason, message="as scripted")
        await self.send(problems=pb.Problems(problems=[one]))

    async def drain(self) -> None:
        await self.send(drain=pb.Drain())

    async def send(self, **fields: Any) -> None:
        await self._context.write(pb.DeliverResponse(**fields))

    def break_off(self, failure: Failure | None = None) -> None:
        """End the stream with an error."""
        self.broken.set_result(failure or Failure(grpc.StatusCode.UNAVAILABLE, "scripted break"))

    # ---------------------------------------------------------------- the stream

    async def serve(self) -> None:
        reader = asyncio.create_task(self._read())
        try:
            waits: list[asyncio.Future[Any]] = [reader, self.broken]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if self.broken.done():
                await self.broken.result().abort(self._context)
            await self.may_end.wait()
        finally:
            reader.cancel()
            self.ended.set()
            self.changed()

    async def _read(self) -> None:
        while (request := await self._context.read()) is not grpc.aio.EOF:
            self.requests.append(request)
            self.received += request.settle.received
            self.settlements += request.settle.settlements
            acknowledged = request.settle.acknowledged
            assert self._columns or not acknowledged, "an older relay would pass over it"
            self.settlements += [pb.Settlement(token=token, outcome=pb.OUTCOME_ACK) for token in acknowledged]
            self.changed()
        self.half_closed = True
        self.changed()


def ended(said: pb.Settle) -> list[bytes]:
    """The tokens of all outcomes in a message."""
    return [*(each.token for each in said.settlements), *said.acknowledged]


def in_columns(batch: list[pb.Delivery]) -> pb.DeliveryColumns:
    """These deliveries, which are alike."""
    first = batch[0]
    return pb.DeliveryColumns(
        topic=first.topic,
        headers=first.headers,
        content_type=first.content_type,
        timer_ids=[each.timer_id for each in batch],
        payloads=[each.payload for each in batch],
        due_times_us=[each.due_time.ToMicroseconds() for each in batch],
        attempts=[each.attempt for each in batch],
        lease_deadlines_us=[each.lease_deadline.ToMicroseconds() for each in batch],
        occurrence_ids=[each.occurrence_id for each in batch],
        tokens=[each.token for each in batch],
    )


TOO_BIG = timer_service.ItemError(code=3, message="payload is too big", field="payload")


class ScriptedRelay(
    Watched,
    timer_service_pb2_grpc.TimerServiceServicer,
    delivery_service_pb2_grpc.DeliveryServiceServicer,
):
    """Both services. `failures` are used up first, one a call. With `columns` it delivers by columns, and
    reads `Settle.acknowledged`; without, it is an older relay, which knows neither."""

    def __init__(self, *, columns: bool = False) -> None:
        super().__init__()
        self.columns = columns
        self.calls: list[tuple[str, Any]] = []
        self.metadata: list[dict[str, str]] = []
        self.failures: list[Failure] = []
        self.silent = 0
        """How many of the next calls get no answer."""
        self.refusals: list[Failure] = []
        self.shown: list[str] = []
        """By what each stream proved who it is."""
        self.result = timer_pb2.CHANGE_RESULT_UNSPECIFIED
        """What becomes of changes, if not what really does."""
        self.under_way: set[str] = set()
        """The timer_ids of which deliveries are under way."""
        self.timers: dict[tuple[str, str], timer_pb2.Timer] = {}
        self.links: list[Link] = []
        self.on_link: Callable[[Link], Any] | None = None

    async def link(self, number: int = 0) -> Link:
        """Return the stream of that number (from 0) once the client has opened it."""
        await self.until(lambda: len(self.links) > number)
        return self.links[number]

    async def _begin(self, name: str, request: Any, context: Any) -> None:
        self.calls.append((name, request))
        self.metadata.append({key: str(value) for key, value in context.invocation_metadata() or ()})
        self.changed()
        if self.silent:
            self.silent -= 1
            await asyncio.sleep(PATIENCE)
        if self.failures:
            await self.failures.pop(0).abort(context)

    def _store(self, spec: timer_pb2.TimerSpec) -> timer_service.ScheduleResponse:
        key = (spec.topic, spec.timer_id)
        replaced = key in self.timers
        due = spec.due_time if spec.HasField("due_time") else timestamp_pb2.Timestamp(seconds=1)
        self.timers[key] = timer_pb2.Timer(
            topic=spec.topic,
            timer_id=spec.timer_id,
            due_time=due,
            payload=spec.payload,
            headers=spec.headers,
            content_type=spec.content_type,
            state=timer_pb2.TIMER_STATE_PENDING,
            next_claim_time=due,
        )
        result = timer_pb2.CHANGE_RESULT_REPLACED if replaced else timer_pb2.CHANGE_RESULT_CREATED
        return timer_service.ScheduleResponse(
            timer=without_content(self.timers[key]),
            replaced=replaced,
            result=result,
            delivery_under_way=spec.timer_id in self.under_way,
        )

    async def Schedule(self, request: Any, context: Any) -> Any:
        await self._begin("Schedule", request, context)
        if self.result:
            due = timestamp_pb2.Timestamp(seconds=7)
            timer = timer_pb2.Timer(topic="t", timer_id="a", due_time=due)
            under_way = "a" in self.under_way
            return timer_service.ScheduleResponse(
                timer=timer, result=self.result, delivery_under_way=under_way
            )
        return self._store(request.timer)

    async def ScheduleBatch(self, request: Any, context: Any) -> Any:
        """Refuses timers with the id `bad`."""
        await self._begin("ScheduleBatch", request, context)
        return timer_service.ScheduleBatchResponse(
            results=[
                timer_service.ScheduleResult(error=TOO_BIG)
                if spec.timer_id == "bad"
                else timer_service.ScheduleResult(scheduled=self._store(spec))
                for spec in request.timers
            ]
        )

    async def ScheduleColumns(self, request: Any, context: Any) -> Any:
        """Refuses timers with the id `bad`."""
        await self._begin("ScheduleColumns", request, context)
        told = timer_service.ScheduleColumnsResponse()
        delayed = bool(request.delays_us)
        times = request.delays_us if delayed else request.due_times_us or [0] * len(request.timer_ids)
        for place, (name, payload, time) in enumerate(
            zip(request.timer_ids, request.payloads, times, strict=True)
        ):
            spec = timer_pb2.TimerSpec(
                topic=request.topic,
                timer_id=name,
                payload=payload,
                headers=request.headers,
                content_type=request.content_type,
            )
            if not delayed:
                spec.due_time.FromMicroseconds(time)
            stored = timer_service.ScheduleResponse()
            if name == "bad":
                told.errors[place].CopyFrom(TOO_BIG)
            else:
                stored = self._store(spec)
            told.due_times_us.append(stored.timer.due_time.ToMicroseconds())
            told.results.append(stored.result)
            if stored.delivery_under_way:
                told.deliveries_under_way.append(place)
        return told

    async def Cancel(self, request: Any, context: Any) -> Any:
        await self._begin("Cancel", request, context)
        under_way = request.timer_id in self.under_way
        if self.result:
            return timer_service.CancelResponse(result=self.result, delivery_under_way=under_way)
        timer = self.timers.pop((request.topic, request.timer_id), None)
        result = timer_pb2.CHANGE_RESULT_CANCELLED if timer else timer_pb2.CHANGE_RESULT_NOT_FOUND
        return timer_service.CancelResponse(
            cancelled=timer is not None, result=result, delivery_under_way=under_way
        )

    async def RunTimer(self, request: Any, context: Any) -> Any:
        await self._begin("RunTimer", request, context)
        under_way = request.timer_id in self.under_way
        return timer_service.RunTimerResponse(result=self.result, delivery_under_way=under_way)

    async def GetTimer(self, request: Any, context: Any) -> Any:
        await self._begin("GetTimer", request, context)
        timer = self.timers.get((request.topic, request.timer_id))
        if timer is None:
            await Failure(grpc.StatusCode.NOT_FOUND, "no such timer").abort(context)
        return timer_service.GetTimerResponse(timer=timer)

    async def ListTimers(self, request: Any, context: Any) -> Any:
        """Pages of `page_size`, with an empty page between any two."""
        await self._begin("ListTimers", request, context)
        found = [without_content(each) for each in self.timers.values() if each.topic == request.topic]
        if request.page_token.startswith("empty"):
            return timer_service.ListTimersResponse(next_page_token=request.page_token[5:])
        start = int(request.page_token or 0)
        end = start + request.page_size
        token = f"empty{end}" if end < len(found) else ""
        return timer_service.ListTimersResponse(timers=found[start:end], next_page_token=token)

    async def Deliver(self, _: Any, context: Any) -> None:
        self.shown.append(dict(context.invocation_metadata()).get("authorization", ""))
        if self.refusals:
            # As the relay does, which looks at the Open first. gRPC reports a status that comes before the
            # client has written as an internal error, and the client would open the stream again.
            await context.read()
            refusal = self.refusals.pop(0)
            self.calls.append(("Deliver", None))
            self.changed()
            await refusal.abort(context)
        link = Link(context, columns=self.columns)
        serving = asyncio.create_task(link.serve())
        await link.until(lambda: link.requests)
        await link.send(opened=pb.Opened(acknowledged=self.columns))
        self.links.append(link)
        self.changed()
        await serving


@pytest.fixture(params=[False, True], ids=["older-relay", "columns"])
def either(request: pytest.FixtureRequest) -> bool:
    """Whether the relay knows columns; for a module that calls it `columns` to be run with both."""
    return bool(request.param)


@asynccontextmanager
async def serve(target: str, relay: ScriptedRelay | None = None) -> AsyncIterator[ScriptedRelay]:
    """Run a double on `target`; at the end, streams are broken off."""
    relay = relay or ScriptedRelay()
    server = grpc.aio.server()
    timer_service_pb2_grpc.add_TimerServiceServicer_to_server(relay, server)
    delivery_service_pb2_grpc.add_DeliveryServiceServicer_to_server(relay, server)
    server.add_insecure_port(target)
    await server.start()
    try:
        yield relay
    finally:
        async with asyncio.timeout(PATIENCE):
            await server.stop(None)


def socket_target(folder: Path) -> str:
    """A Unix socket: no port to collide over."""
    return f"unix:{folder}/relay.sock"


def names(count: int, prefix: str = "x") -> Iterable[str]:
    return [f"{prefix}{number}" for number in range(count)]
