"""How long a call may take: as long as its caller waits, and a little less.

At its end the caller is answered, and nothing that the call asked for is done any more: the store takes its
own deadline from the call that it works for.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from relay.core.errors import OutOfTime
from relay.core.loop.call_ends import BoundedCall, CallEnds

MARGIN = 0.1
"""Seconds of a call's time that are kept for the way of the answer, and for stalls that nobody sees: gRPC
reads requests in threads of its own, and a wait of the loop that a request has ended may hide a stall of this
length."""

MOST_MARGIN = 0.5
"""The largest part of a call's time that is kept so, where its caller waits for less than 0.2 s."""

ROUNDED = 0.01
"""The part by which gRPC may round a length up: it sends 1,000.5 s as 1,010 s."""


class CallTime:  # see 0079
    """Bounds calls by the time that their callers give them.

    This has a race: a relay is frozen, by SIGSTOP or with its machine, while a request comes. Its caller
    gives the call up, and asks another relay for something else. Then this relay goes on and reads the
    request, whose time seems to begin: both gRPC and HTTP say a length, and no instant. So a call has less
    time by the longest recent stall.
    """

    def __init__(self, default: float, stall: Callable[[], float]) -> None:
        """`default` (seconds) is the time of a call whose caller gives none; `stall` says for how many
        seconds this process has stood still lately."""
        self._default = default
        self._stall = stall
        self._ends = CallEnds()

    def bound(self, left: float | None) -> BoundedCall:
        """A context that a call runs in for as long as its caller waits: `left` seconds from now by what the
        caller has said, None if it said nothing. Both raise `OutOfTime`."""
        left = self._default if left is None else left
        time = left - left * ROUNDED - min(MARGIN, left * MOST_MARGIN) - self._stall()
        if time <= 0:
            raise OutOfTime
        return self._ends.bound(monotonic() + time)
