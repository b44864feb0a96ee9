"""How a test waits for what no event tells: it asks again and again, and fails after a long while.

A minute or two costs nothing where all is well, and no machine is so busy that it needs more.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

import anyio

PATIENCE = 120.0
"""Seconds after which something that must happen counts as not happening."""

T = TypeVar("T")


def make_one_try() -> None:
    """Let this process's clients make no second try because the first one's answer takes more than a second.
    A test that stands above them counts on what one call does: a second try would do it once more, or answer
    that it was done already."""
    from relay.client.calls import timer_calls

    timer_calls.TRY_TIMEOUT = PATIENCE


def eventually(ask: Callable[[], T], what: str, timeout: float = PATIENCE) -> T:
    """Ask until the answer is true, and return it; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what}; the last answer was {answer!r}")
        time.sleep(0.01)
    return answer


async def until(
    ask: Callable[[], Any], what: str = "what the test waits for", timeout: float = PATIENCE
) -> Any:
    """The same beside the tasks of a test's own loop; `ask` may be async."""
    deadline = time.monotonic() + timeout
    while True:
        answer = ask()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what}; the last answer was {answer!r}")
        await anyio.sleep(0.005)


def always(ask: Callable[[], object], what: str, seconds: float) -> None:
    """Ask again and again for so long; fails as soon as the answer is not true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert ask(), f"no longer: {what}"
        time.sleep(0.02)
