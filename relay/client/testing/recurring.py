"""Recurrences in memory: the calls about them, and the ticks. This module is loaded with the first of them:
their rules need what the extra `rules` installs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from relay.api import times
from relay.api.recurring.calendars import CalendarCalls
from relay.api.recurring.calls import RecurrenceCalls
from relay.client.calls import channel
from relay.client.testing.service import at_once
from relay.core.durability import Durability
from relay.core.partitions import Layout
from relay.core.policy import Policies
from relay.core.ports import OnePartition
from relay.core.recurring.recurrence import Standing, StoredRecurrence, Turned
from relay.core.recurring.rule import Rule
from relay.core.recurring.turns import LOOK_AGAIN, look_at
from relay.core.timers import Change
from relay.engine.recurring.history import History
from relay.engine.recurring.recurrences import Recurrences
from relay.engine.recurring.turning import turned
from relay.store.memory_recurrences import MemoryCalendars, MemoryRecurrences
from relay.v1 import recurrence_service_pb2 as pb

if TYPE_CHECKING:
    from relay.client.testing.service import MemoryState

_T = TypeVar("_T")


class MemoryRecurring:
    """The recurrences of a relay in memory, which answer as a real relay's do: by the same code. They are
    used under the state's lock."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._policies = Policies(state.policy)
        self._kept = MemoryRecurrences(state.store, lambda: state.clock)
        self.calendars = MemoryCalendars()
        self._without_room: dict[tuple[str, str], int] = {}
        """When to look again at recurrences whose occurrences found no room, by topic and recurrence_id."""
        self.recurrences = Recurrences(
            self._kept,
            self.calendars,
            OnePartition(),
            _Whole(),
            self._policies,
            _Unasked(),
            _Here(),
            due_at=lambda _partition, _instant: None,
            registered=lambda _topic: None,
        )
        self.history = History(state.store, self._kept, _Whole(), self._policies)
        self._calls = calls = RecurrenceCalls(self)
        calendar_calls = CalendarCalls(self)
        self.answers: dict[str, Callable[[Any], Coroutine[Any, Any, Any]]] = {
            channel.PUT_RECURRENCE.name: calls.put,
            channel.GET_RECURRENCE.name: calls.get,
            channel.LIST_RECURRENCES.name: calls.list,
            channel.PREVIEW.name: self._preview,
            channel.PAUSE_RECURRENCE.name: calls.pause,
            channel.RESUME_RECURRENCE.name: calls.resume,
            channel.TRIGGER.name: calls.trigger,
            channel.BACKFILL.name: calls.backfill,
            channel.DELETE_RECURRENCE.name: calls.delete,
            channel.HISTORY.name: calls.history,
            channel.PUT_CALENDAR.name: calendar_calls.put,
            channel.GET_CALENDAR.name: calendar_calls.get,
            channel.LIST_CALENDARS.name: calendar_calls.list,
            channel.DELETE_CALENDAR.name: calendar_calls.delete,
        }
        """By the names of the calls; none of them waits."""

    def admit(self, field: str, topic: str) -> str:
        """See `RecurrenceKeeper.admit`."""
        return self._policies.admit(field, topic)

    def max_payload_bytes(self, topic: str) -> int:
        """See `RecurrenceKeeper.max_payload_bytes`."""
        return self._policies.largest(topic)

    def seals(self, topic: str) -> bool:
        """Take subjects in every topic."""
        return True

    @contextmanager
    def durably(self, topic: str, asked: Durability) -> Iterator[Durability]:
        """Answer what was asked for: what is in memory is as durable as can be."""
        yield asked

    async def cancel_occurrences(self, topic: str, recurrence_id: str) -> int:
        """See `RecurrenceKeeper.cancel_occurrences`."""
        names = await self.recurrences.occurrences(topic, recurrence_id)
        changes = await self._state.store.cancel(topic, names)
        return sum(each.change is Change.CANCELLED for each in changes)

    async def _preview(self, request: pb.PreviewRecurrenceRequest) -> pb.PreviewRecurrenceResponse:
        """Show instants from now on by the clock that the test moves, unless the request says otherwise."""
        if request.HasField("after_time"):
            return await self._calls.preview(request)
        asked = pb.PreviewRecurrenceRequest()
        asked.CopyFrom(request)
        asked.after_time.CopyFrom(times.timestamp(self._state.clock))
        return await self._calls.preview(asked)

    # ---------------------------------------------------------------------------- ticks

    def next(self) -> int | None:
        """When to tick next (microseconds); None if never."""
        return min((look for look, _, _ in self._looks()), default=None)

    def tick(self) -> int:
        """Turn the recurrences that are to be looked at by now; return how many there were."""
        due = sorted(look for look in self._looks() if look[0] <= self._state.clock)
        for _, topic, recurrence_id in due:
            self._turn(topic, recurrence_id)
        return len(due)

    def _turn(self, topic: str, recurrence_id: str) -> None:
        key, now = (topic, recurrence_id), self._state.clock
        made = turned(
            self._read(topic, recurrence_id), now, self.calendars.known, one_by_one=key in self._without_room
        )
        most = self._state.policy.max_waiting
        (word,) = at_once(self._kept.turn(topic, [made], now, max_waiting=most))
        if word is Turned.FULL:
            self._without_room[key] = now + LOOK_AGAIN
        else:
            self._without_room.pop(key, None)

    def _looks(self) -> list[tuple[int, str, str]]:
        """When to look at each recurrence that still has something to come, and its names."""
        looks = [
            (self._look(topic, recurrence_id, standing), topic, recurrence_id)
            for topic, recurrence_id, standing in self._kept.everything()
        ]
        return [(look, topic, name) for look, topic, name in looks if look is not None]

    def _look(self, topic: str, recurrence_id: str, standing: Standing) -> int | None:
        """When to look at a recurrence. What waits for the end of an occurrence comes as soon as that has
        ended; a real relay looks once a second whether it has."""
        clock = self._state.clock
        if (blocked := self._without_room.get((topic, recurrence_id))) is not None:
            return blocked
        look = look_at(standing, 0)  # as if it had been looked at long ago
        if look is None or look > clock or look == standing.next:
            return look
        made = turned(self._read(topic, recurrence_id), clock, self.calendars.known)
        return clock if made.occurrences or made.left_out else standing.next

    def _read(self, topic: str, recurrence_id: str) -> StoredRecurrence:
        _, kept = at_once(self._kept.get(topic, recurrence_id))
        assert kept is not None
        return kept


class _Whole:
    """The `ByLayout` of topics that have one partition each."""

    async def begin(self, topic: str, work: Callable[[Layout], Awaitable[_T]]) -> _T:
        return await work(Layout(topic))


class _Here:
    """The `ComputesRules` of a test, which has nothing else to do."""

    async def run(self, work: Callable[[], _T]) -> _T:
        return work()

    async def compile(self, rule: Rule) -> None:
        pass


class _Unasked:
    """A `Ticking` that need not be told anything: whoever moves the clock looks at every recurrence."""

    def follow(self, topic: str) -> None:
        pass

    def due_at(self, partition: str, instant: int) -> None:
        pass
