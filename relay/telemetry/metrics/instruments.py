"""What is counted. Every method takes a batch's count and is called once a batch."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.metrics import Counter, MeterProvider
from opentelemetry.trace import SpanContext

from relay import __version__
from relay.telemetry.metrics.catalogue import (
    CLAIMED,
    CONNECTIONS_REFUSED,
    COUNTERS,
    DEAD,
    DELIVERED,
    EXPIRED,
    HANDLER,
    HTTP_REQUESTS,
    JOURNAL_TRIMMED,
    LATENESS,
    ORPHANS,
    PROMOTED,
    REDRIVEN,
    RELEASED,
    REPAIRED,
    RETRIED,
    RETURNED,
    ROUND_TRIP,
    SCHEDULE,
    SCHEDULED,
    SETTLED,
    SILENT,
    STALE,
    STORE_ERRORS,
    STREAM_DROPPED,
    STREAM_TRIMMED,
    TRIMMED,
    UNDELIVERABLE,
    UNHEARD,
    UNREADABLE,
    InstrumentSpec,
)
from relay.telemetry.metrics.histograms import Histograms

OTHER = "other"
"""The topic that stands for all beyond the limit."""

RELEASE = "release"
EXPIRY = "expired"
GONE = "client_gone"

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


class Instruments:
    """All instruments, made from one `MeterProvider`."""

    def __init__(
        self,
        provider: MeterProvider,
        histograms: Histograms | None = None,
        *,
        max_topics: int = MAX_TOPICS,
    ) -> None:
        meter = provider.get_meter("relay", __version__)
        self._counters: dict[str, Counter] = {
            spec.name: meter.create_counter(spec.name, unit=spec.unit, description=spec.description)
            for spec in COUNTERS
        }
        histograms = histograms or Histograms()
        self._lateness, self._handler = histograms[LATENESS], histograms[HANDLER]
        self._schedule, self._round_trip = histograms[SCHEDULE], histograms[ROUND_TRIP]
        self._http = meter.create_histogram(
            HTTP_REQUESTS.name,
            unit=HTTP_REQUESTS.unit,
            description=HTTP_REQUESTS.description,
            explicit_bucket_boundaries_advisory=HTTP_REQUESTS.bounds,
        )
        self.topic = TopicNames(max_topics)
        """The value of the attribute `topic`; one for all instruments, so that they agree."""

    def scheduled(self, topic: str, count: int) -> None:
        """Timers were stored."""
        self._add(SCHEDULED, count, topic)

    def claimed(self, topic: str, count: int) -> None:
        """Timers were leased."""
        self._add(CLAIMED, count, topic)

    def delivered(self, topic: str, count: int) -> None:
        """Timers were handed to an application."""
        self._add(DELIVERED, count, topic)

    def retried(self, topic: str, count: int) -> None:
        """Timers were handed to an application, and not for the first time."""
        self._add(RETRIED, count, topic)

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

    def promoted(self, topic: str, count: int) -> None:
        """Timers were moved to a list or a stream."""
        self._add(PROMOTED, count, topic)

    def returned(self, topic: str, count: int) -> None:
        """Entries went back to a ready list."""
        self._add(RETURNED, count, topic)

    def stream_trimmed(self, topic: str, count: int) -> None:
        """Entries that nobody needs were removed from a stream."""
        self._add(STREAM_TRIMMED, count, topic)

    def stream_dropped(self, topic: str, count: int) -> None:
        """Entries that somebody may have needed were removed from a stream, as its limit asks."""
        self._add(STREAM_DROPPED, count, topic)

    def dead(self, topic: str, reason: str, count: int) -> None:
        """Timers died; or expired, which counts apart."""
        if reason == EXPIRY:
            self._add(EXPIRED, count, topic)
        else:
            self._add(DEAD, count, topic, reason=reason)

    def redriven(self, topic: str, count: int) -> None:
        """Dead letters were brought back to life."""
        self._add(REDRIVEN, count, topic)

    def journal_trimmed(self, topic: str, count: int) -> None:
        """Records of the journal were removed, since it keeps only so many."""
        self._add(JOURNAL_TRIMMED, count, topic)

    def trimmed(self, topic: str, count: int) -> None:
        """Dead letters were removed by the policy."""
        self._add(TRIMMED, count, topic)

    def repaired(self, topic: str, kind: str, count: int) -> None:
        """Orphans were removed: `payload` or `lease`."""
        self._add(REPAIRED, count, topic, kind=kind)

    def orphans(self, topic: str, count: int) -> None:
        """Entries without payload were removed."""
        self._add(ORPHANS, count, topic)

    def undeliverable(self, topic: str, count: int) -> None:
        """Timers can't be delivered."""
        self._add(UNDELIVERABLE, count, topic)

    def unheard(self, command: str) -> None:
        """Redis refused a wake hint; `command` is PUBLISH or SUBSCRIBE."""
        self._counters[UNHEARD.name].add(1, {"command": command})

    def store_error(self, kind: str) -> None:
        """A call to the store failed; `kind` is the error's class, one of few."""
        self._counters[STORE_ERRORS.name].add(1, {"error.type": kind})

    def unreadable(self, method: str) -> None:
        """A gRPC message could not be parsed; `method` is one of those that are served."""
        self._counters[UNREADABLE.name].add(1, {"rpc.method": method})

    def connection_refused(self, listener: str, reason: str) -> None:
        """A listener, `http` or `api`, closed a connection; `reason` is one of few."""
        self._counters[CONNECTIONS_REFUSED.name].add(1, {"listener": listener, "reason": reason})

    def lateness(self, topic: str, seconds: Sequence[float]) -> None:
        """First deliveries began so many seconds after their due time; negative counts as 0."""
        if seconds:
            self._lateness.record(self.topic(topic), [max(value, 0.0) for value in seconds])

    def late(self, topic: str, seconds: float, span: SpanContext) -> None:
        """The delivery of that span was late by so much; `lateness` has counted it already."""
        self._lateness.exemplify(self.topic(topic), seconds, span)

    def handled(self, topic: str, seconds: float, count: int, spans: Sequence[SpanContext] = ()) -> None:
        """So many deliveries had their outcomes after so many seconds; those of `spans` are among them."""
        topic = self.topic(topic)
        self._handler.record(topic, (seconds,), count)
        for span in spans:
            self._handler.exemplify(topic, seconds, span)

    def schedule_took(self, topic: str, seconds: float, span: SpanContext | None = None) -> None:
        """A call that scheduled was answered after so many seconds."""
        topic = self.topic(topic)
        self._schedule.record(topic, (seconds,))
        if span is not None:
            self._schedule.exemplify(topic, seconds, span)

    def round_trip(self, verb: str, seconds: float) -> None:
        """A script call was answered after so many seconds; `verb` is one of few."""
        self._round_trip.record(verb, (seconds,))

    def http_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request to the JSON API was answered; `route` is a template, "" if there is none for it. Not by
        batches, since a request is dear anyway."""
        attributes: dict[str, str | int] = {
            "http.request.method": method,
            "http.response.status_code": status,
        }
        if route:
            attributes["http.route"] = route
        if status >= 500:
            attributes["error.type"] = str(status)
        self._http.record(seconds, {**attributes, "url.scheme": "http"})

    def _add(self, spec: InstrumentSpec, count: int, topic: str, **attributes: str) -> None:
        if count:
            self._counters[spec.name].add(count, {"topic": self.topic(topic), **attributes})
