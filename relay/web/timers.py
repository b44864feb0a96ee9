"""Timers over HTTP: `TimerService` in JSON."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from relay.core.errors import InvalidField
from relay.v1 import timer_pb2 as pb
from relay.v1 import timer_service_pb2 as service
from relay.web import forms
from relay.web.operations import Answer, ApiCall, Calls, Operation, timer_path

STORED = (pb.CHANGE_RESULT_CREATED, pb.CHANGE_RESULT_REPLACED)
ABOUT = ("mode", "on_conflict", "condition", "durability", "expected_load")
"""The fields of a ScheduleRequest, which stand beside those of its timer."""


async def schedule(calls: Calls, call: ApiCall) -> Answer:
    """Handle `POST`: the timer_id is in the body, or the relay makes one."""
    return await _schedule(calls, call)


async def put(calls: Calls, call: ApiCall) -> Answer:
    """Handle `PUT`: the timer_id is in the path, so that a repeated call changes nothing."""
    return await _schedule(calls, call)


async def _schedule(calls: Calls, call: ApiCall) -> Answer:
    request = service.ScheduleRequest()
    call.read_beside(request, request.timer, ABOUT)
    for name, value in call.path.items():
        setattr(request.timer, name, value)
    if "timer_id" in call.path and not request.timer.timer_id:  # the relay would make one
        raise InvalidField("timer_id", "is empty; name the timer in the path")
    answer = await calls.timers.schedule(request, call.trace)
    stored = answer.result in STORED
    return Answer(
        _brief(answer),
        201 if answer.result == pb.CHANGE_RESULT_CREATED else 200,
        location=timer_path(answer.timer.topic, answer.timer.timer_id) if stored else "",
        held=stored or not request.HasField("condition"),
    )


async def batch(calls: Calls, call: ApiCall) -> Answer:
    """Store many timers; each has a result of its own. Raises `InvalidField`."""
    request = service.ScheduleBatchRequest()
    body = call.body
    specs: Any = []
    if isinstance(body, dict):
        specs = body.get("timers", [])
        body = {name: value for name, value in body.items() if name != "timers"}
    call.read(request, body)
    if not isinstance(specs, list):
        raise InvalidField("timers", "must be a list: […]")
    givens = []
    for index, spec in enumerate(specs):
        timer = request.timers.add()
        givens.append(forms.read(timer, spec, path=f"timers[{index}].", without=("topic",)))
        timer.topic = call.path["topic"]
    answer = await calls.timers.schedule_batch(request, call.trace)
    for result, given in zip(answer.results, givens, strict=True):
        _rename(result.error, given)
    value = forms.write(answer)
    for result in value["results"]:
        if "scheduled" in result:
            forms.drop_content(result["scheduled"].get("timer", {}))
            result["scheduled"]["reached"] = forms.reached(result["scheduled"]["reached"])
    return Answer(value)


def _rename(error: service.ItemError, given: dict[str, str]) -> None:
    """Name the field as the caller did."""
    if name := given.get(error.field):
        error.message = name + error.message.removeprefix(error.field)
        error.field = name


async def cancel(calls: Calls, call: ApiCall) -> Answer:
    """Cancel a timer. It is not an error if there is none, so the call can be repeated."""
    request = service.CancelRequest(topic=call.path["topic"], timer_id=call.path["timer_id"])
    request.durability = call.query.get("durability", "")
    conditional = call.read_query(request.condition)
    answer = await calls.timers.cancel(request)
    kept = answer.result in (pb.CHANGE_RESULT_IN_FLIGHT, pb.CHANGE_RESULT_UNCHANGED)
    return Answer(forms.write(answer), held=not (conditional and kept))


async def run(calls: Calls, call: ApiCall) -> Answer:
    """Make a timer due now."""
    request = service.RunTimerRequest()
    call.read(request, without=tuple(call.path))
    request.topic, request.timer_id = call.path["topic"], call.path["timer_id"]
    return Answer(forms.write(await calls.timers.run_timer(request)))


async def get(calls: Calls, call: ApiCall) -> Answer:
    """Read a timer with its payload."""
    answer = await calls.timers.get(service.GetTimerRequest(**call.path))
    value = forms.write(answer)
    return Answer({"timer": forms.with_message(value["timer"], answer.timer.payload)})


async def history(calls: Calls, call: ApiCall) -> Answer:
    """Read a page of a timer's life."""
    request = service.GetTimerHistoryRequest(topic=call.path["topic"], timer_id=call.path["timer_id"])
    call.read_query(request)
    answer = await calls.histories.get(request)
    value = forms.write(answer)
    for found in (value.get("timer") or {}, *value["dead_letters"]):
        forms.drop_content(found)
    return Answer(value)


async def page(calls: Calls, call: ApiCall) -> Answer:
    """Read one page of a topic."""
    request = service.ListTimersRequest(topic=call.path["topic"])
    call.read_query(request)
    return Answer(_brief(await calls.timers.list(request)))


def _brief(message: Message) -> dict[str, Any]:
    """Remove the fields of timers that only `get` fills."""
    value = forms.write(message)
    for timer in (value.get("timer"), *value.get("timers", ())):
        forms.drop_content(timer or {})
    return value


TIMERS = "/v1/topics/{topic}/timers"
ONE = f"{TIMERS}/{{timer_id}}"
SCHEDULED = {201: "A new timer was stored.", 200: "A timer with that id was replaced, or left as it is."}
REFUSED = (404, 412, 429, 507)

OPERATIONS = (
    Operation(
        "POST",
        TIMERS,
        schedule,
        "Schedule a timer. With a timer_id, a repeated call changes nothing more.",
        service.ScheduleResponse,
        service.ScheduleRequest,
        statuses=SCHEDULED,
        problems=REFUSED,
    ),
    Operation(
        "GET",
        TIMERS,
        page,
        "Page through a topic in the order of next_claim_time, without payloads.",
        service.ListTimersResponse,
        query=dict.fromkeys(("state", "page_size", "page_token"), service.ListTimersRequest),
    ),
    Operation(
        "POST",
        f"{TIMERS}:batch",
        batch,
        "Schedule many timers. Each has a result of its own, in the same order: look at each.",
        service.ScheduleBatchResponse,
        service.ScheduleBatchRequest,
    ),
    Operation(
        "PUT",
        ONE,
        put,
        "Schedule a timer under this id. An existing timer is replaced.",
        service.ScheduleResponse,
        service.ScheduleRequest,
        statuses=SCHEDULED,
        problems=REFUSED,
    ),
    Operation("GET", ONE, get, "Read a timer with its payload.", service.GetTimerResponse, problems=(404,)),
    Operation(
        "GET",
        f"{ONE}/history",
        history,
        "Read a timer's life: how it stands, and what the topic's journal has of it, the newest first.",
        service.GetTimerHistoryResponse,
        query=dict.fromkeys(("page_size", "page_token"), service.GetTimerHistoryRequest),
    ),
    Operation(
        "DELETE",
        ONE,
        cancel,
        "Cancel a timer, even while it is being delivered. A missing timer is not an error.",
        service.CancelResponse,
        query={
            **dict.fromkeys(("only_if_pending", "due_time"), pb.Condition),
            "durability": service.CancelRequest,
        },
        problems=(412, 429),
    ),
    Operation(
        "POST",
        f"{ONE}:run",
        run,
        "Make a waiting timer due now.",
        service.RunTimerResponse,
        service.RunTimerRequest,
        problems=(404,),
    ),
)
