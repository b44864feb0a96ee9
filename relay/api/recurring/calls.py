"""What `RecurrenceService` offers: recurrences between protobuf messages and core's values."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Protocol

from relay.api import replies, times, translate
from relay.api.access import Access
from relay.api.people import brief
from relay.api.people.actions import Recording
from relay.api.recurring import values
from relay.core import validate
from relay.core.durability import STORED, Durability
from relay.core.errors import InvalidField, RecurrenceNotFound, UnknownCalendar
from relay.core.ports import MAX_PER_CALL
from relay.core.recurring.nominal import write_instant
from relay.core.recurring.recurrence import Put, Recurrence, StoredRecurrence
from relay.core.recurring.turns import RECENT
from relay.core.trust.access import EVERY_TOPIC
from relay.core.trust.verbs import AccessVerb
from relay.engine.recurring.history import History
from relay.engine.recurring.recurrences import MOST_SHOWN, Recurrences
from relay.rules import TZDATA
from relay.v1 import recurrence_service_pb2 as pb

DEFAULT_PAGE = 100
DEFAULT_SHOWN = 10

PUTS = {
    Put.CREATED: pb.PUT_RESULT_CREATED,
    Put.REPLACED: pb.PUT_RESULT_REPLACED,
    Put.UNCHANGED: pb.PUT_RESULT_UNCHANGED,
}


class Named(Protocol):
    """A request that names a recurrence."""

    topic: str
    recurrence_id: str


class RecurrenceKeeper(Protocol):  # see 0095
    """What keeps recurrences, and the timers that they make, as `Engine` does."""

    @property
    def recurrences(self) -> Recurrences:
        """The recurrences of all topics."""
        ...

    @property
    def history(self) -> History:
        """What became of occurrences."""
        ...

    def admit(self, field: str, topic: str) -> str:
        """Return the topic's name if the topic is admitted. Raises `InvalidField`."""
        ...

    def max_payload_bytes(self, topic: str) -> int:
        """Return the topic's limit."""
        ...

    def seals(self, topic: str) -> bool:
        """Return whether the contents of the topic's timers are sealed."""
        ...

    def durably(self, topic: str, asked: Durability) -> AbstractContextManager[Durability]:
        """See `Engine.durably`."""
        ...

    async def cancel_occurrences(self, topic: str, recurrence_id: str) -> int:
        """Remove all occurrences of a recurrence that have not ended, and return how many."""
        ...


