"""The JSON API as an ASGI application: routes, guards, errors, and one measurement for each request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from relay.api.access import Access
from relay.api.call_time import CallTime
from relay.api.deliveries import Consumers
from relay.api.errors import INTERNAL, kind
from relay.api.history.calls import HistoryCalls
from relay.api.recurring.calendars import CalendarCalls
from relay.api.recurring.calls import RecurrenceCalls
from relay.api.timers import TimerCalls, trace_context
from relay.api.topics import TopicCalls
from relay.core.errors import ServiceError
from relay.core.trust.usage import Bounds
from relay.engine.engine import Engine
from relay.web import deliveries, document, forms, guard, problems, timers, topics
from relay.web.handover import Carrying, attended, hand_over
from relay.web.operations import Answer, ApiCall, Calls, Operation, decoded, queried
from relay.web.problems import Refused
from relay.web.recurring import calendars, recurrences

OPERATIONS: tuple[Operation, ...] = (
    *document.OPERATIONS,
    *topics.OPERATIONS,
    *timers.OPERATIONS,
    *recurrences.OPERATIONS,
    *calendars.OPERATIONS,
    *deliveries.OPERATIONS,
)

HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE")
OTHER_METHOD = "_OTHER"
"""OpenTelemetry's name for a method that it does not know."""

Measure = Callable[[str, str, int, float], None]
"""Called for each request with its method, its route ("" if there is none), its status (0 if the caller has
gone) and its duration in seconds."""

log = logging.getLogger(__name__)


class JsonApi:
    """Answers requests. `allowed_hosts` are names beside loopback that `Host` may have. `admit` knows
    the callers; without it all are anonymous. `bounds_of_callers` says what they may cost; without it nothing
    is counted."""

    def __init__(
        self,
        engine: Engine,
        measure: Measure,
        call_time: CallTime,
        *,
        max_body_bytes: int,
        allowed_hosts: Collection[str] = (),
        admit: guard.Admit | None = None,
        access: Access | None = None,
        bounds_of_callers: Bounds | None = None,
    ) -> None:
        self._calls = Calls(
            TimerCalls(engine, access),
            TopicCalls(engine, access),
            RecurrenceCalls(engine, access),
            CalendarCalls(engine, access),
            Consumers(engine, access),
            HistoryCalls(engine, access),
        )
        self._measure = measure
        self._call_time = call_time
        self._max_body_bytes = max_body_bytes
        self._allowed_hosts = allowed_hosts
        self._admit = admit
        self._bounds = bounds_of_callers or Bounds(time.monotonic)
        self._routes = [(operation.pattern, operation) for operation in OPERATIONS]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = scope["raw_path"].decode("ascii", errors="replace")
        began = time.perf_counter()
        operations, segments = self._find(request.method, path)
        status = 0  # for a caller who has gone
        try:
            response = await self._answer(request, path, operations, segments)
            response.headers.update(HEADERS)
            if isinstance(response, Carrying):
                await hand_over(response, receive, send)
            else:
                await response(scope, receive, send)
            status = response.status_code
        except ClientDisconnect:
            pass
        finally:
            method = request.method if request.method in METHODS else OTHER_METHOD
            route = operations[0].path if operations else ""
            self._measure(method, route, status, time.perf_counter() - began)

    def _find(self, method: str, path: str) -> tuple[list[Operation], Mapping[str, str]]:
        """Find the operations that the path allows, and the one that is meant, with the segments of its path.

        This uses the path as it was sent: in the decoded path, the slashes of ids would look like others.
        `…/x:run` may be a timer's name, or an action on `x`: the method decides.
        """
        found = [(route, match) for pattern, route in self._routes if (match := pattern.fullmatch(path))]
        for operation, match in found:
            if operation.method == _served_as(method):
                return [operation], match.groupdict()
        return [operation for operation, _ in found], {}

    async def _answer(
        self, request: Request, path: str, operations: Sequence[Operation], segments: Mapping[str, str]
    ) -> Response:
        call = ApiCall({}, {}, {}, trace_context(request.headers.items()))
        try:
            guard.check_host(request, self._allowed_hosts)
            if self._admit is not None:
                await self._admit(request)
            delivers = any(operation.takes_deliveries for operation in operations)
            usage = self._bounds.begin(delivers=delivers)
            if usage is None:
                return await self._perform(operations, call, request, path, segments)
            count = usage.delivered if delivers else usage.moved
            try:
                response = await self._perform(operations, call, request, path, segments)
                count(len(response.body))
                return response
            finally:  # what came is counted even where nothing is done with it
                count(call.size)
                usage.end()
        except Refused as refused:
            return problems.of_refusal(refused, path)
        except ServiceError as failure:
            if kind(failure) is INTERNAL:
                log.error("a call failed", extra={"reason": str(failure)})
            return problems.of_error(failure, path, call.given)
        except ClientDisconnect:
            raise
        except Exception:
            log.exception("a call failed")
            return problems.of_error(ServiceError(), path, {})

    async def _perform(
        self,
        operations: Sequence[Operation],
        call: ApiCall,
        request: Request,
        path: str,
        segments: Mapping[str, str],
    ) -> Response:
        operation, began = _operation(request.method, operations), time.monotonic()
        timeout = None if operation.has_own_time else guard.timeout(request)
        call.path = decoded(segments)
        call.query = queried(request.scope["query_string"], operation.query)
        if operation.takes_body:
            guard.check_content_type(request)
            content = await guard.body(request, self._max_body_bytes, call.came)
            call.body = _parsed(content)
        if operation.takes_deliveries:
            return await self._carry(operation, call, request)
        answer = await self._handle(operation, call, None if timeout is None else began + timeout)
        if not answer.held:
            return problems.not_held(path, answer.value["result"], answer.value)
        headers = {"content-type": guard.JSON}
        if answer.location:
            headers["location"] = answer.location
        return Response(forms.dump(answer.value), answer.status, headers)

    async def _handle(self, operation: Operation, call: ApiCall, deadline: float | None) -> Answer:
        """Perform the operation while its caller waits, until `deadline` (monotonic seconds)."""
        if operation.has_own_time:
            return await operation.handle(self._calls, call)
        with self._call_time.bound(None if deadline is None else deadline - time.monotonic()):
            return await operation.handle(self._calls, call)

    async def _carry(self, operation: Operation, call: ApiCall, request: Request) -> Response:
        """Make an answer with deliveries, which are given back if that fails."""
        answer = await attended(request.receive, lambda: operation.handle(self._calls, call))
        if answer.taken is None:
            return Response(forms.dump(answer.value), answer.status, {"content-type": guard.JSON})
        try:
            response = Carrying(forms.dump(answer.value), answer.status, {"content-type": guard.JSON})
        except BaseException:
            answer.taken.give_back()
            raise
        response.taken = answer.taken
        return response


def _served_as(method: str) -> str:
    return "GET" if method == "HEAD" else method  # the server leaves out the content


def _operation(method: str, operations: Sequence[Operation]) -> Operation:
    """Return the operation that is meant. Raises `Refused` if there is none."""
    if not operations:
        raise Refused(
            404, "no-such-path", "There is no such path", f"see {document.PATH} for those there are"
        )
    if operations[0].method == _served_as(method):
        return operations[0]
    methods = [operation.method for operation in operations]
    allowed = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
    raise Refused(405, "method-not-allowed", "There is no such method here", f"use {allowed}", allow=allowed)


def _parsed(content: bytes) -> Any:
    if not content.strip():
        return {}
    try:
        return forms.parse(content)
    except forms.NotJson as failure:
        raise Refused(400, "not-json", "The body is not JSON", f"body: {failure}") from None
