"""Recurrences over HTTP: `RecurrenceService` in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from google.protobuf.message import Message

from relay.v1 import recurrence_service_pb2 as pb
from relay.web import forms
from relay.web.operations import Answer, ApiCall, Calls, Operation
from relay.web.recurring.fields import named_without

ABOUT = ("if_version", "durability", "note")
"""The fields of a PutRecurrenceRequest, which stand beside those of its recurrence."""

SPEC = "recurrence."

ONLY_OF_ONE = ("payload", "headers", "seal_with")
"""The fields that listings leave out."""


async def put(calls: Calls, call: ApiCall) -> Answer:
    """Keep a recurrence under the id in the path, so that a repeated call changes nothing."""
    request = pb.PutRecurrenceRequest()
    call.read_beside(request, request.recurrence, ABOUT)
    request.recurrence.topic = call.path["topic"]
    request.recurrence.recurrence_id = call.path["recurrence_id"]
    with named_without(SPEC):
        answer = await calls.recurrences.put(request)
    created = answer.result == pb.PUT_RESULT_CREATED
    value = forms.write(answer)
    value["recurrence"] = _whole(value["recurrence"], answer.recurrence)
    return Answer(value, 201 if created else 200, location=_path(call.path) if created else "")


async def get(calls: Calls, call: ApiCall) -> Answer:
    """Read a recurrence with its payload."""
    answer = await calls.recurrences.get(pb.GetRecurrenceRequest(**call.path))
    return _one(answer, answer.recurrence)


async def page(calls: Calls, call: ApiCall) -> Answer:
    """Read one page of a topic's recurrences."""
    request = pb.ListRecurrencesRequest(topic=call.path["topic"])
    call.read_query(request)
    value = forms.write(await calls.recurrences.list(request))
    for each in value["recurrences"]:
        for name in ONLY_OF_ONE:
            each["spec"].pop(name, None)
    return Answer(value)


async def preview(calls: Calls, call: ApiCall) -> Answer:
    """Show the next instants of a rule that need not be kept."""
    request = pb.PreviewRecurrenceRequest()
    call.read(request)
    return Answer(forms.write(await calls.recurrences.preview(request)))


async def pause(calls: Calls, call: ApiCall) -> Answer:
    """Let no occurrence come until the pause is ended."""
    request = pb.PauseRecurrenceRequest()
    _read(call, request)
    answer = await calls.recurrences.pause(request)
    return _one(answer, answer.recurrence)


async def resume(calls: Calls, call: ApiCall) -> Answer:
    """End a pause."""
    request = pb.ResumeRecurrenceRequest()
    _read(call, request)
    answer = await calls.recurrences.resume(request)
    return _one(answer, answer.recurrence)


async def trigger(calls: Calls, call: ApiCall) -> Answer:
    """Make an occurrence now. A repeated call makes another one."""
    request = pb.TriggerRecurrenceRequest()
    _read(call, request)
    return Answer(forms.write(await calls.recurrences.trigger(request)))


async def backfill(calls: Calls, call: ApiCall) -> Answer:
    """Make occurrences for instants that have passed. A repeated call makes them again."""
    request = pb.BackfillRecurrenceRequest()
    _read(call, request)
    return Answer(forms.write(await calls.recurrences.backfill(request)))


async def delete(calls: Calls, call: ApiCall) -> Answer:
    """Remove a recurrence. It is not an error if there is none, so the call can be repeated."""
    request = pb.DeleteRecurrenceRequest(topic=call.path["topic"], recurrence_id=call.path["recurrence_id"])
    call.read_query(request)
    return Answer(forms.write(await calls.recurrences.delete(request)))


async def history(calls: Calls, call: ApiCall) -> Answer:
    """Read what came of the latest instants."""
    request = pb.GetRecurrenceHistoryRequest(
        topic=call.path["topic"], recurrence_id=call.path["recurrence_id"]
    )
    call.read_query(request)
    return Answer(forms.write(await calls.recurrences.history(request)))


def _read(call: ApiCall, request: Any) -> None:
    call.read(request, without=tuple(call.path))
    request.topic, request.recurrence_id = call.path["topic"], call.path["recurrence_id"]


def _one(answer: Message, recurrence: pb.Recurrence) -> Answer:
    value = forms.write(answer)
    return Answer({**value, "recurrence": _whole(value["recurrence"], recurrence)})


def _whole(value: dict[str, Any], recurrence: pb.Recurrence) -> dict[str, Any]:
    return {**value, "spec": forms.with_message(value["spec"], recurrence.spec.payload)}


def _path(segments: Mapping[str, str]) -> str:
    topic, recurrence_id = (quote(segments[name], safe="") for name in ("topic", "recurrence_id"))
    return f"/v1/topics/{topic}/recurrences/{recurrence_id}"


RECURRENCES = "/v1/topics/{topic}/recurrences"
ONE = f"{RECURRENCES}/{{recurrence_id}}"

OPERATIONS = (
    Operation(
        "GET",
        RECURRENCES,
        page,
        "Page through a topic's recurrences in the order of their ids, without payloads.",
        pb.ListRecurrencesResponse,
        query=dict.fromkeys(("prefix", "paused", "page_size", "page_token"), pb.ListRecurrencesRequest),
    ),
    Operation(
        "PUT",
        ONE,
        put,
        "Keep a recurrence under this id. An existing one is replaced, or left if it is like this already.",
        pb.PutRecurrenceResponse,
        pb.PutRecurrenceRequest,
        statuses={201: "There was none.", 200: "There was one, which was replaced or left as it is."},
        problems=(412,),
    ),
    Operation(
        "GET", ONE, get, "Read a recurrence with its payload.", pb.GetRecurrenceResponse, problems=(404,)
    ),
    Operation(
        "DELETE",
        ONE,
        delete,
        "Remove a recurrence. A missing one is not an error.",
        pb.DeleteRecurrenceResponse,
        query=dict.fromkeys(("cancel_waiting", "durability", "note"), pb.DeleteRecurrenceRequest),
    ),
    Operation(
        "GET",
        f"{ONE}/history",
        history,
        "Read what came of the latest instants, the latest one at the end.",
        pb.GetRecurrenceHistoryResponse,
        query={"limit": pb.GetRecurrenceHistoryRequest},
        problems=(404,),
    ),
    Operation(
        "POST",
        f"{ONE}:pause",
        pause,
        "Let no occurrence come until the pause is ended.",
        pb.PauseRecurrenceResponse,
        pb.PauseRecurrenceRequest,
        problems=(404,),
    ),
    Operation(
        "POST",
        f"{ONE}:resume",
        resume,
        "End a pause.",
        pb.ResumeRecurrenceResponse,
        pb.ResumeRecurrenceRequest,
        problems=(404,),
    ),
    Operation(
        "POST",
        f"{ONE}:trigger",
        trigger,
        "Make an occurrence now, beside the rule. A repeated call makes another one.",
        pb.TriggerRecurrenceResponse,
        pb.TriggerRecurrenceRequest,
        problems=(404, 429),
    ),
    Operation(
        "POST",
        f"{ONE}:backfill",
        backfill,
        "Make occurrences for instants that have passed. A repeated call makes them again.",
        pb.BackfillRecurrenceResponse,
        pb.BackfillRecurrenceRequest,
        problems=(404, 429),
    ),
    Operation(
        "POST",
        "/v1/recurrences:preview",
        preview,
        "Show the next instants of a rule that need not be kept.",
        pb.PreviewRecurrenceResponse,
        pb.PreviewRecurrenceRequest,
    ),
)
