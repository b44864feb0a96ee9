"""Names the span of the delivery before, which is not kept anywhere.

The ids of a delivery's span are derived from what the timer carries through its life: its occurrence, its
due time, and the number of times it was sent. So a relay that delivers it again, or redrives it, can name
the span of the previous delivery, whichever relay made that.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Protocol

from opentelemetry.trace import Link, SpanContext, TraceFlags
from opentelemetry.util.types import AttributeValue

from relay.core.timers import ClaimedTimer, DeadLetter
from relay.telemetry.traces.trace_context import first_seen, parse

RELATION = "relay.link"
"""The attribute of a link that says where it leads."""

BEFORE: dict[str, AttributeValue] = {RELATION: "delivery_before"}
DEATH: dict[str, AttributeValue] = {RELATION: "death"}

Ids = tuple[int, int]
"""The ids of a trace and of a span."""


class Namer(Protocol):  # see 0033
    """Gives ids to spans."""

    def using(self, ids: Ids) -> AbstractContextManager[None]:
        """Give these ids to a span that begins within the block; the trace id is for a root. 0 means a random
        id."""
        ...


class Life(Protocol):
    """What distinguishes one life of a timer from others."""

    @property
    def occurrence_id(self) -> str:
        """It stays the same from the first claim to the end, and after a redrive."""
        ...

    @property
    def due(self) -> int:
        """It stays the same from the first claim to the end, and changes with a redrive."""
        ...


def derived(topic: str, life: Life, claims: int) -> Ids:
    """Return the ids of a life's delivery number `claims`. The trace id is for a delivery that leaves its
    producer's trace."""
    text = f"{topic}\0{life.occurrence_id}\0{life.due}\0{claims}"
    digest = blake2b(text.encode(errors="surrogateescape"), digest_size=24).digest()
    return int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:], "big")


def before(topic: str, timer: ClaimedTimer, producer: SpanContext, now: float, long: float) -> list[Link]:
    """Return a link to the previous delivery, if there was one and its span is certain. `now` is in unix
    seconds, `long` as in `Tracing`."""
    if timer.claims < 2 or timer.approximate:
        return []
    return _link(topic, timer, timer.claims - 1, producer, first_seen(timer.headers), now, long, BEFORE)


def death(topic: str, letter: DeadLetter, long: float) -> list[Link]:
    """Return a link to the delivery after which a timer died, if it is traced and had one."""
    producer = parse(letter.headers)
    if producer is None or not producer.trace_flags.sampled or letter.claims == 0:
        return []
    seen = first_seen(letter.headers)
    return _link(topic, letter, letter.claims, producer, seen, letter.died / 1e6, long, DEATH)


def _link(
    topic: str,
    life: Life,
    claims: int,
    producer: SpanContext,
    seen: int | None,
    latest: float,
    long: float,
    attributes: dict[str, AttributeValue],
) -> list[Link]:
    """Return a link to a delivery that began between the due time and `latest` (unix seconds)."""
    trace_id, span_id = derived(topic, life, claims)
    if seen is None or latest - seen <= long:
        trace_id = producer.trace_id  # it stayed in its producer's trace
    elif life.due / 1e6 - seen <= long:
        return []  # it may have stayed in that trace, or left it
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return [Link(context, attributes)]
