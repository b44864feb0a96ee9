"""Histograms that take a whole batch at a time.

An OpenTelemetry histogram takes one value a call, which costs 6 µs: as much as all else that a
relay does for a timer. So these count by themselves (0.2 µs a value), and join what the SDK has
collected, in its own data model, on its way to an exporter.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
)
from opentelemetry.trace import SpanContext

from relay.telemetry.metrics.catalogue import HISTOGRAMS, InstrumentSpec


@dataclass(slots=True)
class _Series:
    """What was recorded under one value of the attribute since the start."""

    counts: list[int]
    sum: float = 0.0
    least: float = math.inf
    most: float = -math.inf
    exemplars: dict[int, Exemplar] = field(default_factory=dict)
    """By bucket, the last of each."""


class BatchHistogram:  # see 0008
    """One histogram with one attribute, whose values are few: the caller sees to that."""

    def __init__(self, spec: InstrumentSpec) -> None:
        self.spec = spec
        self._started = time.time_ns()
        self._series: dict[str, _Series] = {}

    def record(self, attribute: str, values: Sequence[float], times: int = 1) -> None:
        """Count each value of a batch, which is not empty, `times` times."""
        series = self._of(attribute)
        counts, bounds = series.counts, self.spec.bounds
        for value in values:
            counts[bisect_left(bounds, value)] += times
        series.sum += times * sum(values)
        series.least = min(series.least, *values)
        series.most = max(series.most, *values)

    def counts(self, attribute: str) -> list[int]:
        """How many values fell into each bucket since the start."""
        series = self._series.get(attribute)
        return [] if series is None else list(series.counts)

    def exemplify(self, attribute: str, value: float, context: SpanContext) -> None:
        """This value, which is recorded besides, belongs to that span."""
        bucket = bisect_left(self.spec.bounds, value)
        self._of(attribute).exemplars[bucket] = Exemplar(
            {}, value, time.time_ns(), span_id=context.span_id, trace_id=context.trace_id
        )

    def _of(self, attribute: str) -> _Series:
        series = self._series.get(attribute)
        if series is None:
            series = self._series[attribute] = _Series([0] * (len(self.spec.bounds) + 1))
        return series

    def metric(self) -> Metric | None:
        """All since the start, cumulative; None if there is nothing. May be called in any thread: a batch
        that is being counted is in it as far as it has come."""
        now = time.time_ns()
        # Copied by single calls into C, between which nothing else runs.
        points = [
            self._point(attribute, list(series.counts), series, now)
            for attribute, series in list(self._series.items())
            if series.sum or any(series.counts)
        ]
        if not points:
            return None
        data = Histogram(points, AggregationTemporality.CUMULATIVE)
        return Metric(self.spec.name, self.spec.description, self.spec.unit, data)

    def _point(self, attribute: str, counts: list[int], series: _Series, now: int) -> HistogramDataPoint:
        return HistogramDataPoint(
            attributes={self.spec.attributes[0]: attribute},
            start_time_unix_nano=self._started,
            time_unix_nano=now,
            count=sum(counts),
            sum=series.sum,
            bucket_counts=counts,
            explicit_bounds=self.spec.bounds,
            min=series.least,
            max=series.most,
            exemplars=list(series.exemplars.values()),
        )


class Histograms:
    """All histograms of a daemon."""

    def __init__(self) -> None:
        self._all = {spec.name: BatchHistogram(spec) for spec in HISTOGRAMS}

    def __getitem__(self, spec: InstrumentSpec) -> BatchHistogram:
        return self._all[spec.name]

    def metrics(self) -> list[Metric]:
        """Those that have anything."""
        return [metric for each in self._all.values() if (metric := each.metric()) is not None]


def joined(data: MetricsData, metrics: Iterable[Metric]) -> MetricsData:
    """What the SDK has collected, and these beside it, in the same scope."""
    first, *others = data.resource_metrics
    scope, *scopes = first.scope_metrics
    scope = replace(scope, metrics=[*scope.metrics, *metrics])
    return MetricsData([replace(first, scope_metrics=[scope, *scopes]), *others])


class Changes:
    """Makes of cumulative points what one exporter has not been given yet.

    Exemplars are given once. `delta`: so are counts, for a back-end that wants differences.
    """

    def __init__(self, *, delta: bool, exemplars: bool) -> None:
        self._delta = delta
        self._exemplars = exemplars
        self._before: dict[tuple[str, object], HistogramDataPoint] = {}

    def __call__(self, metric: Metric) -> Metric | None:
        """The same metric as this exporter wants it; None if it has nothing new."""
        if not isinstance(metric.data, Histogram):
            return metric
        points = [self._fresh(metric.name, point) for point in metric.data.data_points]
        fresh = [point for point in points if point is not None]
        form = AggregationTemporality.DELTA if self._delta else AggregationTemporality.CUMULATIVE
        return replace(metric, data=Histogram(fresh, form)) if fresh else None

    def _fresh(self, name: str, point: HistogramDataPoint) -> HistogramDataPoint | None:
        key = name, next(iter((point.attributes or {}).values()), None)
        before = self._before.get(key)
        self._before[key] = point
        since = before.time_unix_nano if before else point.start_time_unix_nano
        new = [each for each in point.exemplars if self._exemplars and each.time_unix_nano > since]
        if not self._delta or before is None:
            return replace(point, exemplars=new)
        if point.count == before.count:
            return None
        counts = [now - then for now, then in zip(point.bucket_counts, before.bucket_counts, strict=True)]
        # The extremes are of all times, and would be wrong for a part: bounds of what is there will do.
        held = [index for index, count in enumerate(counts) if count]
        bounds = [point.min, *point.explicit_bounds, point.max]
        return replace(
            point,
            start_time_unix_nano=since,
            count=point.count - before.count,
            sum=point.sum - before.sum,
            bucket_counts=counts,
            min=max(point.min, bounds[held[0]]),
            max=min(point.max, bounds[held[-1] + 1]),
            exemplars=new,
        )
