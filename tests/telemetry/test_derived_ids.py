"""Ids that can be derived are the same everywhere, and each is given once."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from opentelemetry.trace import SpanContext, TraceFlags

from relay.core.timers import ClaimedTimer, DeadLetter
from relay.telemetry.traces.derived_ids import before, death, derived
from relay.telemetry.traces.id_generator import MOST_USED, DerivedIds

LONG = 3_600.0
PRODUCER = SpanContext(0xA, 0xB, is_remote=True, trace_flags=TraceFlags(1))
TRACEPARENT = {"traceparent": f"00-{0xA:032x}-{0xB:016x}-01"}


@dataclass(frozen=True)
class Life:
    occurrence_id: str = "a/00"
    due: int = 5_000_000


def test_derived_ids_differ_by_all_that_tells_lives_apart() -> None:
    lives = [
        ("t", Life()),
        ("u", Life()),
        ("t", Life("b/00")),
        ("t", Life(due=6_000_000)),
        ("t", Life("\udcff")),
    ]
    ids = [derived(topic, life, claims) for topic, life in lives for claims in (1, 2)]
    assert len(set(ids)) == len(ids)
    assert derived("t", Life(), 1) == derived("t", Life(), 1)
    assert all(0 < trace < 1 << 128 and 0 < span < 1 << 64 for trace, span in ids)


def test_only_what_is_begun_within_gets_them_and_each_once() -> None:
    ids = DerivedIds()
    with ids.using((7, 9)):
        assert (ids.generate_trace_id(), ids.generate_span_id()) == (7, 9)
        assert ids.generate_span_id() != 9, "a second span of that id"
    assert ids.generate_trace_id() != 7
    with ids.using((8, 9)):
        assert ids.generate_span_id() != 9
    with ids.using((8, 0)):
        assert ids.generate_trace_id() == 8
        assert ids.generate_span_id() != 0
    for number in range(1, MOST_USED + 5):
        with ids.using((1, number)):
            ids.generate_span_id()
    assert len(ids._used) == MOST_USED


def timer(claims: int, *, seen: int | None = None, approximate: bool = False) -> ClaimedTimer:
    headers = TRACEPARENT if seen is None else {**TRACEPARENT, "tracestate": f"relay={seen}"}
    return ClaimedTimer("a", b"", headers, "", 10_000_000_000, 1, "a/00", approximate, claims=claims)


@pytest.mark.parametrize(
    ("claims", "seen", "now", "trace"),
    [
        (1, None, 10_000.0, None),  # nothing came before
        (2, None, 10_000.0, "producer"),
        (2, 9_000, 10_100.0, "producer"),
        (2, 1_000, 10_100.0, "own"),  # old when it was due
        (2, 9_000, 20_000.0, None),  # it has become old since: who knows what it was before
    ],
)
def test_the_trace_of_the_delivery_before(
    claims: int, seen: int | None, now: float, trace: str | None
) -> None:
    found = before("t", timer(claims, seen=seen), PRODUCER, now, LONG)
    if trace is None:
        assert found == []
        return
    own, span = derived("t", timer(claims), claims - 1)
    (link,) = found
    assert link.context.span_id == span
    assert link.context.trace_id == (PRODUCER.trace_id if trace == "producer" else own)


def test_a_guess_is_linked_to_nothing() -> None:
    """A foreign worker had it: the due time that names the delivery before may be another."""
    assert before("t", timer(2, approximate=True), PRODUCER, 10_000.0, LONG) == []


def test_deaths() -> None:
    def letter(claims: int, headers: dict[str, str]) -> DeadLetter:
        return DeadLetter(
            "1-0", "a", "attempts", 2, 5_000_000, 6_000_000, "", "a/00", b"", headers, "", claims
        )

    (link,) = death("t", letter(3, TRACEPARENT), LONG)
    assert (link.context.trace_id, link.context.span_id) == (0xA, derived("t", Life(), 3)[1])
    assert death("t", letter(0, TRACEPARENT), LONG) == [], "it expired, say: no delivery"
    assert death("t", letter(3, {}), LONG) == []
    assert death("t", letter(3, {"traceparent": TRACEPARENT["traceparent"][:-1] + "0"}), LONG) == []
