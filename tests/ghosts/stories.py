"""What happens to a caller whose call is given up: the stories that once ended with a ghost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from relay.core.instants import SECOND, from_score
from relay.store.keys import KeyNames
from relay.store.server.scripts import Scripts
from tests.ghosts.callers import Caller, NoAnswer
from tests.ghosts.rounds import until_true

if TYPE_CHECKING:
    from redis import Redis

PATIENT = 120.0
"""Seconds that a caller gives a call that nothing holds up."""


def answered(call: Callable[[], None]) -> bool:
    """Make a call; whether it was answered."""
    try:
        call()
    except NoAnswer:
        return False
    return True


@dataclass
class Story(ABC):
    """One timer, and what its owner does. `first` is the call whose first try is given up; it is repeated,
    and answered. `after` is what the owner asks for then. Instants are whole microseconds since 1970, hours
    away.
    """

    topic: str
    timer_id: str
    first_due: int
    second_due: int

    name: ClassVar[str]

    @property
    def mark(self) -> str:
        """A text that the bytes of the first call have in them, and those of no other story."""
        return self.timer_id

    @property
    def script(self) -> str:
        """The same of what acts at Redis by that call."""
        return self.mark

    def before(self, caller: Caller) -> None:  # noqa: B027 (most stories begin with nothing)
        """What stands when the story begins."""

    @abstractmethod
    def first(self, caller: Caller, timeout: float) -> None: ...

    @abstractmethod
    def after(self, caller: Caller) -> None: ...

    def play(self, caller: Caller, other: Caller) -> None:
        """The whole story, with nothing that holds it up; repeated as often as the relay has too little time
        on a busy machine."""
        self.before(other)
        until_true(lambda: answered(lambda: self.first(caller, PATIENT)), "the first call is answered")
        self.after(other)

    @abstractmethod
    def state(self, client: Redis) -> int | None:
        """What Redis holds of the story's matter."""

    @property
    def end(self) -> int | None:
        """What it must hold, whatever arrives late."""
        return self.second_due

    @property
    def begin(self) -> int | None:
        """What it holds before the first call."""
        return None


class _Timer(Story):
    def state(self, client: Redis) -> int | None:
        """When the timer is due."""
        timeline = KeyNames().of(self.topic)[0]
        found = client.zscore(timeline, self.timer_id)
        return None if found is None else from_score(found)


class Moved(_Timer):
    """A: a timer is scheduled, which is repeated, and moved. Then the first try arrives."""

    name = "moved"

    def first(self, caller: Caller, timeout: float) -> None:
        """As in `Story`."""
        caller.schedule(self.timer_id, self.first_due, timeout)

    def after(self, caller: Caller) -> None:
        """As in `Story`."""
        caller.schedule(self.timer_id, self.second_due, PATIENT)


class Cancelled(_Timer):
    """A timer is scheduled, which is repeated, and cancelled. Then the first try arrives."""

    name = "cancelled"

    def first(self, caller: Caller, timeout: float) -> None:
        """As in `Story`."""
        caller.schedule(self.timer_id, self.first_due, timeout)

    def after(self, caller: Caller) -> None:
        """As in `Story`."""
        caller.cancel(self.timer_id, PATIENT)

    @property
    def end(self) -> int | None:
        """Nothing."""
        return None


class ScheduledAnew(_Timer):
    """B: a timer is cancelled, which is repeated, and its id is scheduled anew. Then the first Cancel
    arrives."""

    name = "scheduled anew"

    def before(self, caller: Caller) -> None:
        """As in `Story`."""
        caller.schedule(self.timer_id, self.first_due, PATIENT)

    def first(self, caller: Caller, timeout: float) -> None:
        """As in `Story`."""
        caller.cancel(self.timer_id, timeout)

    def after(self, caller: Caller) -> None:
        """As in `Story`."""
        caller.schedule(self.timer_id, self.second_due, PATIENT)

    @property
    def begin(self) -> int | None:
        """The timer."""
        return self.first_due


class RunThenMoved(_Timer):
    """A timer is made due now, which is repeated, and is moved. Then the first Run arrives."""

    name = "run, then moved"

    @property
    def script(self) -> str:
        """Its name: what is read and recorded before it has the timer's id, too."""
        return Scripts(KeyNames()).named("timeline/run+journal").sha

    def before(self, caller: Caller) -> None:
        """As in `Story`."""
        caller.schedule(self.timer_id, self.first_due, PATIENT)

    def first(self, caller: Caller, timeout: float) -> None:
        """As in `Story`."""
        caller.run(self.timer_id, timeout)

    def after(self, caller: Caller) -> None:
        """As in `Story`."""
        caller.schedule(self.timer_id, self.second_due, PATIENT)

    @property
    def begin(self) -> int | None:
        """The timer."""
        return self.first_due


class Resumed(Story):
    """A topic is paused, which is repeated, and resumed. Then the first Pause arrives."""

    name = "resumed"

    @property
    def mark(self) -> str:
        """As in `Story`."""
        return f"{self.first_due}"

    def first(self, caller: Caller, timeout: float) -> None:
        """As in `Story`."""
        caller.pause(self.first_due, timeout)

    def after(self, caller: Caller) -> None:
        """As in `Story`."""
        caller.pause(None, PATIENT)

    def state(self, client: Redis) -> int | None:
        """Until when the topic is paused."""
        found = client.get(KeyNames().key("pause", self.topic))
        return None if found is None else int(found)

    @property
    def end(self) -> int | None:
        """Nothing."""
        return None


STORIES: tuple[type[Story], ...] = (Moved, Cancelled, ScheduledAnew, RunThenMoved, Resumed)

HOUR = 3600 * SECOND
