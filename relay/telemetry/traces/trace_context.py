"""W3C trace context as it travels in a timer's headers: `traceparent` and `tracestate`.

A relay that traces notes in `tracestate`, as `relay=<unix seconds>`, when it first saw a trace. The
entry belongs to the trace: it goes with the delivery to the application, and with the timers that the
application schedules in the same trace. So a delivery knows how long its trace has lasted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from opentelemetry.trace import SpanContext, TraceFlags
from opentelemetry.trace.span import TraceState

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

_NOTE = "relay="
_MAX_MEMBERS = 32
"""The most entries of a `tracestate`, by the standard."""

_FLAG_DIGIT = 54
"""The index in a `traceparent` of the digit whose lowest bit says "sampled"."""

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def flagged(traceparent: str) -> bool:
    """Whether a `traceparent` says "sampled". This is cheap, and right for every one that `parse` takes."""
    return len(traceparent) > _FLAG_DIGIT and traceparent[_FLAG_DIGIT] in "13579bdf"


def parse(headers: Mapping[str, str]) -> SpanContext | None:
    """Return the span that the headers name; None if they name none in valid form."""
    match = _TRACEPARENT.fullmatch(headers.get(TRACEPARENT, ""))
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more):
        return None
    text = headers.get(TRACESTATE)
    context = SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16)),
        trace_state=TraceState.from_header([text]) if text else None,
    )
    return context if context.is_valid else None  # ids of zeros are invalid


def first_seen(headers: Mapping[str, str]) -> int | None:
    """Return when a relay first saw the trace, in unix seconds; None if no relay noted it."""
    text = headers.get(TRACESTATE, "")
    if _NOTE not in text:
        return None
    for member in text.split(","):
        value = member.strip().removeprefix(_NOTE)
        if member.strip().startswith(_NOTE) and value.isascii() and value.isdigit() and len(value) <= 12:
            return int(value)
    return None


def carrier(context: SpanContext, seen: int | None = None) -> dict[str, str]:
    """Return the headers that name a span. `seen` (unix seconds) is noted unless the trace has a note."""
    headers = {TRACEPARENT: f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}
    state = context.trace_state.to_header() if context.trace_state else ""
    if seen is not None and first_seen({TRACESTATE: state}) is None:
        others = [member for member in state.split(",") if member and not member.startswith(_NOTE)]
        state = ",".join([f"{_NOTE}{seen}", *others[: _MAX_MEMBERS - 1]])
    if state:
        headers[TRACESTATE] = state
    return headers


def renamed(headers: Mapping[str, str], named: Mapping[str, str]) -> dict[str, str]:
    """Return `headers` with the span of `named` and no other: a tracestate belongs to its traceparent."""
    result = {**headers, **named}
    if TRACESTATE not in named:
        result.pop(TRACESTATE, None)
    return result
