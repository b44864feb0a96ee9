"""The instruments. Every method takes a batch's count and is called once for each batch."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Sequence

from opentelemetry.metrics import Counter, MeterProvider
from opentelemetry.trace import SpanContext

from relay import __version__
from relay.telemetry.metrics.catalogue import (
    COUNTERS,
    DELIVERED,
    HANDLER,
    HTTP_REQUESTS,
    LATENESS,
    ROUND_TRIP,
    SCHEDULE,
    SCHEDULED,
    InstrumentSpec,
)
from relay.telemetry.metrics.histograms import Histograms

OTHER = "other"
"""The topic, or the principal, that stands for all beyond the limit."""

MAX_TOPICS = 100
"""The number of topics, and of principals, that are distinguished: each costs a time series for each
instrument."""


TOTALLED = (SCHEDULED, DELIVERED)
"""The counters whose totals can be read, for the rates that the console shows."""


class FewNames:
    """Keeps the values of the attributes `topic` and `principal` few: the first `limit`, then `OTHER`."""

    def __init__(self, limit: int = MAX_TOPICS) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(name)
        return name

    def knows(self, name: str) -> bool:
        """Whether a name stands for itself; one that was never heard of does, while there is room."""
        return name in self._known or len(self._known) < self._limit


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
        self.topic = FewNames(max_topics)
        """The value of the attribute `topic`; one for all instruments, so that they agree."""
        self._principal = FewNames(max_topics)
        self.totals: Counts[tuple[str, str]] = Counts()
        """What was counted since the start: by the name of a counter in `TOTALLED`, and by topic."""

    def count(self, spec: InstrumentSpec, *values: str, n: float = 1) -> None:
        """Add `n` to a counter of the catalogue; `values` are those of its attributes, in their order."""
        if n:
            attributes = dict(zip(spec.attributes, values, strict=True))
            if "topic" in attributes:
                topic = attributes["topic"] = self.topic(attributes["topic"])
                if spec in TOTALLED:
                    self.totals[spec.name, topic] += int(n)
            if "principal" in attributes:
                attributes["principal"] = self._principal(attributes["principal"])
            self._counters[spec.name].add(n, attributes)

    def passed(self, topic: str) -> tuple[int, int] | None:
        """Return how many timers of a topic were scheduled, and how many deliveries have begun, since the
        start; None if the topic is one of those that are counted together."""
        if not self.topic.knows(topic):
            return None
        return self.totals[SCHEDULED.name, topic], self.totals[DELIVERED.name, topic]

    def lateness(self, topic: str, seconds: Sequence[float]) -> None:
        """Record the seconds by which first deliveries began after their due time; a negative number counts
        as 0."""
        if seconds:
            self._lateness.record(self.topic(topic), [max(value, 0.0) for value in seconds])

    def lateness_counts(self, topic: str) -> list[int]:
        """Return how many latenesses of a topic fell into each bucket of `LATENESS.bounds` since the start,
        the last one without an end; none of a topic that is counted together with others."""
        return self._lateness.counts(topic) if self.topic.knows(topic) else []

    def late(self, topic: str, seconds: float, span: SpanContext) -> None:
        """Add the span of a delivery to its lateness, which `lateness` has counted already."""
        self._lateness.exemplify(self.topic(topic), seconds, span)

    def handled(self, topic: str, seconds: float, count: int, spans: Sequence[SpanContext] = ()) -> None:
        """Record the seconds after which deliveries had their outcomes; those of `spans` are among them."""
        topic = self.topic(topic)
        self._handler.record(topic, (seconds,), count)
        for span in spans:
            self._handler.exemplify(topic, seconds, span)

    def schedule_took(self, topic: str, seconds: float, span: SpanContext | None = None) -> None:
        """Record the seconds after which a call that scheduled was answered."""
        topic = self.topic(topic)
        self._schedule.record(topic, (seconds,))
        if span is not None:
            self._schedule.exemplify(topic, seconds, span)

    def round_trip(self, verb: str, seconds: float) -> None:
        """Record the seconds after which a script call was answered; `verb` is one of few."""
        self._round_trip.record(verb, (seconds,))

    def http_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record the answer to a request to the JSON API; `route` is a template, "" if there is none for it.
        This is not batched, since a request is expensive anyway."""
        attributes: dict[str, str | int] = {
            "http.request.method": method,
            "http.response.status_code": status,
        }
        if route:
            attributes["http.route"] = route
        if status >= 500:
            attributes["error.type"] = str(status)
        self._http.record(seconds, {**attributes, "url.scheme": "http"})
