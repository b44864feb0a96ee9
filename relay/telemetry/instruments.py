"""What is counted. Every method takes a batch's count and is called once a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opentelemetry.metrics import Counter, MeterProvider

from relay import __version__
from relay.telemetry.lateness import LatenessHistogram

OTHER = "other"
"""The topic that stands for all beyond the limit."""

RELEASE = "release"

MAX_TOPICS = 100
"""So many topics are told apart: each costs a time series an instrument."""


class TopicNames:
    """Keeps the values of the attribute `topic` few: the first `limit` topics, then `OTHER`."""

    def __init__(self, limit: int = MAX_TOPICS) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def __call__(self, topic: str) -> str:
        if topic in self._known:
            return topic
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(topic)
        return topic


@dataclass(frozen=True, slots=True)
class InstrumentSpec:
    """Name, unit (UCUM) and meaning of a counter, by OpenTelemetry's conventions."""

    name: str
    unit: str
    description: str


SCHEDULED = InstrumentSpec("relay.timers.scheduled", "{timer}", "Timers stored through this relay.")
CLAIMED = InstrumentSpec("relay.timers.claimed", "{timer}", "Timers that this relay took under a lease.")
DELIVERED = InstrumentSpec(
    "relay.timers.delivered", "{timer}", "Timers handed to an application, each attempt."
)
SETTLED = InstrumentSpec("relay.timers.settled", "{timer}", "Outcomes written, by what the application said.")
STALE = InstrumentSpec(
    "relay.timers.stale", "{timer}", "Outcomes that changed nothing: the lease was lost, or the timer gone."
)
SILENT = InstrumentSpec(
    "relay.timers.silent", "{timer}", "Deliveries given up: no outcome within delivery_timeout."
)
RELEASED = InstrumentSpec("relay.timers.released", "{timer}", "Leases given back without an outcome.")
DEAD = InstrumentSpec("relay.timers.dead", "{timer}", "Timers that died, by reason.")
TRIMMED = InstrumentSpec(
    "relay.dead_letters.trimmed", "{timer}", "Dead letters removed since the policy keeps only so many."
)
JOURNAL_TRIMMED = InstrumentSpec(
    "relay.journal.trimmed", "{record}", "Records that journals dropped since they keep only so many."
)
REPAIRED = InstrumentSpec(
    "relay.timers.repaired", "{entry}", "Payloads and lease records removed that had no timer, by kind."
)
ORPHANS = InstrumentSpec(
    "relay.timers.orphans", "{timer}", "Entries removed since their payload was missing."
)
UNDELIVERABLE = InstrumentSpec(
    "relay.timers.undeliverable",
    "{timer}",
    "Deliveries put off since the timer can't be named to an application.",
)
STORE_ERRORS = InstrumentSpec("relay.store.errors", "{error}", "Calls to Redis that failed, by kind.")

COUNTERS = (
    SCHEDULED,
    CLAIMED,
    DELIVERED,
    SETTLED,
    STALE,
    SILENT,
    RELEASED,
    DEAD,
    TRIMMED,
    JOURNAL_TRIMMED,
    REPAIRED,
    ORPHANS,
    UNDELIVERABLE,
    STORE_ERRORS,
)


class Instruments:
    """All instruments, made from one `MeterProvider`."""

    def __init__(
        self,
        provider: MeterProvider,
        lateness: LatenessHistogram | None = None,
        *,
        max_topics: int = MAX_TOPICS,
    ) -> None:
        meter = provider.get_meter("relay", __version__)
        self._counters: dict[str, Counter] = {
            spec.name: meter.create_counter(spec.name, unit=spec.unit, description=spec.description)
            for spec in COUNTERS
        }
        self._lateness = lateness or LatenessHistogram()
        self._topic = TopicNames(max_topics)

    def scheduled(self, topic: str, count: int) -> None:
        """Timers were stored."""
        self._add(SCHEDULED, count, topic)

    def claimed(self, topic: str, count: int) -> None:
        """Timers were leased."""
        self._add(CLAIMED, count, topic)

    def delivered(self, topic: str, count: int) -> None:
        """Timers were handed to an application."""
        self._add(DELIVERED, count, topic)

    def settled(self, topic: str, outcome: str, count: int) -> None:
        """Leases were ended by an outcome; or by `release`, which counts apart."""
        if outcome == RELEASE:
            self._add(RELEASED, count, topic)
        else:
            self._add(SETTLED, count, topic, outcome=outcome)

    def stale(self, topic: str, count: int) -> None:
        """Outcomes changed nothing."""
        self._add(STALE, count, topic)

    def silent(self, topic: str, count: int) -> None:
        """Deliveries were given up."""
        self._add(SILENT, count, topic)

    def dead(self, topic: str, reason: str, count: int) -> None:
        """Timers died."""
        self._add(DEAD, count, topic, reason=reason)

    def trimmed(self, topic: str, count: int) -> None:
        """Dead letters were removed by the policy."""
        self._add(TRIMMED, count, topic)

    def journal_trimmed(self, topic: str, count: int) -> None:
        """Records were dropped from the topic's journal."""
        self._add(JOURNAL_TRIMMED, count, topic)

    def repaired(self, topic: str, kind: str, count: int) -> None:
        """Orphans were removed: `payload` or `lease`."""
        self._add(REPAIRED, count, topic, kind=kind)

    def orphans(self, topic: str, count: int) -> None:
        """Entries without payload were removed."""
        self._add(ORPHANS, count, topic)

    def undeliverable(self, topic: str, count: int) -> None:
        """Timers can't be delivered."""
        self._add(UNDELIVERABLE, count, topic)

    def store_error(self, kind: str) -> None:
        """A call to the store failed; `kind` is the error's class, one of few."""
        self._counters[STORE_ERRORS.name].add(1, {"error.type": kind})

    def lateness(self, topic: str, seconds: Sequence[float]) -> None:
        """First deliveries began so many seconds after their due time; negative counts as 0."""
        if seconds:
            self._lateness.record(self._topic(topic), [max(value, 0.0) for value in seconds])

    def _add(self, spec: InstrumentSpec, count: int, topic: str, **attributes: str) -> None:
        if count:
            self._counters[spec.name].add(count, {"topic": self._topic(topic), **attributes})
