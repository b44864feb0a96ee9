"""What became of a recurrence's latest occurrences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from relay.core.partitions import Layout
from relay.core.policy import Policies
from relay.core.ports import RecurrenceStore, TimerStore
from relay.core.recurring.ends import NOT_RECORDED, Became, OccurrenceOutcome
from relay.core.recurring.recurrence import Past, StoredRecurrence
from relay.core.timers import TimerState
from relay.engine.recurring.recurrences import ByLayout


class Passed(NamedTuple):
    """A nominal instant, and what became of its occurrence; None if it has none."""

    past: Past
    became: Became | None


class History:  # see 0094
    """Asks for occurrences in three places: the timeline, the dead letters, and the topic's journal."""

    def __init__(
        self, timers: TimerStore, store: RecurrenceStore, partitioning: ByLayout, policies: Policies
    ) -> None:
        self._timers = timers
        self._store = store
        self._partitioning = partitioning
        self._policies = policies

    def is_recorded(self, topic: str) -> bool:
        """Whether the topic has a journal, so that it is known how occurrences end."""
        return self._policies(topic).journal_keeps > 0

    async def of(self, topic: str, kept: StoredRecurrence, count: int) -> list[Passed]:
        """Tell of the latest `count` instants, the latest one at the end."""
        latest = kept.standing.recent[-count:]
        made = {past.timer_id: past.nominal + past.lateness for past in latest if past.timer_id}
        became = await self._standing(topic, made)
        gone = {timer_id: instant for timer_id, instant in made.items() if timer_id not in became}

        async def ask(layout: Layout) -> Mapping[str, Became]:
            name = kept.recurrence.recurrence_id
            return await self._store.ended(layout, name, gone, journaled=self.is_recorded(topic))

        became.update(await self._partitioning.begin(topic, ask))
        # A dead letter may be redriven between the two: then the journal tells that it lives.
        alive = {name: made[name] for name in gone if became[name].outcome is OccurrenceOutcome.WAITING}
        for timer_id in alive:
            became[timer_id] = Became.unknown(NOT_RECORDED)
        became.update(await self._standing(topic, alive))
        return [Passed(past, became.get(past.timer_id)) for past in latest]

    async def _standing(self, topic: str, timer_ids: Mapping[str, int]) -> dict[str, Became]:
        """Those that have not ended."""
        found: dict[str, Became] = {}
        for timer_id in timer_ids:
            timer = await self._partitioning.begin(
                topic,
                lambda layout, timer_id=timer_id: self._timers.get(layout.partition(timer_id), timer_id),  # type: ignore[misc]
            )
            if timer is not None:
                leased = timer.state is TimerState.LEASED
                outcome = OccurrenceOutcome.LEASED if leased else OccurrenceOutcome.WAITING
                found[timer_id] = Became(outcome, attempts=timer.attempts)
        return found
