"""A daemon's loop wakes when it was asked to, and knows for how long it stood still."""

from __future__ import annotations

import asyncio
import selectors
import socket
import time
from collections.abc import Iterator

import pytest

from relay import app
from relay.engine import event_loop
from relay.settings import Settings

pytestmark = pytest.mark.skipif(
    not hasattr(selectors, "EpollSelector"), reason="without epoll, asyncio's own loop is as punctual"
)


def test_a_wait_of_a_tenth_of_a_millisecond_is_no_millisecond() -> None:
    """Some wait is shorter, however busy the machine may be. `epoll_wait` never takes less than one."""
    with event_loop.PunctualSelector() as selector:
        waited, deadline = 1.0, time.perf_counter() + 60
        while waited >= 0.001:
            assert time.perf_counter() < deadline, "not within a minute"
            began = time.perf_counter()
            assert selector.select(0.0001) == []
            waited = time.perf_counter() - began
            assert waited >= 0.0001


@pytest.mark.parametrize("timeout", [None, 60.0, 0.0001, 0, -1])
def test_what_is_ready_is_answered_without_waiting(timeout: float | None) -> None:
    """Whatever the timeout."""
    ours, theirs = socket.socketpair()
    with event_loop.PunctualSelector() as selector, ours, theirs:
        key = selector.register(ours, selectors.EVENT_READ, "data")
        theirs.send(b"x")
        assert selector.select(timeout) == [(key, selectors.EVENT_READ)]


@pytest.mark.parametrize("timeout", [0, -1])
def test_no_timeout_does_not_wait(timeout: float) -> None:
    """A look only."""
    with event_loop.PunctualSelector() as selector:
        assert selector.select(timeout) == []


def test_a_selector_that_select_does_not_take_is_rounded_and_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a process that has a thousand files open as it begins."""
    monkeypatch.setattr(event_loop, "FD_SETSIZE", 0)
    with event_loop.PunctualSelector() as selector:
        began = time.perf_counter()
        assert selector.select(0.0001) == []
        assert time.perf_counter() - began >= 0.001


class Frozen:
    """A clock in a test's hand, and a selector whose waits take as long as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        self.frozen = 0.0
        """Seconds that the next wait takes longer than it was asked to."""
        monkeypatch.setattr(event_loop, "monotonic", lambda: self.now)
        self.stalls = event_loop.Stalls(lambda: self.now)
        self.selector = event_loop.PunctualSelector(self.stalls)
        monkeypatch.setattr(self.selector, "_look", self.look)

    def look(self, span: float) -> list[object]:
        self.now += span + self.frozen
        self.frozen = 0.0
        return []


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Frozen]:
    frozen = Frozen(monkeypatch)
    yield frozen
    frozen.selector.close()


@pytest.mark.parametrize("timeout", [0.05, 30.0])
def test_a_wait_that_takes_longer_than_it_should_is_a_stall(frozen: Frozen, timeout: float) -> None:
    """The process was stopped while it waited, perhaps from the beginning: all of the wait counts."""
    frozen.frozen = 7.0
    frozen.selector.select(timeout)
    assert frozen.stalls.longest() == pytest.approx(7.0 + timeout if timeout < event_loop.TICK else 0.0)


def test_a_look_without_a_wait_that_takes_long_counts_for_the_turn_after_it(frozen: Frozen) -> None:
    """Which is a stall itself, from its beginning on."""
    frozen.frozen = 7.0
    frozen.selector.select(0)
    assert frozen.selector.turn() == 7.0
    frozen.selector.select(0)
    assert frozen.stalls.longest() == 7.0


def test_a_long_wait_is_no_stall(frozen: Frozen) -> None:
    frozen.selector.select(3_600.0)
    assert frozen.now == pytest.approx(4_600.0)
    assert frozen.stalls.longest() == 0.0


def test_a_stall_is_seen_although_something_came(frozen: Frozen, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that something ends says nothing of how long it should have been. So none is longer than a
    `TICK`."""
    came: list[object] = [object()]

    def look(span: float) -> list[object]:
        frozen.now += 7.0
        return came

    monkeypatch.setattr(frozen.selector, "_look", look)
    assert frozen.selector.select(3_600.0) == came
    assert frozen.stalls.longest() == pytest.approx(7.0)


def test_a_stall_in_the_middle_of_work_is_one(frozen: Frozen) -> None:
    """Between two waits."""
    frozen.selector.select(0)
    frozen.now += 4.0
    frozen.selector.select(0)
    assert frozen.stalls.longest() == pytest.approx(4.0)


def test_the_longest_stall_counts_until_it_is_forgotten(frozen: Frozen) -> None:
    """Those who were kept waiting by it have been read by then."""
    for length in (1.0, 3.0, 0.5):
        frozen.stalls.note(length)
        frozen.now += 0.1
    assert frozen.stalls.longest() == 3.0
    frozen.now += event_loop.REMEMBERED - 0.15
    assert frozen.stalls.longest() == 0.5
    frozen.now += 0.1
    assert frozen.stalls.longest() == 0.0


def test_a_loop_that_works_now_and_then_has_no_stall(frozen: Frozen) -> None:
    """Small delays are what margins are for, and are not remembered."""
    for _ in range(1_000):
        frozen.now += event_loop.LEAST_STALL / 2
        frozen.selector.select(0)
    assert frozen.stalls.longest() == 0.0


@pytest.mark.parametrize("turns", [0, 1])
def test_a_running_loop_tells_its_stalls(turns: int) -> None:
    """That of the present turn, too: what was read before it began has waited for as long. One that
    `loop_factory` did not make knows of none."""

    async def stalled() -> float:
        time.sleep(0.2)  # noqa: ASYNC251 (it stands still)
        for _ in range(turns):
            await asyncio.sleep(0)
        return event_loop.recent_stall()

    with asyncio.Runner(loop_factory=event_loop.loop_factory) as runner:
        assert runner.run(stalled()) >= 0.2
    assert asyncio.run(stalled()) == 0.0


def test_the_daemon_runs_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And on no other loop."""
    seen: list[object] = []

    async def serve(_: Settings, __: object) -> None:
        seen.append(vars(asyncio.get_running_loop())["_selector"])

    monkeypatch.setattr(app, "serve", serve)
    monkeypatch.setattr(app, "set_up_logs", lambda *_: None)
    assert app.run(Settings()) == 0
    assert isinstance(seen[0], event_loop.PunctualSelector)
