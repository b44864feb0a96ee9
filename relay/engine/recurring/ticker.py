"""One partition's ticks: the loop sleeps until a nominal instant has come, and makes its occurrence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from relay.core.errors import OtherLayout, StoreRefused, StoreUnavailable
from relay.core.partitions import involved, layout_of, place_of, topic_of
from relay.core.ports import MAX_PER_CALL, RecurrenceStore
from relay.core.recurring.calendars import NO_CALENDARS, KnownCalendars
from relay.core.recurring.recurrence import Due, Turn, Turned
from relay.core.recurring.turns import LOOK_AGAIN, MOST_BYTES, look_at
from relay.engine.claiming.timetable import Timetable
from relay.engine.recurring.computing import Computing
from relay.engine.recurring.kept_calendars import KeptCalendars
from relay.engine.recurring.turning import turned
from relay.engine.redis_health import REFUSED_WAIT, RedisHealth
from relay.telemetry.metrics.catalogue import LEFT_OUT, TICKED
from relay.telemetry.metrics.instruments import Instruments

MOST = 100
"""Recurrences that one call reads, and at most turns."""

MOST_INSTANTS = 1_000
"""Nominal instants after which a look ends, and the next one begins: after an outage there may be many, and
the event loop has other work."""

LONGEST = 0.05
"""Seconds after which a look computes no further turn, for the same reason."""

NOT_READ = "another version of Relay has written it, or it is sealed, and does not open with this keyring"

GATHER = 0.02
"""The shortest time in seconds between two looks that each find something. Recurrences that fall due
meanwhile share one."""


class Ticker:
    """Ticks for as long as the relay runs, whether or not an application is there.

    Any number of relays may tick at the same time: a turn is written only if the recurrence still stands as
    it was read. It waits as a poller does; see `Timetable`.
    """

    def __init__(
        self,
        partition: str,
        timetable: Timetable,
        store: RecurrenceStore,
        calendars: KeptCalendars,
        computing: Computing,
        due_at: Callable[[str, int], None],
        max_waiting: Callable[[str], int],
        redis_health: RedisHealth,
        instruments: Instruments,
    ) -> None:
        """`due_at` is told the due times of occurrences, `max_waiting` says how many timers a partition may
        hold."""
        self._partition = partition
        self._timetable = timetable
        self._clock = timetable.clock
        self._store = store
        self._calendars = calendars
        self._computing = computing
        self._due_at = due_at
        self._max_waiting = max_waiting
        self._redis_health = redis_health
        self._instruments = instruments
        self._refused = False
        self._gather_until = 0.0
        self._without_room: set[str] = set()
        """Recurrences whose occurrences found no room at the last look."""
        self._unreadable: set[str] = set()
        """Recurrences with rules that this relay can't read."""
        self._passed_over = 0
        """How many of the first recurrences the next look passes over: they can't be turned now, and others
        that are due stand behind them."""
        self._without_calendars = False
        """Whether recurrences wait since no calendars can be read."""

    def due_at(self, instant: int) -> None:
        """Look at `instant` at the latest (microseconds by the server's clock; 0 means now)."""
        self._timetable.due_at(instant)

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            await self.step()

    async def step(self) -> None:
        """Wait until it is time, and turn the recurrences that are to be looked at."""
        while (wait := max(self._timetable.next, self._gather_until) - self._clock.now()) > 0:
            await self._clock.wait(self._timetable.wakeup, wait)
        began = self._timetable.begin()
        health = self._redis_health.of(self._partition)
        passed_over = self._passed_over
        try:
            due = await self._store.due(self._partition, MOST, skip=passed_over)
            done, following = await self._turn(await self._computed(due))
        except StoreUnavailable as failure:
            self._timetable.again()
            health.failed(failure)
            await self._redis_health.pause(self._partition)
        except OtherLayout:
            self._timetable.again()
            await self._clock.sleep(REFUSED_WAIT)  # which ends soon: others take this one's stead
        except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
            self._timetable.again()
            self._redis_health.refused(
                "Redis refuses to tick", failure, said=self._refused, topic=place_of(self._partition)
            )
            self._refused = True
            await self._clock.sleep(REFUSED_WAIT)
        else:
            health.worked()
            self._refused = False
            goes_on = done or self._passed_over > passed_over
            self._timetable.plan(now=due.now, next_due=following, taken=goes_on, paused_until=None)
            self._gather_until = began + GATHER if done and len(due.kept) < MOST else 0.0

    async def _computed(self, due: Due) -> Due:
        """What is due, as far as its rules are compiled: a few take long, and those behind them are another
        look's."""
        began = self._clock.now()
        for number, each in enumerate(due.kept):
            if number and self._clock.now() - began > LONGEST:
                return replace(due, kept=due.kept[:number], unread=(), next=due.now)
            await self._computing.compile(each.recurrence.rule)
        return due

    async def _turn(self, due: Due) -> tuple[bool, int | None]:
        """Turn what is due. Return whether anything was done, and when to look at the next one."""
        names_some = any(each.recurrence.rule.calendars for each in due.kept)
        calendars = await self._calendars.for_tick() if names_some else NO_CALENDARS
        if not self._passed_over:
            self._without_calendars = False
        turns, is_whole = self._turns(due, calendars)
        self._pass_over(due, len(due.kept) + len(due.unread) - len(turns) if is_whole else 0)
        done, following = False, [due.next, None if is_whole else due.now]
        if self._without_calendars and not self._passed_over:
            following.append(due.now + LOOK_AGAIN)
        self._without_room.clear()
        for partition, some in self._grouped(turns):
            most = self._max_waiting(partition)
            for each, word in zip(
                some, await self._store.turn(partition, some, due.now, max_waiting=most), strict=True
            ):
                if word is Turned.DONE:
                    done = True
                    self._note(partition, each)
                    following.append(look_at(each.standing, due.now))
                elif word is Turned.OTHER:
                    following.append(due.now)
                else:
                    self._without_room.add(each.kept.recurrence.recurrence_id)
                    following.append(due.now + LOOK_AGAIN)
        return done, min((each for each in following if each is not None), default=None)

    def _turns(self, due: Due, calendars: KnownCalendars | None) -> tuple[list[Turn], bool]:
        """The turns of what is due. A rule that this relay can't read, as one from a newer version, stays as
        it is, and so does one that names calendars while none can be read. And whether these are all."""
        turns: list[Turn] = []
        instants, began = 0, self._clock.now()
        for name in due.unread:
            self._cannot_read(name, StoreRefused(NOT_READ))
        for each in due.kept:
            if turns and (instants > MOST_INSTANTS or self._clock.now() - began > LONGEST):
                return turns, False
            name = each.recurrence.recurrence_id
            if calendars is None and each.recurrence.rule.calendars:
                self._without_calendars = True
                continue
            try:
                known = calendars or NO_CALENDARS
                made = turned(each, due.now, known, one_by_one=name in self._without_room)
                self._calendars.note_missing(topic_of(self._partition), each.recurrence, known)
                turns.append(made)
                instants += len(made.occurrences) + sum(made.left_out.values())
            except Exception as failure:  # noqa: BLE001  (whatever it is, it must not stop the others)
                self._cannot_read(name, failure)
        return turns, len(turns) < MOST

    def _pass_over(self, due: Due, count: int) -> None:
        """Let the next look begin behind `count` more that could not be turned, as they would fill it for
        ever; and at the first one again, once nothing behind them is due."""
        is_more_due = due.next is not None and due.next <= due.now
        self._passed_over = self._passed_over + count if is_more_due else 0

    def _cannot_read(self, name: str, failure: Exception) -> None:
        if name not in self._unreadable:
            self._unreadable.add(name)
            self._redis_health.refused(
                "a recurrence has a rule that this relay can't read",
                failure,
                topic=topic_of(self._partition),
                recurrence=name,
            )

    def _grouped(self, turns: Sequence[Turn]) -> Iterator[tuple[str, list[Turn]]]:
        """The turns of each call, which has a bounded number of occurrences, by the partitions that calls
        about them begin with."""
        layout = layout_of(self._partition)
        by_partition: dict[str, list[Turn]] = {}
        for each in turns:
            name = layout.partition(each.kept.recurrence.recurrence_id)
            by_partition.setdefault(name, []).append(each)
        for name, some in by_partition.items():
            for part in _parts(some):
                yield name, part

    def _note(self, partition: str, made: Turn) -> None:
        topic = topic_of(self._partition)
        for reason, count in made.left_out.items():
            self._instruments.count(LEFT_OUT, topic, reason.value, n=count)
        if made.occurrences:
            self._instruments.count(TICKED, topic, n=len(made.occurrences))
            first = min(each.due for each in made.occurrences)
            for each in involved(partition):
                self._due_at(each, first)


def _parts(turns: Iterable[Turn]) -> Iterator[list[Turn]]:
    part: list[Turn] = []
    size = content = 0
    for each in turns:
        count = len(each.occurrences)
        length = count * len(each.kept.recurrence.payload)
        if part and (size + count > MAX_PER_CALL or content + length > MOST_BYTES):
            yield part
            part, size, content = [], 0, 0
        part.append(each)
        size += count
        content += length
    if part:
        yield part
