"""Traces: what a relay does with a timer, as spans by OpenTelemetry's messaging conventions.

    schedule {topic}   PRODUCER  a call that stores timers; its context goes into their headers
    claim {topic}      CLIENT    a claim call, if it brought a timer that is traced
    deliver {topic}    CONSUMER  one delivery, from its hand-out to its settlement
    commit {topic}     CLIENT    a settle call, if it wrote the end of such a delivery

A trace begins with whoever schedules. A delivery follows the context in its timer's headers, and has
no span if there is none, or one that is not sampled. Its span is a child of that context's, or, where
the trace has lasted for more than `LONG`, the beginning of a new trace with a link: so no span is ever
open while a timer waits, and no trace lasts for months.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from relay import __version__
from relay.core.errors import RelayError
from relay.core.outcomes import Settlement, Verb, Verdict
from relay.core.secrets import mask
from relay.core.timers import Claim, ClaimedTimer, NewTimer
from relay.telemetry.context import TRACEPARENT, carrier, first_seen, flagged, parse, renamed

LONG = 3_600.0
"""Seconds after a trace was first seen from which on a delivery begins a trace of its own."""

SCHEMA_URL = "https://opentelemetry.io/schemas/1.43.0"
"""The version of the conventions by which names are given."""

SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
TOPIC = "messaging.destination.name"
TIMER_ID = "messaging.message.id"
COUNT = "messaging.batch.message_count"
ERROR = "error.type"
ATTEMPT = "relay.attempt"
OCCURRENCE = "relay.occurrence_id"
LATENESS = "relay.lateness"
OUTCOME = "relay.outcome"

NOWHERE = Context()
"""No parent: what happens to be current in the process is not."""

NAMES = {Verb.ACK: "commit", Verb.NACK: "nack", Verb.REJECT: "reject", Verb.RELEASE: "release"}
"""Of the settle calls that write one kind of end."""


class Traced(Protocol):
    """What the engine holds of a delivery: a lease."""

    timer: ClaimedTimer
    trace: DeliveryTrace | None


class DeliveryTrace:
    """The span of one delivery, which begins when the delivery is sent."""

    __slots__ = ("_attributes", "_tracer", "context", "links", "producer", "reason", "span", "topic")

    def __init__(self, tracer: Tracer, topic: str, timer: ClaimedTimer, producer: SpanContext) -> None:
        self._tracer = tracer
        self._attributes: dict[str, AttributeValue] = {
            **_attributes("deliver", "process", topic),
            TIMER_ID: timer.timer_id,
            ATTEMPT: timer.attempt,
            OCCURRENCE: timer.occurrence_id,
        }
        self.topic = topic
        self.producer = Link(producer, {TIMER_ID: timer.timer_id})
        """To the span that the timer's headers name."""
        self.context = _child_of(producer)
        """The parent, if there is one."""
        self.links: list[Link] = []
        """Of a delivery that has left the producer's trace."""
        self.reason = ""
        """The application's words for its outcome."""
        self.span: Span | None = None

    def late(self, seconds: float) -> None:
        """It is a first delivery, late by so much."""
        self._attributes[LATENESS] = round(seconds, 6)

    def part(self, claim: SpanContext | None = None) -> None:
        """Leave the producer's trace for a new one, or for that of `claim`, with a link back."""
        self.context = NOWHERE if claim is None else _child_of(claim)
        self.links = [self.producer]

    def start(self, timer: ClaimedTimer) -> None:
        """The delivery goes out: from now on the timer's headers name this span."""
        span = self._tracer.start_span(
            f"deliver {self.topic}", self.context, SpanKind.CONSUMER, self._attributes, self.links
        )
        if span.is_recording():
            self.span = span
            timer.headers = renamed(timer.headers, carrier(span.get_span_context()))

    def end(self, error: str = "", outcome: str = "") -> None:
        """The delivery is over; `error` says, in a word, what went wrong."""
        if self.span is None:
            return
        if outcome:
            self.span.set_attribute(OUTCOME, outcome)
        if error:
            _fail(self.span, error, self.reason)
        self.span.end()
        self.span = None


