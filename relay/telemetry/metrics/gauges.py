"""Gauges: how topics stand in Redis, and how this relay stands.

They are read on the engine's loop (`Snapshot`), right before a collection, which may run in a thread
of its own and only passes on what was read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from relay import __version__
from relay.core.dispatch import Dispatch, GroupStats
from relay.core.timers import TopicStats
from relay.telemetry.metrics import catalogue as c
from relay.telemetry.metrics.catalogue import InstrumentKind, InstrumentSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RelayState:
    """The state of a relay, by topic, by loop, and by the place of topics. Ages are in seconds."""

    leased: Mapping[str, int] = field(default_factory=dict)
    in_flight: Mapping[str, int] = field(default_factory=dict)
    consumers: Mapping[str, int] = field(default_factory=dict)
    capacity: int = 0
    free: int = 0
    unwritten: int = 0
    heartbeats: Mapping[str, float] = field(default_factory=dict)
    connected: Mapping[str, bool] = field(default_factory=lambda: {"": True})
    last_answers: Mapping[str, float] = field(default_factory=lambda: {"": 0.0})
    clock_steps: Mapping[str, float] = field(default_factory=lambda: {"": 0.0})


WINDOWS = ("1m", "1h", "24h")
"""The windows of `TopicStats.coming`."""

Row = tuple[float, dict[str, str]]


class Gauges:
    """All gauges of a daemon. `topic` bounds the names; see `FewNames`."""

    def __init__(self, provider: MeterProvider, topic: Callable[[str], str]) -> None:
        self._topic = topic
        self._rows: dict[str, list[Row]] = {}
        self.suppressed: Callable[[], int] = lambda: 0
        """The number of lines that the log has left out."""
        self.policy_stale: Callable[[], bool] = lambda: False
        """Whether the policy's file can't be used."""
        meter = provider.get_meter("relay", __version__)
        make = {
            InstrumentKind.GAUGE: meter.create_observable_gauge,
            InstrumentKind.UP_DOWN_COUNTER: meter.create_observable_up_down_counter,
            InstrumentKind.COUNTER: meter.create_observable_counter,
        }
        for spec in (*c.OF_TOPICS, *c.OF_RELAY):
            make[spec.kind](spec.name, [self._observer(spec)], spec.unit, spec.description)

    def show(self, relay: RelayState, topics: Sequence[TopicStats]) -> None:
        """Set what the next collection reports. Topics are missing if they could not be read."""
        rows: dict[str, list[Row]] = {}
        self._show_topics(rows, topics)
        self._show_relay(rows, relay)
        self._show_process(rows)
        self._rows = rows

    def _show_topics(self, rows: dict[str, list[Row]], topics: Sequence[TopicStats]) -> None:
        total: dict[str, list[TopicStats]] = {}
        for stats in topics:
            total.setdefault(self._topic(stats.topic), []).append(stats)
        for topic, group in total.items():
            label = {"topic": topic}
            firsts = [stats.first for stats in group if stats.first is not None]
            # Several topics under one name show their sum, or the worst of them.
            late = max((s.now - s.first for s in group if s.first is not None), default=0) / 1e6
            values = {
                c.WAITING: sum(stats.timers for stats in group),
                c.DUE: sum(stats.due for stats in group),
                c.DEAD_LETTERS: sum(stats.dead for stats in group),
                c.OLDEST_DUE: max(late, 0.0),
                c.PAUSED: int(any(stats.paused_until is not None for stats in group)),
            }
            if firsts:
                values[c.NEXT_DUE] = min(firsts) / 1e6
            states = [stats.dispatched for stats in group if stats.dispatched is not None]
            values |= {
                spec: sum(counts)
                for spec, dispatch, counts in (
                    (c.READY, Dispatch.LIST, [each.ready for each in states]),
                    (c.PROCESSING, Dispatch.LIST, [each.processing for each in states]),
                    (c.ENTRIES, Dispatch.STREAM, [each.entries for each in states]),
                )
                if any(each.dispatch is dispatch for each in states)
            }
            if journals := [stats.journal_keeps for stats in group if stats.journal_keeps]:
                values[c.JOURNAL_LIMIT] = max(journals)
            for spec, value in values.items():
                rows.setdefault(spec.name, []).append((value, label))
            for window, counts in zip(
                WINDOWS, zip(*(stats.coming for stats in group), strict=True), strict=True
            ):
                rows.setdefault(c.FORECAST_DUE.name, []).append((sum(counts), {**label, "window": window}))
            resting = [stats.cold for stats in group if stats.cold is not None]
            for window, counts in zip(WINDOWS, zip(*resting, strict=True), strict=bool(resting)):
                rows.setdefault(c.FORECAST_COLD.name, []).append((sum(counts), {**label, "window": window}))
            self._show_groups(rows, topic, [each for state in states for each in state.groups])

    def _show_groups(self, rows: dict[str, list[Row]], topic: str, groups: Sequence[GroupStats]) -> None:
        for name in dict.fromkeys(each.group for each in groups):
            label = {"topic": topic, "group": name}
            same = [each for each in groups if each.group == name]
            unread = [each.unread for each in same if each.unread is not None]
            for spec, counts in (
                (c.GROUP_PENDING, [each.pending for each in same]),
                (c.GROUP_UNREAD, unread),
                (c.GROUP_WAITING, [each.waiting for each in same]),
                (c.GROUP_CONSUMERS, [each.consumers for each in same]),
            ):
                if counts:
                    rows.setdefault(spec.name, []).append((sum(counts), label))
            overdue = max(each.overdue for each in same)
            rows.setdefault(c.GROUP_OVERDUE.name, []).append((overdue, label))

    def _show_relay(self, rows: dict[str, list[Row]], relay: RelayState) -> None:
        by_topic = (c.LEASED, relay.leased), (c.IN_FLIGHT, relay.in_flight), (c.CONSUMERS, relay.consumers)
        for spec, counts in by_topic:
            sums: dict[str, int] = {}
            for topic, count in counts.items():
                name = self._topic(topic)
                sums[name] = sums.get(name, 0) + count
            rows[spec.name] = [(count, {"topic": name}) for name, count in sums.items()]
        rows[c.HEARTBEAT.name] = [(age, {"loop": loop}) for loop, age in relay.heartbeats.items()]
        plain = {
            c.CAPACITY: relay.capacity,
            c.FREE: relay.free,
            c.UNWRITTEN: relay.unwritten,
            c.LOG_SUPPRESSED: self.suppressed(),
            c.POLICY_STALE: int(self.policy_stale()),
        }
        for each, value in plain.items():
            rows[each.name] = [(value, {})]
        rows[c.CONNECTED.name] = [(int(there), _node(place)) for place, there in relay.connected.items()]
        rows[c.LAST_ANSWER.name] = [(age, _node(place)) for place, age in relay.last_answers.items()]
        rows[c.CLOCK_STEP.name] = [(step, _node(place)) for place, step in relay.clock_steps.items()]

    def _show_process(self, rows: dict[str, list[Row]]) -> None:
        times = os.times()
        rows[c.CPU.name] = [(times.user, {"cpu.mode": "user"}), (times.system, {"cpu.mode": "system"})]
        memory = resident_bytes()
        if memory is not None:
            rows[c.MEMORY.name] = [(memory, {})]

    def _observer(self, spec: InstrumentSpec) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, attributes) for value, attributes in self._rows.get(spec.name, ())]

        return observe


def _node(place: str) -> dict[str, str]:
    """The attributes of a row about a place; one server has no name."""
    return {"node": place} if place else {}


def resident_bytes() -> int | None:
    """Physical memory of this process; None where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  (no file of ours)
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
