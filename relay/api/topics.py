"""What `TopicService` offers: what operators do to topics and dead letters."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from relay.api import replies, times, translate
from relay.api.access import Access
from relay.api.people import brief
from relay.api.people.actions import Recording
from relay.core import validate
from relay.core.dispatch import Dispatch, DispatchState
from relay.core.durability import Durability
from relay.core.errors import (
    InvalidField,
    OtherLayout,
    StoreRefused,
    StoreUnavailable,
    TimerNotFound,
    WrongKeyType,
)
from relay.core.instants import LATEST
from relay.core.ports import MAX_PER_CALL
from relay.core.recurring.forecast import Window
from relay.core.timers import NO_CONTENT, Change, Content, DeadLetter, TopicStats
from relay.core.trust.sealing import subject_id
from relay.core.trust.verbs import AccessVerb
from relay.engine.engine import Engine
from relay.engine.recurring.forecasting import LONGEST
from relay.v1 import topic_service_pb2 as pb

DEFAULT_PAGE = 100
MAX_TOPICS = 1_000

REDRIVEN = {
    Change.RUN: pb.REDRIVE_RESULT_REDRIVEN,
    Change.GONE: pb.REDRIVE_RESULT_NOT_FOUND,
    Change.UNCHANGED: pb.REDRIVE_RESULT_CONFLICT,
}
REDRIVEN_WORDS = {Change.RUN: "redriven", Change.GONE: "not found", Change.UNCHANGED: "in conflict"}


class TopicCalls:
    """See `proto/relay/v1/topic_service.proto`. Every failure is raised as a `RelayError`."""

    def __init__(self, engine: Engine, access: Access | None = None) -> None:
        self._engine = engine
        self._access = access or Access()
        self._topics = engine.topics

    async def list(self, request: pb.ListTopicsRequest) -> pb.ListTopicsResponse:
        """Read one page of the topics that are registered or configured, as far as the caller may read them.
        Each costs a script call."""
        limit = _page_size(request.page_size, MAX_TOPICS)
        found = {*await self._topics.topics(), *self._engine.configured}
        names = sorted(name for name in found if self._access.allows(AccessVerb.READ, name))
        start = bisect_right(names, request.page_token) if request.page_token else 0
        page = names[start : start + limit]
        return pb.ListTopicsResponse(
            topics=[await self._listed(name) for name in page],
            next_page_token=page[-1] if len(names) > start + limit else "",
        )

    async def get(self, request: pb.GetTopicRequest) -> pb.GetTopicResponse:
        """Read one topic."""
        return pb.GetTopicResponse(topic=await self._stats(self._name(AccessVerb.READ, request.topic)))

    def told(self, stats: TopicStats) -> pb.Topic:
        """A topic whose state was read before; nothing is read. Raises `Denied`."""
        self._access.require(AccessVerb.READ, stats.topic)
        return self._shown(stats)

    async def pause(self, request: pb.PauseTopicRequest) -> pb.PauseTopicResponse:
        """Pause a topic. Raises `InvalidField` if the end is past."""
        topic = self._name(AccessVerb.OPERATE, request.topic)
        end = request.WhichOneof("end")
        until = duration = None
        if end == "until":
            until = validate.due(times.instant("until", request.until), "until")
        elif end == "duration":
            duration = validate.delay(times.length("duration", request.duration), "duration")
        async with self._record("PauseTopic", topic, request.note) as action:
            with self._durably(topic, request.durability) as level:
                await action.begin(await self._standing(topic, brief.pause))
                if await self._topics.pause(topic, until=until, duration=duration) is None:
                    raise InvalidField(end or "until", "is past; give a later end, or none")
            stats = await self._engine.stats(topic)
            action.after = brief.pause(stats)
        return pb.PauseTopicResponse(topic=self._shown(stats), reached=replies.reached(level))

    async def resume(self, request: pb.ResumeTopicRequest) -> pb.ResumeTopicResponse:
        """End a pause."""
        topic = self._name(AccessVerb.OPERATE, request.topic)
        async with self._record("ResumeTopic", topic, request.note) as action:
            with self._durably(topic, request.durability) as level:
                await action.begin(await self._standing(topic, brief.pause))
                await self._topics.resume(topic)
            stats = await self._engine.stats(topic)
            action.after = brief.pause(stats)
        return pb.ResumeTopicResponse(topic=self._shown(stats), reached=replies.reached(level))

    async def reshard(self, request: pb.ReshardTopicRequest) -> pb.ReshardTopicResponse:
        """Begin to move a topic into another number of partitions. Raises `InvalidField`."""
        topic = self._name(AccessVerb.OPERATE, request.topic)
        async with self._record("ReshardTopic", topic, request.note) as action:
            await action.begin(await self._standing(topic, brief.partitions))
            await self._engine.reshard(topic, request.partitions, rate=request.max_rate)
            stats = await self._engine.stats(topic)
            action.after = brief.partitions(stats)
        return pb.ReshardTopicResponse(topic=self._shown(stats))

    async def forecast(self, request: pb.ForecastRequest, *, within: float = LONGEST) -> pb.ForecastResponse:
        """Tell what falls due in a topic; `within` as of `Forecasting.of`. Raises `InvalidField`."""
        topic = self._name(AccessVerb.READ, request.topic)
        horizon = resolution = None
        if request.HasField("horizon"):
            horizon = times.length("horizon", request.horizon)
        if request.HasField("resolution"):
            resolution = times.length("resolution", request.resolution)
        window = Window.checked(horizon, resolution)
        return replies.forecast(topic, window, await self._engine.forecasts.of(topic, window, within=within))

    async def list_dead(self, request: pb.ListDeadLettersRequest) -> pb.ListDeadLettersResponse:
        """Read one page of dead letters. Raises `InvalidField`."""
        topic = self._name(AccessVerb.READ, request.topic)
        limit = _page_size(request.page_size, MAX_PER_CALL)
        page = await self._topics.dead_page(topic, limit=limit, cursor=request.page_token)
        wanted = _filter(request.filter)
        return pb.ListDeadLettersResponse(
            dead_letters=[dead_letter(topic, letter) for letter in page.letters if wanted(letter)],
            next_page_token=page.cursor,
        )

    async def get_dead(self, request: pb.GetDeadLetterRequest) -> pb.GetDeadLetterResponse:
        """Read a dead letter. Raises `TimerNotFound`."""
        topic = self._name(AccessVerb.READ, request.topic)
        letter = await self._topics.dead_letter(topic, request.dead_id)
        if letter is None:
            raise TimerNotFound(f"topic {topic!r} has no dead letter {request.dead_id!r}")
        with_content = self._access.allows(AccessVerb.PAYLOAD, topic)
        return pb.GetDeadLetterResponse(dead_letter=dead_letter(topic, letter, with_content=with_content))

    async def redrive(self, request: pb.RedriveDeadLettersRequest) -> pb.RedriveDeadLettersResponse:
        """Bring dead letters back to life. Raises `InvalidField`."""
        topic = self._name(AccessVerb.OPERATE, request.topic)
        dead_ids = _dead_ids(request.dead_ids)
        async with self._record("RedriveDeadLetters", topic, request.note, brief.names(dead_ids)) as action:
            with self._durably(topic, request.durability) as level:
                await action.begin(await self._standing(topic, brief.dead))
                changes = await self._engine.redrive(topic, dead_ids)
            action.after = ", ".join(
                f"{count} {REDRIVEN_WORDS[change]}" for change, count in Counter(changes).items()
            )
        return pb.RedriveDeadLettersResponse(
            results=[REDRIVEN[change] for change in changes], reached=replies.reached(level)
        )

    async def purge(self, request: pb.PurgeDeadLettersRequest) -> pb.PurgeDeadLettersResponse:
        """Remove dead letters for good. Raises `InvalidField`."""
        topic = self._name(AccessVerb.OPERATE, request.topic)
        dead_ids = _dead_ids(request.dead_ids)
        async with self._record("PurgeDeadLetters", topic, request.note, brief.names(dead_ids)) as action:
            with self._durably(topic, request.durability) as level:
                await action.begin(await self._standing(topic, brief.dead))
                purged = await self._topics.purge(topic, dead_ids)
            action.after = f"{purged} purged"
        return pb.PurgeDeadLettersResponse(purged=purged, reached=replies.reached(level))

    async def forget_subject(self, request: pb.ForgetSubjectRequest) -> pb.ForgetSubjectResponse:
        """Forget a subject for good. Raises `TimerNotFound`."""
        topic = self._name(AccessVerb.ADMIN, request.topic)
        subject = validate.name("subject", request.subject)
        thing = f"subject {subject_id(topic, subject)}"  # its name is to be forgotten, too
        record = self._access.actions.record(AccessVerb.ADMIN, "ForgetSubject", topic, thing, request.note)
        async with record as action:
            with self._durably(topic, request.durability) as level:
                await action.begin(await self._standing(topic, brief.held))
                since = await self._topics.forget_subject(topic, subject)
            if since is None:
                raise TimerNotFound(
                    f"topic {topic!r} knows of no such subject: no timer named it in seal_with"
                )
            action.after = "forgotten"
        return pb.ForgetSubjectResponse(forget_time=times.timestamp(since), reached=replies.reached(level))

    async def _standing(self, topic: str, said: Callable[[TopicStats], str]) -> str:
        """How a topic stands. While a node of a Cluster is away nobody knows, and what can be done at the
        others is done all the same."""
        try:
            return said(await self._topics.stats(topic))
        except StoreUnavailable:
            return brief.UNKNOWN

    def _durably(self, topic: str, asked: str) -> AbstractContextManager[Durability]:
        return self._engine.durably(topic, translate.durability(asked))

    def _record(self, method: str, topic: str, note: str, thing: str = "") -> Recording:
        return self._access.actions.record(AccessVerb.OPERATE, method, topic, thing, note)

    def _name(self, verb: AccessVerb, topic: str) -> str:
        """The topic's name, if the caller may do this to it."""
        self._access.require(verb, topic)
        # Everything in Redis may be looked after, even a topic that is not admitted any more.
        return validate.topic("topic", topic)

    async def _listed(self, topic: str) -> pb.Topic:
        """Read one topic of a listing; a failure must not hide the others."""
        try:
            return await self._stats(topic)
        except (WrongKeyType, OtherLayout, StoreRefused) as failure:
            return pb.Topic(topic=topic, error=str(failure))

    async def _stats(self, topic: str) -> pb.Topic:
        return self._shown(await self._engine.stats(topic))

    def _shown(self, stats: TopicStats) -> pb.Topic:
        return _topic(stats, self._engine.dispatch(stats.topic), self._engine.passed(stats.topic))


