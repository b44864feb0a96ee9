"""What `TimerService` offers: schedule, cancel, run, get, list."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from relay.api import replies, translate
from relay.api.access import Access
from relay.api.columns import RequestColumns, tell
from relay.api.intents import on_conflict
from relay.api.people import brief
from relay.api.specs import Specs
from relay.core import validate
from relay.core.errors import ContentSealed, InvalidField, ServiceError, TimerNotFound
from relay.core.ports import MAX_PER_CALL
from relay.core.timers import Change, TimerState
from relay.core.trust.verbs import AccessVerb
from relay.engine.engine import Engine
from relay.v1 import timer_pb2 as pb
from relay.v1 import timer_service_pb2 as service

MAX_BATCH = 10_000
STRETCH = 250
"""Timers of a batch that are read, or answered, in one go: due timers wait a millisecond for them."""

DEFAULT_PAGE = 100
TRACE_CONTEXT = ("traceparent", "tracestate")

FILTERS = {
    pb.TIMER_STATE_UNSPECIFIED: None,
    pb.TIMER_STATE_PENDING: TimerState.PENDING,
    pb.TIMER_STATE_LEASED: TimerState.LEASED,
}


class NamesTimer(Protocol):
    """A request that names a timer."""

    topic: str
    timer_id: str


class TimerCalls:  # see 0046
    """See `proto/relay/v1/timer_service.proto`. Every failure is raised as a `ServiceError`.

    `trace` is the caller's W3C trace context, which is kept in the timers' headers; see `trace_context`.
    """

    def __init__(self, engine: Engine, access: Access | None = None) -> None:
        self._engine = engine
        self._access = access or Access()
        self._reading, self._answering = asyncio.Lock(), asyncio.Lock()

    async def schedule(
        self, request: service.ScheduleRequest, trace: Mapping[str, str]
    ) -> service.ScheduleResponse:
        """Store one timer. Raises `InvalidField`, or another `ServiceError` of the engine."""
        topic, timer_id = request.timer.topic, request.timer.timer_id or uuid.uuid4().hex
        limit = self._admit(topic)
        if request.expected_load:
            self._access.require(AccessVerb.READ, topic)
        said, asked = on_conflict(request), translate.durability(request.durability)
        condition = translate.condition(request.condition)
        timer = translate.new_timer(
            request.timer,
            timer_id,
            limit,
            trace,
            said=said,
            condition=condition,
            sealed=self._engine.seals(topic),
        )
        result = await self._engine.schedule(topic, timer, asked)
        if result.change is Change.GONE:
            raise TimerNotFound.of(topic, timer_id)
        level = self._engine.durability(topic, asked)
        response = service.ScheduleResponse(
            **replies.scheduled(topic, timer_id, result, level, request.timer.seal_with)
        )
        if request.expected_load and result.due is not None:
            expected = await self._engine.expecting.load(topic, result.due)
            if expected is not None:
                response.expected_load.CopyFrom(replies.expected_load(expected))
        return response

    async def schedule_batch(
        self, request: service.ScheduleBatchRequest, trace: Mapping[str, str]
    ) -> service.ScheduleBatchResponse:
        """Store many timers. A bad one fails by itself."""
        _check_count("timers", len(request.timers))
        asked = translate.durability(request.durability)
        count = len(request.timers)
        with self._access.together(AccessVerb.SCHEDULE) as require:

            def admit(topic: str) -> int:
                require(topic)
                return self._room(topic)

            specs = Specs(request.timers, admit, trace, said=on_conflict(request), seals=self._engine.seals)
            await _by_stretches(self._reading, count, specs.read)
        outcomes = specs.outcomes(await self._engine.schedule_many(specs.timers, asked))
        results = replies.ScheduleResults(lambda topic: self._engine.durability(topic, asked))

        def answer(part: slice) -> None:
            for spec, (topic, timer_id, result) in zip(request.timers[part], outcomes, strict=False):
                if isinstance(result, ServiceError):
                    results.refuse(result)
                else:
                    results.add(topic, timer_id, result, spec.seal_with)
            results.join()

        await _by_stretches(self._answering, count, answer)
        return results.response

    async def schedule_columns(
        self, request: service.ScheduleColumnsRequest, trace: Mapping[str, str]
    ) -> service.ScheduleColumnsResponse:
        """Store many timers of one topic. A bad one fails by itself."""
        count = len(request.timer_ids)
        _check_count("timer_ids", count)
        topic, asked = request.topic, translate.durability(request.durability)
        limit = self._admit(topic)
        columns = RequestColumns(request, limit, trace, sealed=self._engine.seals(topic))
        await _by_stretches(self._reading, count, columns.read)
        results = await self._engine.schedule_many({topic: columns.timers}, asked)
        outcomes = columns.outcomes(results[topic])
        level = self._engine.durability(topic, asked)
        response = service.ScheduleColumnsResponse(reached=replies.reached(level))
        if request.seal_with:
            response.sealed_with_subject = True
        await _by_stretches(self._answering, count, lambda part: tell(response, outcomes[part]))
        return response

    async def cancel(self, request: service.CancelRequest) -> service.CancelResponse:  # see 0004
        """Remove a timer."""
        topic, timer_id = self._names(AccessVerb.SCHEDULE, request)
        required, asked = translate.condition(request.condition), translate.durability(request.durability)
        change, under_way = await self._engine.cancel(topic, timer_id, required, asked)
        return service.CancelResponse(
            cancelled=change is Change.CANCELLED,
            result=replies.RESULTS[change],
            message=self._engine.dispatch(topic).told if change is Change.GONE else "",
            delivery_under_way=under_way,
            reached=replies.reached(self._engine.durability(topic, asked)),
        )

    async def run_timer(self, request: service.RunTimerRequest) -> service.RunTimerResponse:
        """Make one timer due now."""
        topic, timer_id = self._names(AccessVerb.OPERATE, request)
        actions = self._access.actions
        async with actions.record(AccessVerb.OPERATE, "RunTimer", topic, timer_id, request.note) as action:
            with self._engine.durably(topic, translate.durability(request.durability)) as level:
                await action.begin(await self._standing(topic, timer_id))
                change, under_way = await self._engine.run_timer(topic, timer_id)
            if change is Change.GONE:
                raise TimerNotFound.of(topic, timer_id, self._engine.dispatch(topic).told)
            action.after = "being delivered" if under_way else "due now"
        return service.RunTimerResponse(
            result=replies.RESULTS[change], delivery_under_way=under_way, reached=replies.reached(level)
        )

    async def _standing(self, topic: str, timer_id: str) -> str:
        """When a timer is due, in words; also of one whose content does not open here, which may be run."""
        try:
            return brief.timer(await self._engine.get(topic, timer_id))
        except ContentSealed:
            return brief.SEALED

    async def get(self, request: service.GetTimerRequest) -> service.GetTimerResponse:
        """Read one timer."""
        topic, timer_id = self._names(AccessVerb.READ, request)
        stored = await self._engine.get(topic, timer_id)
        if stored is None:
            raise TimerNotFound.of(topic, timer_id, self._engine.dispatch(topic).told)
        with_content = self._access.allows(AccessVerb.PAYLOAD, topic)
        return service.GetTimerResponse(timer=replies.timer(topic, stored, with_content=with_content))

    async def list(self, request: service.ListTimersRequest) -> service.ListTimersResponse:
        """Read one page of a topic. Raises `InvalidField`."""
        self._access.require(AccessVerb.READ, request.topic)
        topic = self._engine.admit("topic", request.topic)
        if request.state not in FILTERS:
            raise InvalidField("state", f"{request.state} is not a state")
        if not 0 <= request.page_size <= MAX_PER_CALL:
            raise InvalidField("page_size", f"is {request.page_size}; give 0 to {MAX_PER_CALL}")
        page = await self._engine.page(
            topic,
            state=FILTERS[request.state],
            limit=request.page_size or DEFAULT_PAGE,
            cursor=request.page_token,
        )
        return service.ListTimersResponse(
            timers=[replies.timer(topic, stored) for stored in page.timers],
            next_page_token=page.cursor,
        )

    def _admit(self, topic: str) -> int:
        """How many bytes a payload of the topic may have. Raises `InvalidField` if the topic is not admitted,
        `Denied` if the caller may not schedule in it."""
        self._access.require(AccessVerb.SCHEDULE, topic)
        return self._room(topic)

    def _room(self, topic: str) -> int:
        return self._engine.max_payload_bytes(self._engine.admit("topic", topic))

    def _names(self, verb: AccessVerb, request: NamesTimer) -> tuple[str, str]:
        """The timer that a request names, if the caller may do this to its topic."""
        self._access.require(verb, request.topic)
        return self._engine.admit("topic", request.topic), validate.name("timer_id", request.timer_id)


def _check_count(field: str, count: int) -> None:
    if count > MAX_BATCH:
        raise InvalidField(field, f"has {count} entries; at most {MAX_BATCH} are allowed in a call")


async def _by_stretches(turn: asyncio.Lock, count: int, work: Callable[[slice], None]) -> None:
    """Do the work on `count` items, with turns of the loop for others in between. Long batches take turns: if
    they alternated in small steps, the first would end with the last."""
    if count <= STRETCH:
        work(slice(0, count))
        return
    async with turn:
        for start in range(0, count, STRETCH):
            await asyncio.sleep(0)
            work(slice(start, start + STRETCH))


def trace_context(pairs: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
    """Find the W3C trace context in the caller's metadata or headers, whose names are in lower case."""
    return {key: value for key, value in pairs if key in TRACE_CONTEXT and isinstance(value, str)}
