"""Decides when to try next. This is pure: randomness is passed in. All times are in seconds."""

from __future__ import annotations

import math
from collections.abc import Callable

from relay.core.policy import TopicPolicy

Jitter = Callable[[], float]
"""A random number in [0, 1)."""

MAX_LOSSES = 3

HEAD_START = 0.005
"""Seconds by which each poller that helps others is behind the one before it: who has room comes first."""

HELP_AFTER = 0.1
"""Seconds. Where a timer has been due for longer, whoever was to take it needs help."""

LOOKS_LESS = 4
"""How many times longer each poller waits than the one before it, until it looks whether it is needed: so the
looks of all of them are hardly more than those of the first two, however many there are."""

_LONGEST = 10
"""The number of times that the wait grows by `LOOKS_LESS`, at most."""


class FailureBackoff:
    """The wait after consecutive failures: it doubles up to a limit, jittered by half."""

    def __init__(self, jitter: Jitter, *, first: float = 0.1, limit: float = 5.0) -> None:
        self._jitter = jitter
        self._first = first
        self._limit = limit
        self._failures = 0

    def failed(self) -> float:
        """Return the wait after one more failure."""
        delay: float = min(self._first * 2.0**self._failures, self._limit)
        self._failures = min(self._failures + 1, 30)
        return delay * (0.5 + 0.5 * self._jitter())

    def worked(self) -> None:
        """Start over."""
        self._failures = 0


class Pacing:
    """Decides when a topic's poller claims again.

    It sleeps until the topic's next due time, at most `max_polling_interval`. A poll that was
    made for a timer that fell due and found nothing lost a race against another relay: then
    `polling_interval` is the floor, longer with each further loss (up to eight times), and
    jittered, so that relays which keep losing step back and do not wake as one.

    Where several relays poll a partition, each has a rank there. The first, of rank 0, takes a timer as it
    falls due; the others leave it to those before them for the time of their `patience`. That is
    `max_polling_interval` for rank 1, and `LOOKS_LESS` times that of the rank before for each further one.
    Where the others need help, it is next to nothing; then it grows each time that the poller comes in vain.

    A poller that stays `behind` leaves every timer to others for that time, whoever comes first.
    """

    def __init__(self, policy: TopicPolicy, jitter: Jitter) -> None:
        self._policy = policy
        self._jitter = jitter
        self._losses = 0
        self.rank = 0
        """The number of relays that come before this one."""
        self._while_helping = math.inf
        """The patience while others need help."""
        self.behind = 0.0
        """For how long every timer is left to others."""

    def take_rank(self, rank: int) -> None:
        """Come after `rank` others from now on."""
        self.rank = rank
        if not rank:
            self._while_helping = math.inf

    @property
    def patience(self) -> float:
        """For how long a timer that falls due is left to others."""
        return self.behind + (min(self._while_helping, self._longest) if self.rank else 0.0)

    def begin_to_help(self) -> None:
        """Note that others don't take what is due."""
        if self.rank:
            self._while_helping = HEAD_START * self.rank

    def after_claim(
        self, *, taken: bool, lost: bool, until_next: float, waited: float = 0.0, paused: bool = False
    ) -> float:
        """Return the wait after a claim.

        `taken` means that it brought timers, which had been due for `waited`; `lost` that it was made for a
        timer that had fallen due, and found nothing. `until_next` is the time to the topic's first remaining
        timer, infinite if there is none. What is due while the topic is `paused` is left by everybody.
        """
        longest = self._longest * (1.0 - 0.1 * self._jitter())
        overdue = until_next <= -self.behind
        if not paused and (overdue or waited > self.behind + HELP_AFTER):
            self.begin_to_help()
        elif lost:
            self._while_helping = max(2 * self._while_helping, HELP_AFTER)
        wait = 0.0 if overdue else min(until_next + self.patience, longest)
        if taken:
            self._losses = 0
        if not lost:
            return wait
        floor = self._policy.polling_interval * 2.0**self._losses * (0.5 + self._jitter())
        self._losses = min(self._losses + 1, MAX_LOSSES)
        return max(wait, min(floor, longest))

    @property
    def _longest(self) -> float:
        """The longest time between two looks."""
        times: int = LOOKS_LESS ** min(max(self.rank - 1, 0), _LONGEST)
        return self._policy.max_polling_interval * times


def seconds_until(instant: int | None, now: int) -> float:
    """Return the seconds from `now` to `instant` (both in microseconds); infinity if `instant` is None."""
    return math.inf if instant is None else (instant - now) / 1e6
