"""The ids of spans: random, except those that others must derive. Only a relay that traces imports this."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from relay.telemetry.traces.derived_ids import Ids

MOST_USED = 10_000
"""The number of span ids that are remembered, so that none is given twice: a call that could not even begin,
for instance to a pushed application that is away, is not counted as sent."""


class DerivedIds(RandomIdGenerator):
    """Generates random ids, except for a span that begins within `using`."""

    def __init__(self) -> None:
        self._next: Ids | None = None
        self._used: OrderedDict[int, None] = OrderedDict()

    @contextmanager
    def using(self, ids: Ids) -> Iterator[None]:
        """Give these ids to a span that begins within the block; the trace id is for a root."""
        self._next = ids
        try:
            yield
        finally:
            self._next = None

    def generate_span_id(self) -> int:
        """See `IdGenerator`."""
        span_id = 0 if self._next is None else self._next[1]
        if span_id == 0 or span_id in self._used:
            return super().generate_span_id()
        self._used[span_id] = None
        if len(self._used) > MOST_USED:
            self._used.popitem(last=False)
        return span_id

    def generate_trace_id(self) -> int:
        """See `IdGenerator`."""
        return (0 if self._next is None else self._next[0]) or super().generate_trace_id()
