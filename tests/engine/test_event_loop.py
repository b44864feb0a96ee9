"""A daemon's loop wakes when it was asked to."""

from __future__ import annotations

import asyncio
import selectors
import socket
import time

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


def test_the_daemon_runs_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And on no other loop."""
    seen: list[object] = []

    async def serve(_: Settings, __: object) -> None:
        seen.append(vars(asyncio.get_running_loop())["_selector"])

    monkeypatch.setattr(app, "serve", serve)
    monkeypatch.setattr(app, "set_up_logs", lambda *_: None)
    assert app.run(Settings()) == 0
    assert isinstance(seen[0], event_loop.PunctualSelector)
