"""Traces: the work of a relay on a timer, as spans by OpenTelemetry's messaging conventions.

    schedule {topic}   PRODUCER  a call that stores timers; its context goes into their headers
    claim {topic}      CLIENT    a claim call, if it brought a timer that is traced
    deliver {topic}    CONSUMER  one delivery, from its hand-out to its settlement
    commit {topic}     CLIENT    a settle call, if it wrote the end of such a delivery

A trace begins with the producer. A delivery follows the context in its timer's headers, and has
no span if there is none, or if it is not sampled. Its span is a child of that context's. If
the trace has lasted for more than `LONG`, it begins a new trace with a link instead. So no span is ever
open while a timer waits, and no trace lasts for months.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Tracer, TracerProvider

from relay import __version__
from relay.core.errors import ServiceError
from relay.core.outcomes import Ending, Settled, Verb, Verdict
from relay.core.timers import Claim, ClaimedTimer, DeadLetter, NewTimers
from relay.telemetry.traces.derived_ids import Namer, before, death
from relay.telemetry.traces.spans import (
    COUNT,
    NOWHERE,
    SCHEMA_URL,
    TIMER_ID,
    DeliveryTrace,
    Scheduling,
    attributes,
    child_of,
    fail,
)
from relay.telemetry.traces.trace_context import TRACEPARENT, carrier, first_seen, flagged, parse, renamed

LONG = 3_600.0
"""The age of a trace in seconds from which on a delivery begins a trace of its own."""

NAMES = {verb: "commit" if verb is Verb.ACK else verb.value for verb in Verb}
"""The attributes of the settle calls that write one kind of end."""

UNTRACED = Scheduling({})


@dataclass(slots=True)
class _Begun:
    """A schedule span, the headers that name it, and the places of the timers that it serves."""

    span: Span
    named: dict[str, str]
    places: list[int] = field(default_factory=list)


class Tracing:  # see 0021
    """Makes all spans of one relay. Without a provider it does nothing.

    `by_flag` says whether the producer's sampled flag decides alone, as it does with every parent-based
    sampler; a timer without the flag then costs a look at one character. Otherwise the sampler is asked.
    `ids` are the provider's, by which deliveries can be named later; without them there are no links to
    deliveries.
    """

    def __init__(
        self,
        provider: TracerProvider | None = None,
        *,
        by_flag: bool = True,
        ids: Namer | None = None,
        long: float = LONG,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.late: Callable[[str, float, SpanContext], None] = lambda *_: None
        """Called for the span of each first delivery with its topic and its lateness in seconds."""
        self._tracer = (
            None if provider is None else provider.get_tracer("relay", __version__, schema_url=SCHEMA_URL)
        )
        self._by_flag = by_flag
        self._ids = ids
        self._long = long
        self._now = now

    # Schedule

    def schedule(
        self, timers: Mapping[str, NewTimers], *, batch: bool = False
    ) -> tuple[Mapping[str, NewTimers], Scheduling]:
        """Begin the spans of a call, whose timers are given by topic: one span for each topic and caller's
        context. Returns the timers to be stored, whose headers name their span. A context that is malformed
        or not sampled stays."""
        if self._tracer is None:
            return timers, UNTRACED
        spans: dict[tuple[str, int], Span] = {}
        named: dict[str, NewTimers] = {}
        for topic, some in timers.items():
            headers, begun = self._begin_all(self._tracer, topic, some.headers)
            named[topic] = replace(some, headers=headers) if begun else some
            for each in begun:
                if batch:
                    each.span.set_attribute(COUNT, len(each.places))
                else:
                    each.span.set_attribute(TIMER_ID, some.timer_ids[each.places[0]])
                spans.update(((topic, place), each.span) for place in each.places)
        return (named, Scheduling(spans)) if spans else (timers, UNTRACED)

    def _begin_all(
        self, tracer: Tracer, topic: str, headers: Sequence[Mapping[str, str]]
    ) -> tuple[list[Mapping[str, str]], list[_Begun]]:
        """Return the timers' headers, which name the spans of traced timers, and these spans."""
        renewed = list(headers)
        begun: dict[str, _Begun | None] = {}
        for place, each in enumerate(headers):
            parent = each.get(TRACEPARENT, "")
            if parent and self._by_flag and not flagged(parent):
                continue
            if parent not in begun:
                begun[parent] = self._begin(tracer, topic, each)
            if (group := begun[parent]) is not None:
                group.places.append(place)
                renewed[place] = renamed(each, group.named)
        return renewed, [group for group in begun.values() if group is not None]

    def _begin(self, tracer: Tracer, topic: str, headers: Mapping[str, str]) -> _Begun | None:
        context = NOWHERE
        if TRACEPARENT in headers:
            producer = parse(headers)
            if producer is None:
                return None
            context = child_of(producer)
        written = attributes("schedule", "send", topic)
        span = tracer.start_span(f"schedule {topic}", context, SpanKind.PRODUCER, written)
        if not span.is_recording():
            return None
        return _Begun(span, carrier(span.get_span_context(), int(self._now())))

    # Claim and deliver

    def claimed(self, topic: str, claim: Claim, began: int) -> dict[int, DeliveryTrace]:
        """Record a claim call that began at `began` (`time.time_ns`) and brought these timers. Returns the
        spans of traced timers, which begin later, by their places among the claim's timers."""
        tracer = self._tracer
        if tracer is None:
            return {}
        # This is inlined, since most timers end here: one more call would be most of what tracing costs them.
        headers = claim.timers.headers
        named = [place for place, each in enumerate(headers) if TRACEPARENT in each]
        if self._by_flag:
            named = [place for place in named if flagged(headers[place][TRACEPARENT])]
        traced = {
            place: trace
            for place in named
            if (trace := self._follow(tracer, topic, claim.timers[place], claim.now / 1e6)) is not None
        }
        if not traced:
            return {}
        traces = list(traced.values())
        first = traces[0]
        producers = {(trace.producer.trace_id, trace.producer.span_id): trace.producer for trace in traces}
        # A claim that serves a single producer is in that trace; one that serves many can only link.
        inside = len(producers) == 1 and not first.parted
        alone = len(traces) == 1 and first.parted
        with self._in_trace_of(first) if alone else nullcontext():
            span = tracer.start_span(
                f"claim {topic}",
                first.context if inside else NOWHERE,
                SpanKind.CLIENT,
                {**attributes("claim", "receive", topic), COUNT: len(claim.timers)},
                [] if inside else [Link(producer) for producer in producers.values()],
                start_time=began,
            )
        if alone and span.is_recording():
            first.part(span.get_span_context())
        span.end()
        return traced

    def _follow(self, tracer: Tracer, topic: str, timer: ClaimedTimer, now: float) -> DeliveryTrace | None:
        producer = parse(timer.headers)
        if producer is None:
            return None
        trace = DeliveryTrace(tracer, topic, timer, producer, self._ids)
        seen = first_seen(timer.headers)
        if seen is not None and now - seen > self._long:
            trace.part()
        if self._ids is not None:
            trace.links = before(topic, timer, producer, now, self._long)
        if timer.attempt == 1 and not timer.approximate:
            trace.first(self.late)
        return trace

    def _in_trace_of(self, trace: DeliveryTrace) -> AbstractContextManager[None]:
        """Make the span that begins within the block the root of the trace that the delivery would begin."""
        if self._ids is None or trace.own is None:
            return nullcontext()
        return self._ids.using((trace.own[0], 0))

    # Redrive

    @property
    def follows_deaths(self) -> bool:
        """Whether `redrive` needs the timers that are brought back."""
        return self._ids is not None

    @contextmanager
    def redrive(self, topic: str, letters: Sequence[DeadLetter]) -> Iterator[None]:
        """Make the span of a call that redrives these timers, with links to the deliveries after which they
        died."""
        links = [link for letter in letters for link in death(topic, letter, self._long)]
        if self._tracer is None or not links:
            yield
            return
        written = {**attributes("redrive", "send", topic), COUNT: len(letters)}
        span = self._tracer.start_span(f"redrive {topic}", NOWHERE, SpanKind.PRODUCER, written, links)
        try:
            yield
        except ServiceError as failure:
            fail(span, type(failure).__name__, str(failure))
            raise
        finally:
            span.end()

    # Settle

    def settled(
        self,
        topic: str,
        began: int,
        ends: Sequence[tuple[DeliveryTrace, Ending, Settled]],
        *,
        count: int,
        error: str = "",
    ) -> None:
        """Record a settle call of `count` timers that began at `began`, and wrote these ends or
        failed."""
        ends = [end for end in ends if end[0].span is not None]
        if self._tracer is None or not ends:
            return
        verbs = {ending.verb for _, ending, _ in ends}
        name = NAMES[verbs.pop()] if len(verbs) == 1 else "settle"
        spans = [trace.span.get_span_context() for trace, _, _ in ends if trace.span is not None]
        alone = len(spans) == 1
        span = self._tracer.start_span(
            f"{name} {topic}",
            child_of(spans[0]) if alone else NOWHERE,
            SpanKind.CLIENT,
            {**attributes(name, "settle", topic), COUNT: count},
            [] if alone else [Link(context) for context in spans],
            start_time=began,
        )
        if error:
            fail(span, error)
        span.end()
        for trace, ending, result in ends:
            verdict = result if isinstance(result, Verdict) else Verdict.OK
            trace.end(error or _problem(ending), ending.verb, verdict)


def _problem(ending: Ending) -> str:
    """Return a word for what went wrong with an end; empty if nothing did."""
    match ending.verb:
        case Verb.ACK | Verb.RESCHEDULE:
            return ""
        case Verb.RELEASE:
            return "broken" if ending.broken or ending.suspect else "released"
        case Verb.NACK:
            return "nack"
        case Verb.REJECT:
            return "reject"
