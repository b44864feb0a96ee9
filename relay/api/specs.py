"""New timers that come one by one, each as a `TimerSpec`, of any topics."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat

from relay.api import translate
from relay.core.errors import Denied, InvalidField, ServiceError
from relay.core.timers import NewTimer, NewTimers, OnConflict, Scheduled
from relay.v1 import timer_pb2 as pb


class Specs:
    """The timers of a request.

    `admit` returns how many bytes a payload of a topic may have, or raises `InvalidField` or `Denied`.
    `seals` says whether a topic is sealed.
    `trace` is the caller's trace context, `said` what the request says of timers that meet.
    """

    def __init__(
        self,
        specs: Sequence[pb.TimerSpec],
        admit: Callable[[str], int],
        trace: Mapping[str, str],
        *,
        said: OnConflict | None = None,
        seals: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._specs = specs
        self._admit = admit
        self._trace = trace
        self._said = said
        self._seals = seals
        self._limits: dict[str, int] = {}
        self._read: dict[str, list[NewTimers]] = {}
        self._named: list[tuple[str, str] | ServiceError] = []
        """The topic and the name of each that was read, or what is wrong with it."""

    def read(self, part: slice) -> None:
        """Read the timers of this part; the next part begins where it ends."""
        specs = self._specs[part]
        if self._read_together(specs):
            return
        rows: dict[str, list[NewTimer]] = {}
        for spec in specs:
            try:
                timer = translate.new_timer(
                    spec,
                    spec.timer_id or uuid.uuid4().hex,
                    self._limit(spec.topic),
                    self._trace,
                    said=self._said,
                    sealed=self._seals(spec.topic),
                )
            except (InvalidField, Denied) as failure:
                self._named.append(failure)
            else:
                rows.setdefault(spec.topic, []).append(timer)
                self._named.append((spec.topic, timer.timer_id))
        for topic, some in rows.items():
            self._read.setdefault(topic, []).append(NewTimers.of(some))

    def _read_together(self, specs: Sequence[pb.TimerSpec]) -> bool:
        """Read them in half of the time, if they are of one topic and all are valid."""
        topics = {spec.topic for spec in specs}
        if len(topics) != 1:
            return False
        (topic,) = topics
        try:
            timers = translate.new_timers(
                specs, self._limit(topic), self._trace, said=self._said, sealed=self._seals(topic)
            )
        except (InvalidField, Denied):
            return False
        if timers is None:
            return False
        self._read.setdefault(topic, []).append(timers)
        self._named += zip(repeat(topic), timers.timer_ids)
        return True

    def _limit(self, topic: str) -> int:
        limit = self._limits.get(topic)
        if limit is None:
            limit = self._limits[topic] = self._admit(topic)
        return limit

    @property
    def timers(self) -> dict[str, NewTimers]:
        """The timers that were read and are valid, by topic."""
        return {topic: NewTimers.joined(parts) for topic, parts in self._read.items()}

    def outcomes(
        self, stored: Mapping[str, Sequence[Scheduled | ServiceError]]
    ) -> Iterator[tuple[str, str, Scheduled | ServiceError]]:
        """Yield topic, name and result of each timer that was read, given the results of the valid ones."""
        results = {topic: iter(some) for topic, some in stored.items()}
        for named in self._named:
            if isinstance(named, ServiceError):
                yield "", "", named
            else:
                topic, timer_id = named
                yield topic, timer_id, next(results[topic])
