"""The double's topics and dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2  # type: ignore[import-untyped, unused-ignore]

from relay.v1 import topic_service_pb2 as pb
from relay.v1 import topic_service_pb2_grpc
from tests.worlds.doubled import trailers, without_content

NOW = 1_893_456_000
"""2030-01-01T00:00:00Z, and it stays so."""


LATER = error_details_pb2.RetryInfo(retry_delay=Duration(seconds=3600))
"""Later than any timeout, so that a call ends with the first answer that has it."""


def abort(context: Any, code: grpc.StatusCode, message: str, details: Sequence[Message]) -> None:
    """End a call with a status that has these details."""
    context.set_trailing_metadata(trailers(code, message, details))
    context.abort(code, message)


class TopicDouble(topic_service_pb2_grpc.TopicServiceServicer):
    """Dead letters in a dict for each topic, by `dead_id`; `alive` are timer_ids in the way of a redrive."""

    def __init__(self) -> None:
        self.topics: dict[str, pb.Topic] = {}
        self.dead: dict[str, dict[str, pb.DeadLetter]] = {}
        self.alive: set[str] = set()
        self.calls: list[tuple[str, Any]] = []
        """What was asked, in order: the method's name and the request."""
        self.fail_after: int | None = None
        """So many calls are answered; those that follow are UNAVAILABLE."""
        self.malformed = ""
        """The only dead_id that is refused as none that could be one."""
        self.moves_end = True
        """Whether a move is over at the look that follows its begin."""
        self.shortest = 1000
        """No page of dead letters is longer, whatever was asked for."""

    def die(self, topic: str, timer_id: str, **fields: Any) -> str:
        """Add a dead letter; answers its `dead_id`."""
        letters = self.dead.setdefault(topic, {})
        dead_id = f"{(NOW + len(letters)) * 1000}-0"
        about: dict[str, Any] = {
            "reason": "attempts",
            "attempts": 25,
            "last_error": "boom",
            "due_time": Timestamp(seconds=NOW),
            "death_time": Timestamp(seconds=NOW + len(letters)),
            "occurrence_id": f"{timer_id}/00",
        }
        letters[dead_id] = pb.DeadLetter(topic=topic, timer_id=timer_id, dead_id=dead_id, **about | fields)
        return dead_id

    def asked(self, method: str) -> list[Any]:
        """The requests of one method."""
        return [request for name, request in self.calls if name == method]

    def ListTopics(self, request: pb.ListTopicsRequest, context: Any) -> pb.ListTopicsResponse:
        self._note("ListTopics", request, context)
        names = [name for name in sorted({*self.topics, *self.dead}) if name > request.page_token]
        page = names[: request.page_size]
        token = page[-1] if len(names) > len(page) else ""
        return pb.ListTopicsResponse(topics=[self._topic(name) for name in page], next_page_token=token)

    def GetTopic(self, request: pb.GetTopicRequest, context: Any) -> pb.GetTopicResponse:
        self._note("GetTopic", request, context)
        if self.moves_end and request.topic in self.topics and self.asked("ReshardTopic"):
            self._end_move(self.topics[request.topic])
        return pb.GetTopicResponse(topic=self._topic(request.topic))

    def PauseTopic(self, request: pb.PauseTopicRequest, context: Any) -> pb.PauseTopicResponse:
        self._note("PauseTopic", request, context)
        topic = self._topic(request.topic)
        topic.paused = True
        if request.HasField("until"):
            topic.paused_until.CopyFrom(request.until)
        if request.HasField("duration"):
            topic.paused_until.seconds = NOW + request.duration.seconds
        self.topics[request.topic] = topic
        return pb.PauseTopicResponse(topic=topic)

    def ResumeTopic(self, request: pb.ResumeTopicRequest, context: Any) -> pb.ResumeTopicResponse:
        self._note("ResumeTopic", request, context)
        topic = self._topic(request.topic)
        topic.paused = False
        topic.ClearField("paused_until")
        self.topics[request.topic] = topic
        return pb.ResumeTopicResponse(topic=topic)

    def ReshardTopic(self, request: pb.ReshardTopicRequest, context: Any) -> pb.ReshardTopicResponse:
        self._note("ReshardTopic", request, context)
        topic = self._topic(request.topic)
        count = topic.partitions or 1
        if not topic.moving_to and count != request.partitions:
            topic.moving_to = count * 2 if request.partitions > count else count // 2
        self.topics[request.topic] = topic
        return pb.ReshardTopicResponse(topic=topic)

    def _end_move(self, topic: pb.Topic) -> None:
        if topic.moving_to:
            topic.partitions = topic.moving_to
            topic.ClearField("moving_to")

    def ListDeadLetters(self, request: pb.ListDeadLettersRequest, context: Any) -> pb.ListDeadLettersResponse:
        self._note("ListDeadLetters", request, context)
        rest = [dead_id for dead_id in self.dead.get(request.topic, {}) if dead_id > request.page_token]
        page = rest[: min(request.page_size, self.shortest)]
        letters = [self.dead[request.topic][dead_id] for dead_id in page]
        wanted = request.filter
        return pb.ListDeadLettersResponse(
            dead_letters=[
                without_content(letter)
                for letter in letters
                if wanted.timer_id in ("", letter.timer_id)
                and wanted.reason in ("", letter.reason)
                and wanted.died_since.seconds <= letter.death_time.seconds
                and (
                    not wanted.HasField("died_before")
                    or letter.death_time.seconds < wanted.died_before.seconds
                )
            ],
            next_page_token=page[-1] if len(rest) > len(page) else "",
        )

    def GetDeadLetter(self, request: pb.GetDeadLetterRequest, context: Any) -> pb.GetDeadLetterResponse:
        self._note("GetDeadLetter", request, context)
        letter = self.dead.get(request.topic, {}).get(request.dead_id)
        if letter is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such dead letter")
        return pb.GetDeadLetterResponse(dead_letter=letter)

    def RedriveDeadLetters(
        self, request: pb.RedriveDeadLettersRequest, context: Any
    ) -> pb.RedriveDeadLettersResponse:
        self._note("RedriveDeadLetters", request, context)
        self._check(request.dead_ids, context)
        return pb.RedriveDeadLettersResponse(
            results=[self._redrive(request.topic, i) for i in request.dead_ids]
        )

    def _redrive(self, topic: str, dead_id: str) -> pb.RedriveResult:
        letters = self.dead.get(topic, {})
        if dead_id not in letters:
            return pb.REDRIVE_RESULT_NOT_FOUND
        if letters[dead_id].timer_id in self.alive:
            return pb.REDRIVE_RESULT_CONFLICT
        del letters[dead_id]
        return pb.REDRIVE_RESULT_REDRIVEN

    def PurgeDeadLetters(
        self, request: pb.PurgeDeadLettersRequest, context: Any
    ) -> pb.PurgeDeadLettersResponse:
        self._note("PurgeDeadLetters", request, context)
        self._check(request.dead_ids, context)
        letters = self.dead.get(request.topic, {})
        return pb.PurgeDeadLettersResponse(
            purged=sum(letters.pop(dead_id, None) is not None for dead_id in request.dead_ids)
        )

    def _check(self, dead_ids: Iterable[str], context: Any) -> None:
        if self.malformed in dead_ids:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"dead_id: {self.malformed!r} is none")

    def _topic(self, name: str) -> pb.Topic:
        found = self.topics.get(name) or pb.Topic(topic=name)
        found.dead = len(self.dead.get(name, {}))
        return found

    def _note(self, method: str, request: Any, context: Any) -> None:
        if self.fail_after is not None and len(self.calls) >= self.fail_after:
            abort(context, grpc.StatusCode.UNAVAILABLE, "Redis is away", [LATER])
        self.calls.append((method, request))
