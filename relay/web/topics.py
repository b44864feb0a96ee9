"""Topics and dead letters over HTTP: `TopicService` in JSON."""

from __future__ import annotations

from google.protobuf.message import Message

from relay.v1 import topic_service_pb2 as pb
from relay.web import forms
from relay.web.operations import Answer, ApiCall, Calls, Operation


async def page(calls: Calls, call: ApiCall) -> Answer:
    """Read the state of topics."""
    request = pb.ListTopicsRequest()
    call.read_query(request)
    return Answer(forms.write(await calls.topics.list(request)))


async def get(calls: Calls, call: ApiCall) -> Answer:
    """Read the state of one topic."""
    return Answer(forms.write(await calls.topics.get(pb.GetTopicRequest(**call.path))))


async def pause(calls: Calls, call: ApiCall) -> Answer:
    """Stop claims of a topic."""
    request = pb.PauseTopicRequest()
    _read(call, request)
    return Answer(forms.write(await calls.topics.pause(request)))


async def resume(calls: Calls, call: ApiCall) -> Answer:
    """End a pause."""
    request = pb.ResumeTopicRequest()
    _read(call, request)
    return Answer(forms.write(await calls.topics.resume(request)))


async def reshard(calls: Calls, call: ApiCall) -> Answer:
    """Begin to move a topic into another number of partitions."""
    request = pb.ReshardTopicRequest()
    _read(call, request)
    return Answer(forms.write(await calls.topics.reshard(request)))


async def forecast(calls: Calls, call: ApiCall) -> Answer:
    """Tell what falls due in a topic."""
    request = pb.ForecastRequest(topic=call.path["topic"])
    call.read_query(request)
    return Answer(forms.write(await calls.topics.forecast(request)))


async def dead_page(calls: Calls, call: ApiCall) -> Answer:
    """Read one page of dead letters."""
    request = pb.ListDeadLettersRequest(topic=call.path["topic"])
    call.read_query(request)
    call.read_query(request.filter)
    value = forms.write(await calls.topics.list_dead(request))
    for letter in value["dead_letters"]:
        forms.drop_content(letter)
    return Answer(value)


async def dead_letter(calls: Calls, call: ApiCall) -> Answer:
    """Read a dead letter with its payload."""
    answer = await calls.topics.get_dead(pb.GetDeadLetterRequest(**call.path))
    value = forms.write(answer)
    return Answer({"dead_letter": forms.with_message(value["dead_letter"], answer.dead_letter.payload)})


async def redrive(calls: Calls, call: ApiCall) -> Answer:
    """Bring dead letters back to life."""
    request = pb.RedriveDeadLettersRequest()
    _read(call, request)
    return Answer(forms.write(await calls.topics.redrive(request)))


async def purge(calls: Calls, call: ApiCall) -> Answer:
    """Remove dead letters for good."""
    request = pb.PurgeDeadLettersRequest()
    _read(call, request)
    return Answer(forms.write(await calls.topics.purge(request)))


async def forget_subject(calls: Calls, call: ApiCall) -> Answer:
    """Remove a subject's key for good."""
    request = pb.ForgetSubjectRequest()
    _read(call, request)
    return Answer(forms.write(await calls.topics.forget_subject(request)))


def _read(call: ApiCall, request: Message) -> None:
    call.read(request, without=("topic",))
    request.topic = call.path["topic"]  # type: ignore[attr-defined]


TOPICS = "/v1/topics"
ONE = f"{TOPICS}/{{topic}}"
DEAD = f"{ONE}/dead-letters"

OPERATIONS = (
    Operation(
        "GET",
        TOPICS,
        page,
        "List topics with their state, in the order of their names.",
        pb.ListTopicsResponse,
        query=dict.fromkeys(("page_size", "page_token"), pb.ListTopicsRequest),
    ),
    Operation("GET", ONE, get, "Read the state of a topic.", pb.GetTopicResponse),
    Operation(
        "POST",
        f"{ONE}:pause",
        pause,
        "Stop claims of a topic by every relay.",
        pb.PauseTopicResponse,
        pb.PauseTopicRequest,
    ),
    Operation(
        "POST",
        f"{ONE}:resume",
        resume,
        "End a pause.",
        pb.ResumeTopicResponse,
        pb.ResumeTopicRequest,
    ),
    Operation(
        "POST",
        f"{ONE}:reshard",
        reshard,
        "Begin to move a topic into twice or half as many partitions; repeat it once `moving_to` is gone.",
        pb.ReshardTopicResponse,
        pb.ReshardTopicRequest,
    ),
    Operation(
        "GET",
        f"{ONE}/forecast",
        forecast,
        "Count the timers of a topic that fall due in each of the coming intervals.",
        pb.ForecastResponse,
        query=dict.fromkeys(("horizon", "resolution"), pb.ForecastRequest),
    ),
    Operation(
        "GET",
        DEAD,
        dead_page,
        "Page through a topic's dead letters, the oldest death first, without payloads.",
        pb.ListDeadLettersResponse,
        query={
            **dict.fromkeys(("page_size", "page_token"), pb.ListDeadLettersRequest),
            **dict.fromkeys(("timer_id", "reason", "died_since", "died_before"), pb.DeadLetterFilter),
        },
    ),
    Operation(
        "GET",
        f"{DEAD}/{{dead_id}}",
        dead_letter,
        "Read a dead letter with its payload.",
        pb.GetDeadLetterResponse,
        problems=(404,),
    ),
    Operation(
        "POST",
        f"{DEAD}:redrive",
        redrive,
        "Bring dead letters back to life: due now, with attempts from 1.",
        pb.RedriveDeadLettersResponse,
        pb.RedriveDeadLettersRequest,
        problems=(507,),
    ),
    Operation(
        "POST",
        f"{DEAD}:purge",
        purge,
        "Remove dead letters for good.",
        pb.PurgeDeadLettersResponse,
        pb.PurgeDeadLettersRequest,
    ),
    Operation(
        "POST",
        f"{ONE}:forget-subject",
        forget_subject,
        "Remove the key of a subject for good: what was sealed with it never opens again.",
        pb.ForgetSubjectResponse,
        pb.ForgetSubjectRequest,
        problems=(404,),
    ),
)
