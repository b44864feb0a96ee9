"""A scene that can't come about fails its test soon, and in words."""

from __future__ import annotations

import pytest

from tests.ghosts.rounds import IN_VAIN, Rounds, until_true


def test_rounds_in_vain() -> None:
    """Those that are lost in between count nothing: only what never comes ends the test."""
    rounds, begun = Rounds(2, "the moon was blue"), 0

    def play() -> None:
        nonlocal begun
        for met in rounds:
            assert met == rounds.met
            begun += 1
            rounds.met += begun == IN_VAIN

    with pytest.raises(pytest.fail.Exception, match="the moon was blue; 1 of 2 came about before"):
        play()
    assert begun == 2 * IN_VAIN
    lost = iter([False] * (IN_VAIN - 1) + [True])
    until_true(lambda: next(lost), "it was so")
    with pytest.raises(pytest.fail.Exception, match="in vain: it was so"):
        until_true(lambda: False, "it was so")
