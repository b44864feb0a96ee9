"""What a script says to a call whose caller has given it up: nothing happens. In a call that several callers
share, nothing happens to their timers alone."""

from __future__ import annotations

import math
import time

import pytest
from redis.exceptions import ResponseError

from relay.core.instants import SECOND
from relay.core.timers import Change, NewTimer
from relay.store.keys import KeyNames
from relay.store.server.scripts import Scripts
from relay.store.verbs import timeline
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, alone, score


async def test_a_late_call_is_refused(bench: Bench) -> None:
    """The clock of Redis shows that nobody waits for it any more."""
    scripts = Scripts(KeyNames(), bench.texts)
    call = scripts.prepare(timeline.schedule(bench.topic, 0, ["a", "5", b""]), lambda _: 0)
    with pytest.raises(ResponseError, match="GIVENUP"):
        bench.raw.execute_command(*call.command((int(time.time()) - 60) * SECOND, known=False))
    assert bench.state() == EMPTY


async def test_a_call_of_a_later_clock_is_refused(bench: Bench) -> None:
    """It may act for longer than any relay lets one: the clock has stepped back since it was sent."""
    scripts = Scripts(KeyNames(), bench.texts)
    call = scripts.prepare(timeline.schedule(bench.topic, 0, ["a", "5", b""]), lambda _: 0)
    with pytest.raises(ResponseError, match="GIVENUP"):
        bench.raw.execute_command(*call.command((int(time.time()) + 360) * SECOND, known=False))
    assert bench.state() == EMPTY
    bench.raw.execute_command(*call.command((int(time.time()) + 240) * SECOND, known=False))
    assert bench.state().timeline == {"a": 5.0}


def over() -> float:
    """The deadline of a caller that has given up a minute ago."""
    return time.monotonic() - 60.0


async def test_a_late_timer_is_not_stored(bench: Bench) -> None:
    """It leaves no trace, wherever it stands among others."""
    timers = [NewTimer(name, b"payload", NOW) for name in ("late", "a", "later")]
    told = await bench.store.schedule(bench.topic, timers, deadlines=[over(), math.inf, over()])
    assert [each.change for each in told] == [Change.GIVEN_UP, Change.CREATED, Change.GIVEN_UP]
    assert bench.state() == alone("a", score(NOW))


async def test_a_late_timer_is_not_cancelled(bench: Bench) -> None:
    bench.put("late", score(NOW))
    bench.put("a", score(NOW))
    told = await bench.store.cancel(bench.topic, ["late", "a"], deadlines=[over(), math.inf])
    assert [each.change for each in told] == [Change.GIVEN_UP, Change.CANCELLED]
    assert bench.state() == alone("late", score(NOW))