class Scheduling:
    """The spans of one call that stores timers; they end with the block."""

    __slots__ = ("_spans",)

    def __init__(self, spans: Mapping[int, Span]) -> None:
        self._spans = spans

    def refused(self, index: int, failure: RelayError) -> None:
        """The timer at `index` was not stored."""
        if index in self._spans:
            _fail(self._spans[index], type(failure).__name__, str(failure))

    def __enter__(self) -> None:
        """Nothing happens: the spans are open."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for span in {id(span): span for span in self._spans.values()}.values():
            if error is not None:
                _fail(span, type(error).__name__, str(error))
            span.end()


UNTRACED = Scheduling({})


class Tracing:
    """Makes all spans of one relay. Without a provider it does nothing.

    `by_flag`: whether the producer's sampled flag decides alone, as it does with every parent-based
    sampler; a timer without the flag then costs a look at one character. Else the sampler is asked.
    """

    def __init__(
        self,
        provider: TracerProvider | None = None,
        *,
        by_flag: bool = True,
        long: float = LONG,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._tracer = (
            None if provider is None else provider.get_tracer("relay", __version__, schema_url=SCHEMA_URL)
        )
        self._by_flag = by_flag
        self._long = long
        self._now = now

    # Schedule

    def schedule(
        self, timers: Sequence[tuple[str, NewTimer]], *, batch: bool = False
    ) -> tuple[Sequence[tuple[str, NewTimer]], Scheduling]:
        """Begin the spans of a call: one for each topic and caller's context. Answers the timers to be
        stored, whose headers name their span. A context that is malformed or not sampled stays."""
        if self._tracer is None:
            return timers, UNTRACED
        open_: dict[tuple[str, str], tuple[Span, dict[str, str]] | None] = {}
        counts: dict[tuple[str, str], int] = {}
        spans: dict[int, Span] = {}
        traced: list[tuple[str, NewTimer]] = []
        for index, (topic, timer) in enumerate(timers):
            parent = timer.headers.get(TRACEPARENT, "")
            if not parent or not self._by_flag or flagged(parent):
                key = topic, parent
                if key not in open_:
                    open_[key] = self._scheduled(self._tracer, topic, timer, batch=batch)
                begun = open_[key]
                if begun is not None:
                    spans[index] = begun[0]
                    counts[key] = counts.get(key, 0) + 1
                    timer = _naming(timer, begun[1])  # noqa: PLW2901
            traced.append((topic, timer))
        if not spans:
            return timers, UNTRACED
        if batch:
            for key, count in counts.items():
                if (begun := open_[key]) is not None:
                    begun[0].set_attribute(COUNT, count)
        return traced, Scheduling(spans)

    def _scheduled(
        self, tracer: Tracer, topic: str, timer: NewTimer, *, batch: bool
    ) -> tuple[Span, dict[str, str]] | None:
        context = NOWHERE
        if TRACEPARENT in timer.headers:
            producer = parse(timer.headers)
            if producer is None:
                return None
            context = _child_of(producer)
        attributes = _attributes("schedule", "send", topic)
        if not batch:
            attributes[TIMER_ID] = timer.timer_id
        span = tracer.start_span(f"schedule {topic}", context, SpanKind.PRODUCER, attributes)
        if not span.is_recording():
            return None
        return span, carrier(span.get_span_context(), int(self._now()))

    # Claim and deliver

    def claimed(self, topic: str, claim: Claim, leases: Sequence[Traced], began: int) -> None:
        """A claim call that began at `began` (`time.time_ns`) brought these; their spans begin later."""
        tracer = self._tracer
        if tracer is None:
            return
        traces = [
            trace for lease in leases if (trace := self._follow(tracer, topic, claim, lease)) is not None
        ]
        if not traces:
            return
        first = traces[0]
        # One that serves a single timer is in that timer's trace; one that serves many can only link.
        inside = len(traces) == 1 and not first.links
        span = tracer.start_span(
            f"claim {topic}",
            first.context if inside else NOWHERE,
            SpanKind.CLIENT,
            {**_attributes("claim", "receive", topic), COUNT: len(claim.timers)},
            [] if inside else [trace.producer for trace in traces],
            start_time=began,
        )
        if len(traces) == 1 and first.links and span.is_recording():
            first.part(span.get_span_context())
        span.end()

    def _follow(self, tracer: Tracer, topic: str, claim: Claim, lease: Traced) -> DeliveryTrace | None:
        timer = lease.timer
        if not timer.headers:
            return None
        parent = timer.headers.get(TRACEPARENT)
        if parent is None or (self._by_flag and not flagged(parent)):
            return None
        producer = parse(timer.headers)
        if producer is None:
            return None
        trace = lease.trace = DeliveryTrace(tracer, topic, timer, producer)
        seen = first_seen(timer.headers)
        if seen is not None and claim.now / 1e6 - seen > self._long:
            trace.part()
        if timer.attempt == 1 and not timer.approximate:
            trace.late(max(claim.now - timer.due, 0) / 1e6)
        return trace

    # Settle

    def settled(
        self,
        topic: str,
        began: int,
        ends: Sequence[tuple[DeliveryTrace, Settlement, Verdict]],
        *,
        count: int,
        error: str = "",
    ) -> None:
        """A settle call of `count` settlements that began at `began` wrote these ends, or failed."""
        ends = [end for end in ends if end[0].span is not None]
        if self._tracer is None or not ends:
            return
        verbs = {settlement.verb for _, settlement, _ in ends}
        name = NAMES[verbs.pop()] if len(verbs) == 1 else "settle"
        spans = [trace.span.get_span_context() for trace, _, _ in ends if trace.span is not None]
        alone = len(spans) == 1
        span = self._tracer.start_span(
            f"{name} {topic}",
            _child_of(spans[0]) if alone else NOWHERE,
            SpanKind.CLIENT,
            {**_attributes(name, "settle", topic), COUNT: count},
            [] if alone else [Link(context) for context in spans],
            start_time=began,
        )
        if error:
            _fail(span, error)
        span.end()
        for trace, settlement, verdict in ends:
            trace.end(error or _problem(settlement, verdict), settlement.verb.value)


def _problem(settlement: Settlement, verdict: Verdict) -> str:
    """In a word what an end says went wrong; empty if nothing did."""
    problem = settlement.verb.value
    if verdict is not Verdict.OK:
        problem = verdict.value.lower()
    elif settlement.verb is Verb.ACK:
        problem = ""
    elif settlement.verb is Verb.RELEASE:
        problem = "broken" if settlement.suspect else "released"
    return str(problem)


def _naming(timer: NewTimer, named: Mapping[str, str]) -> NewTimer:
    headers = renamed(timer.headers, named)
    return NewTimer(timer.timer_id, timer.payload, timer.due, timer.delay, headers, timer.content_type)


def _attributes(operation: str, kind: str, topic: str) -> dict[str, AttributeValue]:
    return {SYSTEM: "relay", OPERATION: operation, OPERATION_TYPE: kind, TOPIC: topic}


def _child_of(context: SpanContext) -> Context:
    return set_span_in_context(NonRecordingSpan(context), NOWHERE)


def _fail(span: Span, error: str, words: str = "") -> None:
    span.set_attribute(ERROR, error)
    span.set_status(Status(StatusCode.ERROR, mask(words) or None))
