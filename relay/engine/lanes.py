"""Lanes: where one place does not answer, topics of other places go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

import anyio

from relay.core.ports import Places
from relay.engine.loop_starter import LoopStarter


class Lane(Protocol):
    """What a loop does for the topics of one place, or of a part of it that is held up."""

    @property
    def place(self) -> str:
        """What `where` says of all topics of the lane; see `Lanes`."""
        ...

    async def run(self) -> None:
        """Work until cancelled."""
        ...

    def leave(self, topic: str, lane: Self) -> bool:
        """Hand what waits of a topic over to its new lane. False, and nothing has changed, if that must wait
        for a call about the topic: then `Lanes.call_ended` is called when the call has ended."""
        ...


AnyLane = TypeVar("AnyLane", bound=Lane)


class Lanes(dict[str, AnyLane]):  # see 0082
    """The lane of each topic, or of each partition, whose name stands in the topic's stead. All topics of
    which `where` says the same share one, which is a task of its own: those of a place, without what is held
    up there (`Places.lane`), or really all of them (`Places.of`).

    `lanes[topic]` makes the lane if the topic's place has none yet; `make` is given the place. On one server
    there is one lane. A topic that has another place than before changes its lane, and a lane without topics
    ends; `ended` is called with it.
    """

    def __init__(
        self,
        places: Places,
        make: Callable[[str], AnyLane],
        ended: Callable[[AnyLane], None] = lambda _: None,
        *,
        where: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__()
        self._where = where or places.lane
        self._make = make
        self._ended = ended
        self._by_place: dict[str, AnyLane] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._loops: LoopStarter | None = None
        self._late = False
        """Whether a topic keeps its old lane until a call about it has ended."""
        places.changed.append(self.again)

    def __missing__(self, topic: str) -> AnyLane:
        lane = self[topic] = self._at(self._where(topic))
        return lane

    @property
    def all(self) -> list[AnyLane]:
        """All lanes."""
        return list(self._by_place.values())

    def again(self) -> None:
        """Let each topic have the lane of its place."""
        self._late = False
        for topic, lane in list(self.items()):
            place = self._where(topic)
            if place != lane.place:
                other = self._at(place)
                if lane.leave(topic, other):
                    self[topic] = other
                else:
                    self._late = True
        for place in self._by_place.keys() - {lane.place for lane in self.values()}:
            self._ended(self._by_place.pop(place))
            if place in self._scopes:
                self._scopes.pop(place).cancel()

    def call_ended(self) -> None:
        """Note that a lane has ended a call: a topic may have waited for that to leave it."""
        if self._late:
            self.again()

    async def run(self) -> None:
        """Let all lanes work until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                self._loops = LoopStarter(tasks)
                for lane in self._by_place.values():
                    self._start(lane, self._loops)
                await anyio.sleep_forever()
        finally:
            self._loops = None

    def _at(self, place: str) -> AnyLane:
        if place not in self._by_place:
            lane = self._by_place[place] = self._make(place)
            if self._loops is not None:
                self._start(lane, self._loops)
        return self._by_place[place]

    def _start(self, lane: AnyLane, loops: LoopStarter) -> None:
        scope = self._scopes[lane.place] = anyio.CancelScope()

        async def run() -> None:
            with scope:
                await lane.run()

        loops.start(run)
