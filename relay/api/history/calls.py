"""What `TimerService` tells of a timer's life."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from relay.api import replies, times, translate
from relay.api.access import Access
from relay.api.topics import dead_letter
from relay.core import validate
from relay.core.errors import InvalidField
from relay.core.history.events import HistoryPage, TimerEvent
from relay.core.instants import LATEST
from relay.core.journal import HandOver, RecordKind
from relay.core.ports import MAX_PER_CALL
from relay.core.trust.verbs import AccessVerb
from relay.engine.engine import Engine
from relay.engine.timer_history import TimerNow, TimerStanding
from relay.v1 import timer_history_pb2 as pb
from relay.v1 import timer_service_pb2 as service

DEFAULT_PAGE = 100

STANDINGS = {
    TimerStanding.WAITING: pb.TIMER_STANDING_WAITING,
    TimerStanding.DUE: pb.TIMER_STANDING_DUE,
    TimerStanding.LEASED: pb.TIMER_STANDING_LEASED,
    TimerStanding.DEAD: pb.TIMER_STANDING_DEAD,
    TimerStanding.ABSENT: pb.TIMER_STANDING_ABSENT,
}


class HistoryCalls:  # see 0121
    """See `proto/relay/v1/timer_service.proto`. Every failure is raised as a `ServiceError`."""

    def __init__(self, engine: Engine, access: Access | None = None) -> None:
        self._engine = engine
        self._access = access or Access()

    async def get(self, request: service.GetTimerHistoryRequest) -> service.GetTimerHistoryResponse:
        """Tell a timer's life, a page of it. Raises `InvalidField`."""
        self._access.require(AccessVerb.READ, request.topic)
        topic = self._engine.admit("topic", request.topic)
        timer_id = validate.name("timer_id", request.timer_id)
        if not 0 <= request.page_size <= MAX_PER_CALL:
            raise InvalidField("page_size", f"is {request.page_size}; give 0 to {MAX_PER_CALL}")
        history, limit = self._engine.timer_history, request.page_size or DEFAULT_PAGE
        if request.page_token:
            page = await history.page(topic, timer_id, limit, request.page_token)
            response = service.GetTimerHistoryResponse()
        else:
            now, page = await history.begin(topic, timer_id, limit)
            response = _standing(topic, now)
        response.events.extend(_event(event) for event in page.events)
        response.next_page_token = page.cursor
        response.events_missing = self._missing(topic, page)
        return response

    def _missing(self, topic: str, page: HistoryPage) -> str:
        if not self._engine.timer_history.is_recorded(topic):
            return (
                f"topic {topic!r} has no journal, so nothing records what happens to its timers; set "
                "journal: true for the topic in the settings of its relays, and it is known from then on"
            )
        if page.has_gaps:
            return (
                f"the journal of topic {topic!r} does not reach back to its beginning, or has gaps: set "
                "journal_max_length for the topic to keep more records"
            )
        return ""


def _standing(topic: str, now: TimerNow) -> service.GetTimerHistoryResponse:
    paused = now.stats.paused_until
    return service.GetTimerHistoryResponse(
        standing=STANDINGS[now.standing],
        timer=replies.timer(topic, now.timer) if now.timer is not None else None,
        dead_letters=[dead_letter(topic, letter) for letter in now.letters],
        as_of_time=times.timestamp(now.stats.now),
        paused_until_time=None if paused is None else times.timestamp(min(paused, LATEST)),
    )


def _event(event: TimerEvent) -> pb.TimerEvent:
    record = event.record
    message = pb.TimerEvent(
        time=times.timestamp(event.time),
        kind=record.kind.name.lower(),
        relay=event.relay,
        principal=event.principal,
        due_time=_moment(record.due),
        previous_due_time=_moment(record.previous_due),
        next_claim_time=_moment(record.score),
        expire_time=_moment(record.expires),
        attempts=record.attempts,
        claims=record.claims,
        received=record.received,
        reason=record.reason,
        error=record.error,
        lease=record.nonce.hex(),
        dead_id=record.dead_id,
        adopted=record.adopted.name.lower() if record.adopted else "",
        refused=record.refused.name.lower() if record.refused else "",
        recurrence_id=translate.text(event.recurrence_id),
        partition=event.partition,
        entry=event.entry,
    )
    if record.occurrence:
        message.occurrence_id = f"{translate.text(record.timer_id)}/{record.occurrence.hex()}"
    if record.hand_over:
        way = HandOver.parse(record.hand_over)
        message.other_partition = way.target if record.kind is RecordKind.LEFT else way.source
    return message


def _moment(instant: int) -> Timestamp | None:
    """An instant that a record has; foreign writers may have written one that no calendar has."""
    return times.timestamp(min(instant, LATEST)) if instant > 0 else None
