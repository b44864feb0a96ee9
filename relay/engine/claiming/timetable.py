"""When a topic's timeline is read next: the timing that pollers and promoters share."""

from __future__ import annotations

import math
from random import random

from relay.core.instants import LATEST
from relay.core.loop.wakeup import Wakeup
from relay.core.pacing import Jitter, Pacing, seconds_until
from relay.core.policy import TopicPolicy
from relay.engine.clock import Clock

PAUSED_POLL = 0.9
"""Seconds between two looks at a topic that is paused and has timers due."""

ALONE = 2.0
"""Seconds. A topic whose next look is further away than this may look a little earlier, together with others:
a wake-up costs an idle relay more than one more topic in the same wake-up."""


class Timetable:
    """The time of the next call: that of the next timer, or an earlier one after a hint, with a floor that
    grows while other relays are quicker.

    Each call is preceded by `begin` and followed by `plan`, or by `again` if it failed.
    """

    def __init__(self, policy: TopicPolicy, clock: Clock, jitter: Jitter = random) -> None:
        self.clock = clock
        self._pacing = Pacing(policy, jitter)
        self.wakeup = Wakeup()
        """Set when the next call has become an earlier one."""
        self.next = clock.now()
        """When the next call is made, by our clock."""
        self._awaited: int | None = None
        """The instant for which the next call is made, if there is one."""
        self._sent = self.next
        self._sent_for: int | None = None
        self._server_time = (LATEST, clock.now())
        """The server's time (microseconds) and ours (seconds) at the last call. Before the first
        one, any instant counts as past: one call too many is better than an overlooked timer."""

    @property
    def rank(self) -> int:
        """The number of relays that come before this one; see `Pacing`."""
        return self._pacing.rank

    def take_rank(self, rank: int) -> None:
        """Come after `rank` other relays from now on. What those were to take that come after this one now
        may be due."""
        is_earlier = rank < self._pacing.rank
        self._pacing.take_rank(rank)
        if is_earlier:
            self.due_at(0)

    def stay_behind(self, seconds: float) -> None:
        """Leave every timer to other relays for this many seconds from now on."""
        self._pacing.behind = seconds

    def help(self) -> None:
        """Call soon: those who come before this relay don't take what is due."""
        self._pacing.begin_to_help()
        self.due_at(0)

    def due_at(self, instant: int) -> None:
        """Call at `instant` at the latest (microseconds by the server's clock), or now if that is past; later
        where others come first."""
        server, here = self._server_time
        due = max(here + (instant - server) / 1e6, self.clock.now()) + self._pacing.patience
        if due < self.next:
            self.next = due
            # Timers that were due at the last call may have been taken by it.
            self._awaited = instant if instant > server else None
            self.wakeup.set()

    def begin(self) -> float:
        """Note that a call is made now; return the time."""
        self._sent, self._sent_for = self.clock.now(), self._awaited
        # Timers that are scheduled while the call is under way may move these two to an earlier time.
        self.next, self._awaited = math.inf, None
        return self._sent

    def again(self) -> None:
        """Note that the call failed: the next one is due at once."""
        self.next = self._sent

    def plan(
        self,
        *,
        now: int,
        next_due: int | None,
        taken: bool,
        paused_until: int | None,
        look_at: int | None = None,
        ours_from: int | None = None,
        waited_since: int | None = None,
    ) -> None:
        """Plan the next call after an answer. `taken` says whether it brought timers, `now` is the server's
        time and `next_due` the instant of its next timer. `look_at` is an instant at which to ask in any
        case. From `ours_from` on the next timer may be one of our own leases, renewed by then. The timers
        that it brought were due from `waited_since` on. All instants are in microseconds."""
        # The server read its clock at some time between; the middle halves the error.
        here = (self._sent + self.clock.now()) / 2
        self._server_time = (now, here)
        until_next = seconds_until(next_due, now)
        awaited = self._sent_for is not None and self._sent_for <= now
        lost = not taken and paused_until is None and awaited
        waited = 0.0 if waited_since is None else -seconds_until(waited_since, now)
        wait = self._pacing.after_claim(
            taken=taken,
            lost=lost,
            until_next=until_next,
            waited=waited,
            paused=paused_until is not None,
        )
        if ALONE < wait < until_next:  # this is a look for timers that came without a hint
            wait = self.clock.together(here + wait) - here
        if look_at is not None:
            wait = min(wait, seconds_until(look_at, now))
        if paused_until is not None:  # a resume comes without a hint
            wait = min(PAUSED_POLL, seconds_until(paused_until, now))
        if here + wait < self.next:
            self.next = here + wait
            known = next_due is not None and (ours_from is None or next_due < ours_from)
            self._awaited = next_due if known and wait >= until_next else None
