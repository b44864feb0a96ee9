"""Specs are read together, and say what each of them would by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.api import translate
from relay.api.specs import Specs
from relay.core import validate
from relay.core.errors import InvalidField
from relay.core.instants import LATEST, SECOND
from relay.core.timers import Change, NewTimer, OnConflict, Scheduled
from relay.v1.timer_pb2 import TimerSpec

LIMIT = 10
SECONDS = st.sampled_from([0, 1, 10**9, LATEST // SECOND, LATEST // SECOND + 1, -1])
TIMES = st.fixed_dictionaries({"seconds": SECONDS, "nanos": st.sampled_from([0, 1, 999_999_999, 10**9, -1])})
TRACED = {"traceparent": "00-11111111111111111111111111111111-2222222222222222-01"}
TRACES = [{}, TRACED]
FINE: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["t", "t", "u"]),
    "timer_id": st.sampled_from(["a", "b", "ö", "x" * 256]),
    "payload": st.sampled_from([b"", b"x" * LIMIT]),
    "content_type": st.sampled_from(["", "text/plain"]),
    "headers": st.sampled_from([{}, {"name": "value"}, {"traceparent": "00-3-4-01"}]),
}
LATER: dict[str, Any] = {"due_time": {"seconds": 10**9, "nanos": 1}}
DELAYED: dict[str, Any] = {"delay": {"seconds": 5}}
TIMED = st.sampled_from(
    [
        LATER,
        DELAYED,
        LATER | {"expire_time": {"seconds": 10**9 + 1}},
        DELAYED | {"expire_after": {"nanos": 1000}},
    ]
)
ODD: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["", "{t}"]),
    "timer_id": st.sampled_from(["{a}", "a\n", "x" * 257, "ö" * 129]),
    "payload": st.just(b"x" * (LIMIT + 1)),
    "content_type": st.sampled_from(["a\n", "x" * 257]),
    "headers": st.sampled_from([{"": "x"}, {"x": "y" * (64 * 1024)}]),
    "delay": TIMES,
    "due_time": TIMES,
    "expire_time": TIMES,
    "expire_after": TIMES,
}


def spec(fine: dict[str, Any], time: dict[str, Any], odd: dict[str, Any]) -> TimerSpec:
    return TimerSpec(**(fine | time | odd))


fine = st.builds(spec, st.fixed_dictionaries(FINE), TIMED, st.just({}))
too_soon = st.just(LATER | {"expire_time": {"seconds": 10**9}})
one_odd = st.one_of(too_soon, *(st.fixed_dictionaries({name: values}) for name, values in ODD.items()))
odd = st.builds(spec, st.fixed_dictionaries(FINE), TIMED | st.just({}), one_odd)


def admit(topic: str) -> int:
    validate.name("topic", topic)
    return LIMIT


def alone(
    each: TimerSpec, trace: dict[str, str], *, said: OnConflict | None
) -> tuple[str, NewTimer] | InvalidField:
    try:
        limit = admit(each.topic)
        return each.topic, translate.new_timer(each, each.timer_id, limit, trace, said=said)
    except InvalidField as failure:
        return failure


def read(specs: list[TimerSpec], trace: dict[str, str] = TRACED, *, said: OnConflict | None = None) -> Specs:
    some = Specs(specs, admit, trace, said=said)
    half = len(specs) // 2
    some.read(slice(0, half))
    some.read(slice(half, len(specs)))
    return some


@pytest.mark.slow
@settings(max_examples=500)
@given(st.lists(fine | odd, max_size=6), st.sampled_from(TRACES), st.sampled_from((None, *OnConflict)))
def test_each_is_what_it_would_be_alone(
    specs: list[TimerSpec], trace: dict[str, str], said: OnConflict | None
) -> None:
    """Whatever stands beside it: the same timer, or the same mistake, in its place."""
    expected = [alone(each, trace, said=said) for each in specs]
    some = read(specs, trace, said=said)
    for topic in ("t", "u"):
        timers = [each[1] for each in expected if isinstance(each, tuple) and each[0] == topic]
        assert list(some.timers.get(topic, [])) == timers
    stored = {
        topic: [Scheduled(n, Change.CREATED) for n in range(len(timers))]
        for topic, timers in some.timers.items()
    }
    outcomes = list(some.outcomes(stored))
    assert len(outcomes) == len(specs)
    counts = dict.fromkeys(stored, 0)
    for (topic, timer_id, result), wanted in zip(outcomes, expected, strict=True):
        if isinstance(wanted, InvalidField):
            assert isinstance(result, InvalidField)
            assert (result.field, str(result)) == (wanted.field, str(wanted))
        else:
            assert (topic, timer_id) == (wanted[0], wanted[1].timer_id)
            assert result == Scheduled(counts[topic], Change.CREATED)
            counts[topic] += 1


def test_those_that_are_right_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with headers, types and expiries of their own; not one of them is looked at by itself."""
    monkeypatch.setattr(translate, "new_timer", None)
    specs = [
        TimerSpec(topic="t", timer_id="a", payload=b"x", delay={"seconds": 1}),
        TimerSpec(topic="t", timer_id="b", due_time={"seconds": 10**9}, headers={"name": "value"}),
        TimerSpec(topic="t", timer_id="c", delay={"seconds": 1}, content_type="text/plain"),
        TimerSpec(topic="t", timer_id="d", delay={"seconds": 1}, expire_after={"seconds": 1}),
    ]
    assert read(specs).timers["t"].timer_ids == ["a", "b", "c", "d"]


def test_who_has_no_name_gets_one() -> None:
    """One of its own, beside those that are right and those that are not."""
    nameless = TimerSpec(topic="t", delay={"seconds": 1})
    bad = TimerSpec(topic="t", timer_id="{", delay={"seconds": 1})
    names = read([nameless, nameless, bad, nameless]).timers["t"].timer_ids
    assert len(set(names)) == 3
    assert {len(name) for name in names} == {32}


def test_a_topic_is_asked_for_once() -> None:
    """However many timers it has, and wherever they stand."""
    asked: list[str] = []

    def asking(topic: str) -> int:
        asked.append(topic)
        return LIMIT

    specs = [TimerSpec(topic=topic, timer_id="a", delay={"seconds": 1}) for topic in "tutuuttt"]
    some = Specs(specs, asking, {}, said=None)
    for start in (0, 4):
        some.read(slice(start, start + 4))
    assert sorted(asked) == ["t", "u"]
