"""How often a scene must come about, and when a test gives up on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

IN_VAIN = 40
"""Rounds in a row after which what never came about counts as what can't. A few are lost on a busy machine: a
hasty relay's time is over before its bytes are on their way."""


class Rounds:
    """Goes on until a scene came about `wanted` times: the test adds to `met`, or not, in each round."""

    def __init__(self, wanted: int, what: str) -> None:
        self.met = 0
        self.in_vain = 0
        """Rounds since the last scene: who has little time may take more of it with each."""
        self._wanted = wanted
        self._what = what

    def __iter__(self) -> Iterator[int]:
        """The number of scenes so far, for each round; fails after IN_VAIN rounds without another one."""
        while self.met < self._wanted:
            before = self.met
            yield before
            self.in_vain = 0 if self.met > before else self.in_vain + 1
            if self.in_vain == IN_VAIN:
                pytest.fail(
                    f"{IN_VAIN} rounds in a row, and in none of them: {self._what};"
                    f" {self.met} of {self._wanted} came about before"
                )


def until_true(ask: Callable[[], bool], what: str) -> None:
    """Ask until it is so; fails after IN_VAIN times in vain."""
    if not any(ask() for _ in range(IN_VAIN)):
        pytest.fail(f"{IN_VAIN} times in vain: {what}")
