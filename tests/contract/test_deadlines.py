"""schedule and cancel of several callers at once, each of whom waits until another instant."""

from __future__ import annotations

import math
from time import monotonic
from typing import Any

import pytest

from relay.core.errors import GivenUp
from relay.core.instants import SECOND
from relay.core.timers import KEEP_EXISTING, Change, Changed, Condition, Debounce, NewTimer, Scheduled
from tests.contract.subject import Subject
from tests.worlds.scripts.asking import NOW

LATER = NOW + 60 * SECOND
OVER = Scheduled(None, Change.GIVEN_UP)


def over() -> float:
    """The deadline of a caller that has given up a minute ago."""
    return monotonic() - 60.0


def new(timer_id: str, due: int | None = LATER, **options: Any) -> NewTimer:
    return NewTimer(timer_id, b"new", due)._replace(**options)


async def test_a_timer_whose_caller_has_given_up_is_not_stored(subject: Subject) -> None:
    """Neither in a new place nor in that of another; all others are, and get the answers that are theirs."""
    await subject.schedule("old")
    await subject.schedule("replaced")
    timers = [new("late"), new("a", None, delay=5), new("old"), new("replaced"), new("b", None, delay=7)]
    deadlines = [over(), math.inf, over(), monotonic() + 60.0, math.inf]
    assert await subject.store.schedule(subject.topic, timers, deadlines=deadlines) == [
        OVER,
        Scheduled(NOW + 5, Change.CREATED),
        OVER,
        Scheduled(LATER, Change.REPLACED),
        Scheduled(NOW + 7, Change.CREATED),
    ]
    assert (await subject.get("old")).due == NOW
    assert {timer.timer_id for timer in await subject.everything()} == {"old", "replaced", "a", "b"}


async def test_a_late_timer_with_a_delay_takes_nobodys_due_time(subject: Subject) -> None:
    timers = [new("late", None, delay=5), new("a", None, delay=7)]
    told = await subject.store.schedule(subject.topic, timers, deadlines=[over(), math.inf])
    assert told == [OVER, Scheduled(NOW + 7, Change.CREATED)]


@pytest.mark.parametrize(
    "options",
    [{"intent": KEEP_EXISTING}, {"intent": Debounce()}, {"condition": Condition(only_pending=True)}],
    ids=["create", "debounce", "condition"],
)
@pytest.mark.parametrize("there", [False, True])
async def test_a_late_timer_is_not_looked_up(subject: Subject, there: bool, options: dict[str, Any]) -> None:
    """Whatever its caller asked for, the answer is that it came too late."""
    if there:
        await subject.schedule("late")
    late = (
        new("late", None, delay=5, **options)
        if options.get("intent") == Debounce()
        else new("late", **options)
    )
    timers = [late, new("a")]
    told = await subject.store.schedule(subject.topic, timers, deadlines=[over(), math.inf])
    assert told == [OVER, Scheduled(LATER, Change.CREATED)]


async def test_a_late_timer_takes_no_room(subject: Subject) -> None:
    told = await subject.store.schedule(
        subject.topic, [new("late"), new("a")], max_waiting=1, deadlines=[over(), math.inf]
    )
    assert told == [OVER, Scheduled(LATER, Change.CREATED)]


async def test_a_late_timer_and_the_same_one_in_time(subject: Subject) -> None:
    """The caller has repeated it, through this relay: both are in one call."""
    timers = [new("a", NOW, intent=KEEP_EXISTING), new("a", intent=KEEP_EXISTING)]
    told = await subject.store.schedule(subject.topic, timers, deadlines=[over(), math.inf])
    assert told == [OVER, Scheduled(LATER, Change.CREATED)]


async def test_a_timer_whose_cancel_was_given_up_stays(subject: Subject) -> None:
    for timer_id in ("a", "b", "c"):
        await subject.schedule(timer_id)
    cancelled = await subject.store.cancel(
        subject.topic,
        ["a", "b", "nowhere", "c", "c"],
        deadlines=[over(), math.inf, over(), over(), math.inf],
    )
    assert [each.change for each in cancelled] == [
        Change.GIVEN_UP,
        Change.CANCELLED,
        Change.GIVEN_UP,
        Change.GIVEN_UP,
        Change.CANCELLED,
    ]
    assert [timer.timer_id for timer in await subject.everything()] == ["a"]


async def test_what_came_too_late_is_not_in_the_journal(subject: Subject) -> None:
    subject.keep(100)
    await subject.schedule("old")
    await subject.journal_since()
    await subject.store.schedule(subject.topic, [new("old"), new("a")], deadlines=[over(), math.inf])
    await subject.store.cancel(subject.topic, ["old", "a"], deadlines=[over(), math.inf])
    assert {record.timer_id for record in await subject.journal_since()} == {"a"}


async def test_a_call_that_all_have_given_up_is_refused_whole(subject: Subject) -> None:
    await subject.schedule("old")
    with pytest.raises(GivenUp):
        await subject.store.schedule(subject.topic, [new("old"), new("a")], deadlines=[over(), over()])
    with pytest.raises(GivenUp):
        await subject.store.cancel(subject.topic, ["old"], deadlines=[over()])
    assert (await subject.get("old")).due == NOW


async def test_nobody_has_given_up(subject: Subject) -> None:
    """What a call carries that is in time changes nothing."""
    soon = [monotonic() + 100.0, monotonic() + 200.0]
    assert (
        await subject.store.schedule(subject.topic, [new("a"), new("b")], deadlines=soon)
        == [Scheduled(LATER, Change.CREATED)] * 2
    )
    assert (
        await subject.store.cancel(subject.topic, ["a", "b"], deadlines=soon)
        == [Changed(Change.CANCELLED)] * 2
    )