def _page_size(size: int, most: int) -> int:
    if not 0 <= size <= most:
        raise InvalidField("page_size", f"is {size}; give 0 to {most}")
    return size or DEFAULT_PAGE


def _dead_ids(dead_ids: Sequence[str]) -> Sequence[str]:
    if not 1 <= len(dead_ids) <= MAX_PER_CALL:
        raise InvalidField("dead_ids", f"has {len(dead_ids)} entries; give 1 to {MAX_PER_CALL}")
    if len(set(dead_ids)) < len(dead_ids):
        raise InvalidField("dead_ids", "has one twice; give each once")
    return dead_ids


def _filter(message: pb.DeadLetterFilter) -> Callable[[DeadLetter], bool]:
    since, before = 0, LATEST
    if message.HasField("died_since"):
        since = times.instant("filter.died_since", message.died_since)
    if message.HasField("died_before"):
        before = times.instant("filter.died_before", message.died_before)

    def wanted(letter: DeadLetter) -> bool:
        return (
            message.timer_id in ("", letter.timer_id)
            and message.reason in ("", letter.reason)
            and since <= letter.died < before
        )

    return wanted


def _topic(stats: TopicStats, dispatch: Dispatch, passed: tuple[int, int] | None) -> pb.Topic:
    paused, dispatched = stats.paused_until, stats.dispatched or DispatchState(dispatch)
    return pb.Topic(
        topic=stats.topic,
        timers=stats.timers,
        due=stats.due,
        next_claim_time=None if stats.first is None else times.timestamp(stats.first),
        dead=stats.dead,
        oldest_death_time=None if stats.oldest_death is None else times.timestamp(stats.oldest_death),
        paused=paused is not None,
        paused_until=None if paused in (None, LATEST) else times.timestamp(paused or 0),
        dispatch=dispatch.value,
        ready=dispatched.ready,
        processing=dispatched.processing,
        entries=dispatched.entries,
        groups=[
            pb.TopicGroup(
                group=translate.text(each.group),
                pending=each.pending,
                unread=each.unread,
                waiting=each.waiting,
                consumers=each.consumers,
            )
            for each in dispatched.groups
        ],
        partitions=stats.partitions if stats.partitions > 1 else None,
        moving_to=stats.moving_to or None,
        scheduled_here=None if passed is None else passed[0],
        delivered_here=None if passed is None else passed[1],
    )


def dead_letter(topic: str, letter: DeadLetter, *, with_content: bool = True) -> pb.DeadLetter:
    """Translate a dead letter; without its content if the caller may not see it."""
    content = Content.of(letter) if with_content else NO_CONTENT
    message = pb.DeadLetter(
        topic=topic,
        timer_id=translate.text(letter.timer_id),
        dead_id=letter.dead_id,
        reason=letter.reason,
        attempts=letter.attempts,
        last_error=letter.error,
        due_time=times.timestamp(letter.due),
        death_time=times.timestamp(letter.died),
        occurrence_id=translate.text(letter.occurrence_id),
        **content.fields(),
        group=letter.group,
    )
    if not with_content:
        message.content_withheld = True
    return message
