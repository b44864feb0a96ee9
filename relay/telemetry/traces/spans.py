"""Spans and their attributes, by OpenTelemetry's messaging conventions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

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
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from relay.core.endpoints.secrets import mask
from relay.core.errors import ServiceError
from relay.core.outcomes import Verb, Verdict
from relay.core.timers import ClaimedTimer
from relay.telemetry.traces.derived_ids import Ids, Namer, derived
from relay.telemetry.traces.trace_context import carrier, renamed

SCHEMA_URL = "https://opentelemetry.io/schemas/1.43.0"
"""The version of the conventions that the names follow."""

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
VERDICT = "relay.verdict"

NOWHERE = Context()
"""A context without a parent, whatever is current in the process."""


class DeliveryTrace:
    """The span of one delivery. It begins when the delivery is sent."""

    __slots__ = (
        "_attributes",
        "_ids",
        "_note",
        "_tracer",
        "context",
        "links",
        "own",
        "parted",
        "producer",
        "reason",
        "span",
        "topic",
    )

    def __init__(
        self,
        tracer: Tracer,
        topic: str,
        timer: ClaimedTimer,
        producer: SpanContext,
        ids: Namer | None,
    ) -> None:
        self._tracer = tracer
        self._ids = ids
        self._attributes: dict[str, AttributeValue] = {
            **attributes("deliver", "process", topic),
            TIMER_ID: timer.timer_id,
            ATTEMPT: timer.attempt,
            OCCURRENCE: timer.occurrence_id,
        }
        self.topic = topic
        self.producer = producer
        """The span that the timer's headers name."""
        self.context = child_of(producer)
        """The parent of the span, if there is one."""
        self.links: list[Link] = []
        """A link to the previous delivery."""
        self.parted = False
        """Whether the span has left the producer's trace, and links to it."""
        self.own: Ids | None = None if ids is None else derived(topic, timer, timer.claims)
        """The ids of the span, and of its trace if it begins one."""
        self.reason = ""
        """The reason that the application gave with its outcome."""
        self.span: Span | None = None
        self._note: Callable[[str, float, SpanContext], None] | None = None

    @property
    def span_context(self) -> SpanContext | None:
        """The span while it is recorded."""
        return None if self.span is None else self.span.get_span_context()

    @property
    def ids(self) -> dict[str, str]:
        """Return `trace_id` and `span_id` in hex, as logs have them; empty if nothing is recorded."""
        context = self.span_context
        if context is None:
            return {}
        return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}

    def first(self, note: Callable[[str, float, SpanContext], None]) -> None:
        """Note that this is a first delivery. Once there is a span, `note` is called with it and its
        lateness."""
        self._note = note

    def part(self, claim: SpanContext | None = None) -> None:
        """Leave the producer's trace for a new trace, or for that of `claim`, with a link back."""
        self.context = NOWHERE if claim is None else child_of(claim)
        self.parted = True

    def named(self) -> AbstractContextManager[None]:
        """Give the ids that others derive to the span that begins within the block."""
        if self._ids is None or self.own is None:
            return nullcontext()
        return self._ids.using(self.own)

    def start(self, headers: Mapping[str, str], late: float) -> Mapping[str, str]:
        """Begin the span: the delivery goes out `late` seconds after its due time. Returns the timer's
        headers, which name this span from now on."""
        late = max(late, 0.0)
        if self._note is not None:
            self._attributes[LATENESS] = round(late, 6)
        links = [Link(self.producer), *self.links] if self.parted else self.links
        with self.named():
            span = self._tracer.start_span(
                f"deliver {self.topic}", self.context, SpanKind.CONSUMER, self._attributes, links
            )
        if not span.is_recording():
            return headers
        self.span = span
        if self._note is not None:
            self._note(self.topic, late, span.get_span_context())
        return renamed(headers, carrier(span.get_span_context()))

    def end(self, error: str = "", verb: Verb | None = None, verdict: Verdict = Verdict.OK) -> None:
        """End the span. `error` is a word that says what went wrong.

        An outcome that changed nothing is not an error: a newer intent stands, perhaps the handler's own.
        """
        if self.span is None:
            return
        if verb is not None:
            self.span.set_attribute(OUTCOME, verb.value)
        if verdict is not Verdict.OK:  # see 0022
            self.span.set_attribute(VERDICT, verdict.value.lower())
        if error:
            fail(self.span, error, self.reason)
        self.span.end()
        self.span = None


class Scheduling:
    """The spans of one call that stores timers, by topic and place. They end with the block."""

    __slots__ = ("_spans",)

    def __init__(self, spans: Mapping[tuple[str, int], Span]) -> None:
        self._spans = spans

    def context(self, topic: str, place: int) -> SpanContext | None:
        """Return the span of the topic's timer at this place, if it has one."""
        span = self._spans.get((topic, place))
        return None if span is None else span.get_span_context()

    def refused(self, topic: str, place: int, failure: ServiceError) -> None:
        """Note that the timer was not stored."""
        if (span := self._spans.get((topic, place))) is not None:
            fail(span, type(failure).__name__, str(failure))

    def __enter__(self) -> None:
        """Do nothing: the spans are open."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for span in {id(span): span for span in self._spans.values()}.values():
            if error is not None:
                fail(span, type(error).__name__, str(error))
            span.end()


def attributes(operation: str, kind: str, topic: str) -> dict[str, AttributeValue]:
    return {SYSTEM: "relay", OPERATION: operation, OPERATION_TYPE: kind, TOPIC: topic}


def child_of(context: SpanContext) -> Context:
    return set_span_in_context(NonRecordingSpan(context), NOWHERE)


def fail(span: Span, error: str, words: str = "") -> None:
    span.set_attribute(ERROR, error)
    span.set_status(Status(StatusCode.ERROR, mask(words) or None))
