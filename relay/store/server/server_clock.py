"""What a connection knows of the clock of its server: a lower bound, from the times that the server said."""

from __future__ import annotations

import math
from collections import deque

from relay.core.instants import CLOCK_STEP, SECOND

RENEW = 10.0
"""Seconds for which the two clocks are trusted to run equally fast. At 500 ppm, the most by which a clock is
slewed, they differ by 5 ms then."""

KEPT = 6
"""The number of times that count: those of about the last minute."""


class ServerClock:  # see 0076
    """A lower bound of one server's clock. No wall clock of this machine has a part in it.

    The time in a reply was the server's before the reply was received. From then on the monotonic clock of
    this process says how much later it is. The bound is the best of the recent ones: the one whose reply
    travelled fastest. A clock that steps back makes it too high, by the step, until the server is asked
    again; where the step is shorter than the question travels, until the best reply is forgotten.
    """

    def __init__(self) -> None:
        self._ahead: deque[int] = deque(maxlen=KEPT)
        """By how much the server's clock is at least ahead of the monotonic one, in microseconds."""
        self._heard = -math.inf

    def is_old(self, now: float) -> bool:
        """Whether the server has to be asked before the bound is used; `now` is monotonic, in seconds."""
        return now - self._heard > RENEW

    def forget(self) -> None:
        """Have the server asked before the bound is used again."""
        self._heard = -math.inf

    def heard(self, told: int, asked: float, received: float) -> bool:
        """Note the server's time in a reply (microseconds), and when it was asked and received (monotonic
        seconds). Return whether its clock has stepped back since."""
        behind = self.at(asked) - told if self._ahead else 0
        if behind > 0:
            self._ahead.clear()  # whatever made it so, what was heard before is not a lower bound
        self._ahead.append(told - math.ceil(received * SECOND))
        self._heard = received
        return behind > CLOCK_STEP

    def at(self, instant: float) -> int:
        """What the server's clock shows at least at a monotonic instant (seconds), in microseconds."""
        return max(self._ahead) + math.floor(instant * SECOND)
