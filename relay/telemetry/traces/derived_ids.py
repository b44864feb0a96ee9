"""Which delivery came before: its span is known without being kept anywhere.

The ids of a delivery's span are derived from what the timer carries through its life: its occurrence, its
due time, and how often it has been sent. So the relay that delivers it again, or brings it back from the
dead, can name the span of the time before, whichever relay that was.
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
"""The attribute of a link that says what it leads to."""

BEFORE: dict[str, AttributeValue] = {RELATION: "delivery_before"}
DEATH: dict[str, AttributeValue] = {RELATION: "death"}

Ids = tuple[int, int]
"""Of a trace and of a span."""


class Namer(Protocol):  # see 0033
    """Gives spans their ids."""

    def using(self, ids: Ids) -> AbstractContextManager[None]:
        """A span that is begun within gets these; its trace, if it is a root. 0: a random one."""
        ...


class Life(Protocol):
    """What tells a life of a timer from others."""

    @property
    def occurrence_id(self) -> str:
        """The same from its first claim to its end, and after a redrive."""
        ...

    @property
    def due(self) -> int:
        """The same from its first claim to its end; another after a redrive."""
        ...


def derived(topic: str, life: Life, claims: int) -> Ids:
    """The ids of a life's delivery that was sent as the `claims`-th; the trace's are for one that leaves
    its producer's trace."""
    text = f"{topic}\0{life.occurrence_id}\0{life.due}\0{claims}"
    digest = blake2b(text.encode(errors="surrogateescape"), digest_size=24).digest()
    return int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:], "big")


def before(topic: str, timer: ClaimedTimer, producer: SpanContext, now: float, long: float) -> list[Link]:
    """A link to the delivery before this one, if there was one; `now` in unix seconds, `long` as of
    `Tracing`. None where it can't be told for sure."""
    if timer.claims < 2 or timer.approximate:
        return []
    return _link(topic, timer, timer.claims - 1, producer, first_seen(timer.headers), now, long, BEFORE)


def death(topic: str, letter: DeadLetter, long: float) -> list[Link]:
    """A link to the delivery of which a timer died, if it is traced and had one."""
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
    """To a delivery that began between the due time and `latest` (unix seconds)."""
    trace_id, span_id = derived(topic, life, claims)
    if seen is None or latest - seen <= long:
        trace_id = producer.trace_id  # it stayed in its producer's trace
    elif life.due / 1e6 - seen <= long:
        return []  # it may have stayed, and may have left
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return [Link(context, attributes)]
