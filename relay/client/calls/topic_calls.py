"""The calls of TopicService as steps; see `relay.client.calls.timer_calls`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from relay.client import arguments, errors
from relay.client.arguments import Seconds
from relay.client.calls.change_values import read_reached
from relay.client.calls.channel import (
    FORECAST,
    FORGET_SUBJECT,
    GET_DEAD,
    GET_TOPIC,
    LIST_DEAD,
    LIST_TOPICS,
    PAUSE_TOPIC,
    PURGE,
    REDRIVE,
    RESHARD_TOPIC,
    RESUME_TOPIC,
)
from relay.client.calls.timer_calls import Steps, call
from relay.client.calls.topic_values import (
    RESULTS,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterInfo,
    Forecast,
    RedriveResult,
    TopicInfo,
)
from relay.v1 import topic_service_pb2 as pb

MAX_TOPICS_PAGE = 1_000
MAX_DEAD_PAGE = 500
"""The largest page. One call redrives or purges at most this many dead letters, too."""
MAX_PARTITIONS = 1_024
MAX_RATE = 2**32 - 1


def page(page_size: int, token: str, timeout: float) -> Steps[tuple[list[TopicInfo], str]]:
    """Read one page of all topics, and the token of the next page. An empty token means that there is
    none."""
    request = pb.ListTopicsRequest(page_size=page_size, page_token=token)
    response = yield from call(LIST_TOPICS, request, timeout)
    return [TopicInfo.from_proto(topic) for topic in response.topics], response.next_page_token


def stats(topic: str, timeout: float) -> Steps[TopicInfo]:
    """Read how a topic stands."""
    arguments.check_name(topic, "topic")
    response = yield from call(GET_TOPIC, pb.GetTopicRequest(topic=topic), timeout)
    return TopicInfo.from_proto(response.topic)


def pause(
    topic: str, until: datetime | None, duration: Seconds | None, note: str, durability: str, timeout: float
) -> Steps[TopicInfo]:
    """Stop claims of a topic. Raises `InvalidArgument`."""
    arguments.check_name(topic, "topic")
    request = pb.PauseTopicRequest(topic=topic, note=arguments.check_note(note), durability=durability)
    if until is not None and duration is not None:
        raise errors.InvalidArgument("until and duration can't both be given", field="until")
    if until is not None:
        request.until.CopyFrom(arguments.to_timestamp(until, "until"))
    if duration is not None:
        request.duration.CopyFrom(arguments.to_duration(duration, "duration"))
    response = yield from call(PAUSE_TOPIC, request, timeout)
    read_reached(durability, response.reached)
    return TopicInfo.from_proto(response.topic)


def resume(topic: str, note: str, durability: str, timeout: float) -> Steps[TopicInfo]:
    """End a pause."""
    arguments.check_name(topic, "topic")
    request = pb.ResumeTopicRequest(topic=topic, note=arguments.check_note(note), durability=durability)
    response = yield from call(RESUME_TOPIC, request, timeout)
    read_reached(durability, response.reached)
    return TopicInfo.from_proto(response.topic)


def reshard(topic: str, partitions: int, max_rate: int, note: str, timeout: float) -> Steps[TopicInfo]:
    """Begin to move a topic into another number of partitions. Raises `InvalidArgument`."""
    arguments.check_name(topic, "topic")
    arguments.check_count(partitions, "partitions", 1, MAX_PARTITIONS)
    arguments.check_count(max_rate, "max_rate", 0, MAX_RATE)
    request = pb.ReshardTopicRequest(
        topic=topic, partitions=partitions, max_rate=max_rate, note=arguments.check_note(note)
    )
    response = yield from call(RESHARD_TOPIC, request, timeout)
    return TopicInfo.from_proto(response.topic)


def forecast(
    topic: str, horizon: Seconds | None, resolution: Seconds | None, timeout: float
) -> Steps[Forecast]:
    """Read what falls due in a topic. Raises `InvalidArgument`."""
    arguments.check_name(topic, "topic")
    request = pb.ForecastRequest(topic=topic)
    if horizon is not None:
        request.horizon.CopyFrom(arguments.to_duration(horizon, "horizon"))
    if resolution is not None:
        request.resolution.CopyFrom(arguments.to_duration(resolution, "resolution"))
    response = yield from call(FORECAST, request, timeout)
    return Forecast.from_proto(response)


def dead_page(
    topic: str, wanted: DeadLetterFilter, page_size: int, token: str, timeout: float
) -> Steps[tuple[list[DeadLetterInfo], str]]:
    """Look at `page_size` dead letters: return those that are wanted, and the token of the next page."""
    request = pb.ListDeadLettersRequest(
        topic=topic, filter=wanted.to_proto(), page_size=page_size, page_token=token
    )
    response = yield from call(LIST_DEAD, request, timeout)
    return [DeadLetterInfo.from_proto(letter) for letter in response.dead_letters], response.next_page_token


def dead_letter(topic: str, dead_id: str, timeout: float) -> Steps[DeadLetter | None]:
    """Read a dead letter, or None."""
    arguments.check_name(topic, "topic")
    try:
        request = pb.GetDeadLetterRequest(topic=topic, dead_id=dead_id)
        response = yield from call(GET_DEAD, request, timeout)
    except errors.NotFound:
        return None
    return DeadLetter.from_proto(response.dead_letter)


def redrive(
    topic: str, dead_ids: Sequence[str], note: str, durability: str, timeout: float
) -> Steps[list[RedriveResult]]:
    """Bring dead letters back to life; return one result each. `timeout` (seconds) bounds each call of
    500."""
    arguments.check_name(topic, "topic")
    results: list[RedriveResult] = []
    for start in range(0, len(dead_ids), MAX_DEAD_PAGE):
        part = dead_ids[start : start + MAX_DEAD_PAGE]
        request = pb.RedriveDeadLettersRequest(
            topic=topic, dead_ids=part, note=arguments.check_note(note), durability=durability
        )
        response = yield from call(REDRIVE, request, timeout)
        read_reached(durability, response.reached)
        results += [RESULTS.get(result, RedriveResult.UNKNOWN) for result in response.results]
    return results


def purge(topic: str, dead_ids: Sequence[str], note: str, durability: str, timeout: float) -> Steps[int]:
    """Remove dead letters for good; return how many were there. `timeout` (seconds) bounds each call of
    500."""
    arguments.check_name(topic, "topic")
    purged = 0
    for start in range(0, len(dead_ids), MAX_DEAD_PAGE):
        part = dead_ids[start : start + MAX_DEAD_PAGE]
        request = pb.PurgeDeadLettersRequest(
            topic=topic, dead_ids=part, note=arguments.check_note(note), durability=durability
        )
        response = yield from call(PURGE, request, timeout)
        read_reached(durability, response.reached)
        purged += response.purged
    return purged


def forget_subject(topic: str, subject: str, note: str, durability: str, timeout: float) -> Steps[datetime]:
    """Remove the key of a subject for good; return when that was."""
    arguments.check_name(topic, "topic")
    arguments.check_name(subject, "subject")
    request = pb.ForgetSubjectRequest(
        topic=topic, subject=subject, note=arguments.check_note(note), durability=durability
    )
    response = yield from call(FORGET_SUBJECT, request, timeout)
    read_reached(durability, response.reached)
    return arguments.to_datetime(response.forget_time)


def check_dead_list(topic: str, wanted: DeadLetterFilter, page_size: int) -> None:
    """Refuse what is plainly wrong before the first page is asked for."""
    arguments.check_name(topic, "topic")
    arguments.check_count(page_size, "page_size", 1, MAX_DEAD_PAGE)
    wanted.to_proto()