class RecurrenceCalls:
    """See `proto/relay/v1/recurrence_service.proto`. Every failure is raised as a `ServiceError`."""

    def __init__(self, engine: RecurrenceKeeper, access: Access | None = None) -> None:
        self._engine = engine
        self._access = access or Access()

    async def put(self, request: pb.PutRecurrenceRequest, *, waits: bool = True) -> pb.PutRecurrenceResponse:
        """Keep a recurrence. Without `waits` it is `stored`, and the topic's durability is left to `settle`.
        Raises `InvalidField`, `OtherVersion`."""
        with values.fields_of("recurrence."):
            self._access.require(AccessVerb.SCHEDULE, request.recurrence.topic)
        if request.HasField("if_version") and request.if_version < 0:
            raise InvalidField("if_version", f"is {request.if_version}; give 0 or more")
        if_version = request.if_version if request.HasField("if_version") else None
        with values.fields_of("recurrence."):
            topic, wanted = self.read(request.recurrence)
        wait = self._durably(topic, request.durability) if waits else nullcontext(STORED)
        recurrence_id, verb = wanted.recurrence_id, AccessVerb.SCHEDULE
        async with self._record("PutRecurrence", topic, recurrence_id, request.note, verb) as action:

            async def intends(found: StoredRecurrence | None) -> None:
                await action.begin(brief.recurrence(found))

            with wait as level, values.fields_of("recurrence."), self._nearest_withheld():
                kept, result = await self._engine.recurrences.put(
                    topic, wanted, if_version=if_version, intends=intends
                )
            if result is not Put.UNCHANGED:
                action.after = brief.recurrence(kept)
        response = pb.PutRecurrenceResponse(
            recurrence=self._shown(topic, kept), result=PUTS[result], reached=replies.reached(level)
        )
        if wanted.seal_with:
            response.sealed_with_subject = True
        return response

    @contextmanager
    def _nearest_withheld(self) -> Iterator[None]:
        """Within the block, calendars are guessed only for who may read them."""
        try:
            yield
        except UnknownCalendar as unknown:
            if self._access.allows(AccessVerb.READ, EVERY_TOPIC):
                raise
            raise UnknownCalendar(unknown.field, unknown.without_nearest) from None

    async def settle(self, topic: str) -> None:
        """Wait until all that was put in a topic before has the topic's durability. Raises `StoreError`."""
        with self._durably(topic, ""):
            await self._engine.recurrences.settle(topic)

    def read(self, spec: pb.RecurrenceSpec) -> tuple[str, Recurrence]:
        """Check and translate a recurrence, which has its topic beside it. Raises `InvalidField`, whose field
        is one of the spec, such as `rule.cron`."""
        topic = self._engine.admit("topic", spec.topic)
        limit, sealed = self._engine.max_payload_bytes(topic), self._engine.seals(topic)
        return topic, values.wanted(spec, limit, sealed=sealed)

    async def get(self, request: pb.GetRecurrenceRequest) -> pb.GetRecurrenceResponse:
        """Read a recurrence. Raises `RecurrenceNotFound`."""
        topic, kept = await self._kept(request)
        missing = await self._engine.recurrences.missing(kept.recurrence.rule)
        return pb.GetRecurrenceResponse(recurrence=self._shown(topic, kept, missing))

    async def list(self, request: pb.ListRecurrencesRequest) -> pb.ListRecurrencesResponse:
        """Read one page of a topic's. Raises `InvalidField`."""
        self._access.require(AccessVerb.READ, request.topic)
        topic = self._engine.admit("topic", request.topic)
        if not 0 <= request.page_size <= MAX_PER_CALL:
            raise InvalidField("page_size", f"is {request.page_size}; give 0 to {MAX_PER_CALL}")
        page = await self._engine.recurrences.page(
            topic,
            prefix=request.prefix,
            limit=request.page_size or DEFAULT_PAGE,
            cursor=request.page_token,
        )
        return pb.ListRecurrencesResponse(
            recurrences=[
                values.recurrence(
                    topic,
                    kept,
                    brief=True,
                    missing=await self._engine.recurrences.missing(kept.recurrence.rule),
                )
                for kept in page.kept
                if not request.HasField("paused") or request.paused is (kept.standing.paused is not None)
            ],
            next_page_token=page.cursor,
        )

    async def preview(self, request: pb.PreviewRecurrenceRequest) -> pb.PreviewRecurrenceResponse:
        """Show the instants of a rule. Raises `InvalidField`."""
        self._access.require(AccessVerb.READ, request.topic or EVERY_TOPIC)
        if request.rule.calendars:  # whose dates it shows, and those are of all topics
            self._access.require(AccessVerb.READ, EVERY_TOPIC)
        if not 0 <= request.count <= MOST_SHOWN:
            raise InvalidField("count", f"is {request.count}; give 0 to {MOST_SHOWN:,}")
        since = time.time_ns() // 1_000  # nothing follows from it but what is shown
        if request.HasField("after_time"):
            since = validate.due(times.instant("after_time", request.after_time), "after_time")
        with values.fields_of(""):
            rule = values.rule(request.rule)
            topic = self._engine.admit("topic", request.topic) if request.topic else ""
            found = await self._engine.recurrences.preview(
                rule, request.count or DEFAULT_SHOWN, since, topic=topic
            )
        return pb.PreviewRecurrenceResponse(instants=[values.shown(each) for each in found], tzdata=TZDATA)

    async def coming(
        self, topic: str, rule: pb.RecurrenceRule, count: int, *, ahead: int, at_least: int
    ) -> pb.PreviewRecurrenceResponse:
        """Show the next instants of a rule that the topic has: `count` at most. Where they go on for longer
        than `ahead` (microseconds), only those until then, or the first `at_least`. As `preview`, but for one
        thing: that the rule does not fire too often was checked when it was put, for which 2,000 instants
        were computed. Raises `Denied` and `InvalidField`."""
        self._access.require(AccessVerb.READ, topic)
        if rule.calendars:
            self._access.require(AccessVerb.READ, EVERY_TOPIC)
        now = time.time_ns() // 1_000
        found = await self._engine.recurrences.preview(
            values.rule(rule), count, now, until=now + ahead, at_least=at_least
        )
        return pb.PreviewRecurrenceResponse(instants=[values.shown(each) for each in found], tzdata=TZDATA)

    async def pause(self, request: pb.PauseRecurrenceRequest) -> pb.PauseRecurrenceResponse:
        """Pause a recurrence. Raises `RecurrenceNotFound`, `InvalidField`."""
        topic, recurrence_id = self._names(AccessVerb.OPERATE, request)
        note = validate.note(request.note)
        async with self._record("PauseRecurrence", topic, recurrence_id, note) as action:
            with self._durably(topic, request.durability) as level:
                await action.begin(brief.recurrence(await self._found(topic, recurrence_id)))
                kept = await self._engine.recurrences.pause(topic, recurrence_id, note)
            action.after = brief.recurrence(kept)
        return pb.PauseRecurrenceResponse(recurrence=self._shown(topic, kept), reached=replies.reached(level))

    async def resume(self, request: pb.ResumeRecurrenceRequest) -> pb.ResumeRecurrenceResponse:
        """End a pause. Raises `RecurrenceNotFound`."""
        topic, recurrence_id = self._names(AccessVerb.OPERATE, request)
        async with self._record("ResumeRecurrence", topic, recurrence_id, request.note) as action:
            with self._durably(topic, request.durability) as level:
                await action.begin(brief.recurrence(await self._found(topic, recurrence_id)))
                kept = await self._engine.recurrences.resume(topic, recurrence_id)
            action.after = brief.recurrence(kept)
        return pb.ResumeRecurrenceResponse(
            recurrence=self._shown(topic, kept), reached=replies.reached(level)
        )

    async def trigger(self, request: pb.TriggerRecurrenceRequest) -> pb.TriggerRecurrenceResponse:
        """Make an occurrence now. Raises `RecurrenceNotFound`."""
        topic, recurrence_id = self._names(AccessVerb.OPERATE, request)
        async with self._record("TriggerRecurrence", topic, recurrence_id, request.note) as action:
            with self._durably(topic, request.durability) as level:
                await action.begin(brief.recurrence(await self._found(topic, recurrence_id)))
                timer_id = await self._engine.recurrences.trigger(topic, recurrence_id)
            action.after = timer_id or "the occurrence before is in its way"
        return pb.TriggerRecurrenceResponse(timer_id=timer_id, reached=replies.reached(level))

    async def backfill(self, request: pb.BackfillRecurrenceRequest) -> pb.BackfillRecurrenceResponse:
        """Make occurrences for instants that have passed. Raises `RecurrenceNotFound`, `InvalidField`."""
        topic, recurrence_id = self._names(AccessVerb.OPERATE, request)
        since, until = values.between(request)
        apart = validate.delay(times.length("interval", request.interval), "interval")
        overlap = values.backfill_overlap(request)
        async with self._record("BackfillRecurrence", topic, recurrence_id, request.note) as action:
            with self._durably(topic, request.durability) as level:
                await action.begin(brief.recurrence(await self._found(topic, recurrence_id)))
                done = await self._engine.recurrences.backfill(
                    topic, recurrence_id, since, until, apart=apart, overlap=overlap
                )
            span = f"{write_instant(since)} to {write_instant(until)}"
            action.after = f"{brief.counted(done.occurrences, 'occurrence')} of {span}"
        return pb.BackfillRecurrenceResponse(
            occurrences=done.occurrences,
            first_time=values.moment(done.first),
            last_time=values.moment(done.last),
            waiting=done.waiting,
            reached=replies.reached(level),
        )

    async def delete(self, request: pb.DeleteRecurrenceRequest) -> pb.DeleteRecurrenceResponse:
        """Remove a recurrence, and what waits of it if that is asked for; also where it is gone already, so
        that a call that failed can be made again."""
        verb = AccessVerb.SCHEDULE
        topic, recurrence_id = self._names(verb, request)
        async with self._record("DeleteRecurrence", topic, recurrence_id, request.note, verb) as action:
            with self._durably(topic, request.durability) as level:
                with suppress(RecurrenceNotFound):
                    await action.begin(brief.recurrence(await self._found(topic, recurrence_id)))
                if request.cancel_waiting:
                    await action.begin(brief.NONE)
                kept = await self._engine.recurrences.remove(topic, recurrence_id)
                response = pb.DeleteRecurrenceResponse(
                    deleted=kept is not None, reached=replies.reached(level)
                )
                if request.cancel_waiting:
                    response.cancelled = await self._engine.cancel_occurrences(topic, recurrence_id)
            if kept is not None or request.cancel_waiting:
                cancelled = response.cancelled
                action.after = f"{brief.NONE}, {cancelled} cancelled" if cancelled else brief.NONE
        return response

    async def history(self, request: pb.GetRecurrenceHistoryRequest) -> pb.GetRecurrenceHistoryResponse:
        """Tell what came of the latest instants. Raises `RecurrenceNotFound`, `InvalidField`."""
        self._access.require(AccessVerb.READ, request.topic)
        if not 0 <= request.limit <= RECENT:
            raise InvalidField("limit", f"is {request.limit}; give 0 to {RECENT}")
        topic, kept = await self._kept(request)
        history = self._engine.history
        passed = await history.of(topic, kept, request.limit or RECENT)
        return pb.GetRecurrenceHistoryResponse(
            instants=[values.past(each) for each in passed],
            outcomes_missing="" if history.is_recorded(topic) else values.no_journal(topic),
        )

    def _shown(self, topic: str, kept: StoredRecurrence, missing: Sequence[str] = ()) -> pb.Recurrence:
        """A single recurrence; without its content if the caller may not see it."""
        with_content = self._access.allows(AccessVerb.PAYLOAD, topic)
        message = values.recurrence(topic, kept, brief=not with_content, missing=missing)
        if not with_content:
            message.content_withheld = True
        return message

    def _durably(self, topic: str, asked: str) -> AbstractContextManager[Durability]:
        return self._engine.durably(topic, translate.durability(asked))

    def _record(
        self,
        method: str,
        topic: str,
        recurrence_id: str,
        note: str,
        verb: AccessVerb = AccessVerb.OPERATE,
    ) -> Recording:
        return self._access.actions.record(verb, method, topic, recurrence_id, note)

    async def _found(self, topic: str, recurrence_id: str) -> StoredRecurrence:
        return await self._engine.recurrences.get(topic, recurrence_id)

    def _names(self, verb: AccessVerb, request: Named) -> tuple[str, str]:
        """The recurrence that a request names, if the caller may do this to its topic."""
        self._access.require(verb, request.topic)
        return (
            self._engine.admit("topic", request.topic),
            values.name(request.recurrence_id),
        )

    async def _kept(self, request: Named) -> tuple[str, StoredRecurrence]:
        topic, recurrence_id = self._names(AccessVerb.READ, request)
        return topic, await self._found(topic, recurrence_id)
