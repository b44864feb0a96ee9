"""One application's stream, as the engine sees it: capacity, what is in flight, what is to be said."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain

from relay.core.wakeup import Wakeup
from relay.engine.clock import Clock
from relay.engine.delivery.leases import Lease, Leases, by_claim

FRAME_BYTES = 2 << 20
"""Bytes of payloads and headers that go into one frame, unless a single delivery has more."""

FRAME_TIMERS = 500
"""Deliveries after which a frame is closed."""

FRAME_PROBLEMS = 1_000
"""Problems that go into one message."""

MAX_PROBLEMS = 10_000
"""Unsaid problems from which on the application is not listened to."""

FEW = 4
"""Of so many that were claimed together less than one is left: a few."""

HOLD = 0.5
"""Seconds for which a suspect timer has the stream to itself: long enough for a crash to show."""


QUICK = 0.2
"""Seconds from being sent to its outcome within which a delivery is quick; see `Session.slow_outstanding`."""

LIGHT = 16 << 20
"""Bytes of payloads and headers, up to which what a session holds is light."""


class Problem(Enum):
    """Why a settlement or receipt changed nothing."""

    UNKNOWN_TOKEN = "no delivery of this stream has that token"
    DUPLICATE = "the delivery was settled before"
    STALE = "the lease is lost: the timer was rescheduled, or is delivered elsewhere"
    GONE = "the timer is no longer there"
    INVALID_OUTCOME = "outcome: is missing or unknown; send ACK, NACK, REJECT, RESCHEDULE or EXTEND"
    INVALID_RETRY_AFTER = "retry_after: is negative, too long or no duration; send 0 or more"
    INVALID_RESCHEDULE = (
        "reschedule: goes with RESCHEDULE only; give a due_time or a delay until 9999, "
        "and a payload within the topic's limit or none"
    )


DUPLICATE = Problem.DUPLICATE  # looking it up for every outcome is dear: Python 3.11's enums do it in Python


@dataclass(slots=True)
class Outgoing:
    """What to say to the application next."""

    parts: list[Leases] = field(default_factory=list)
    """Deliveries, in this order; each claim's are together."""
    problems: list[tuple[bytes, Problem]] = field(default_factory=list)
    drain: bool = False

    @property
    def leases(self) -> list[Lease]:
        """The deliveries one by one."""
        return list(chain.from_iterable(self.parts))


class RecentEnds:
    """Of the deliveries that ended last, what a second outcome is. In two generations: to forget each by
    itself would take as long as all else that ends one."""

    def __init__(self) -> None:
        self._young: dict[bytes, Problem] = {}
        self._old: dict[bytes, Problem] = {}

    def add(self, token: bytes, problem: Problem) -> None:
        """One more."""
        self._young[token] = problem

    def trim(self, enough: int) -> None:
        """Keep at least the last so many, and at most about twice as many."""
        if len(self._young) > enough:
            self._old, self._young = self._young, {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, token: bytes) -> Problem | None:
        """What it is, if it is known."""
        return self._young.get(token) or self._old.get(token)


class Session:
    """What one stream asked for, and what it holds.

    A timer that was in flight when its application's stream broke comes back as a suspect. It is
    sent when nothing else is in flight, and nothing is sent beside it, each for at most `HOLD`:
    so a timer that kills its application counts against itself only.

    It holds `slow_outstanding` deliveries, and up to `max_outstanding` while they are quick, and light
    together: each quick end earns a place more, and a slow one, or a rest of `QUICK`, loses what was
    earned. So a burst that follows a rest is spread over all sessions, whatever was quick before it.
    """

    def __init__(
        self, topics: Iterable[str], max_outstanding: int, clock: Clock, slow_outstanding: int = 0
    ) -> None:
        self.topics = tuple(dict.fromkeys(topics))
        self.max_outstanding = max_outstanding
        self.slow_outstanding = slow_outstanding
        """0: as many as ever."""
        self.leases: dict[bytes, Lease] = {}
        self.reserved = 0
        """Places kept for claims that are under way; kept by the dispatcher."""
        self.unwritten = 0
        """Settlements of this session that are not in Redis yet; kept by the settler."""
        self.draining = False
        self.changed: Callable[[Session], None] = lambda _: None
        self.sending: Callable[[Leases], None] = lambda _: None
        """Told of what goes out next; both are the dispatcher's."""
        self.turns = list(self.topics)
        """The topics, the one that was served longest ago first; kept by the dispatcher."""
        self._clock = clock
        self._outbox: deque[Leases] = deque()
        self._unsent = 0
        """How many deliveries are in there."""
        self._problems: list[tuple[bytes, Problem]] = []
        self._ended = RecentEnds()
        self._held = 0
        """Bytes of what it holds."""
        self._earned = 0
        """Places beyond `slow_outstanding`."""
        self._ended_at = 0.0
        """When a delivery ended last."""
        self._say_drain = False
        self._alone: Lease | None = None
        self._hold_until = 0.0
        self._finished = False
        self._wakeup = Wakeup()
        self._said = Wakeup()

    @property
    def free(self) -> int:
        """How many more deliveries it can take."""
        return 0 if self.draining else self.places - len(self.leases) - self.reserved

    @property
    def places(self) -> int:  # see 0041
        """How many deliveries it can hold now."""
        slow = self.slow_outstanding
        if not slow or not self._earned:
            return slow or self.max_outstanding
        if self._held > LIGHT or self._lingers():
            return slow
        return min(slow + self._earned, self.max_outstanding)

    def _lingers(self) -> bool:
        """Whether the oldest in flight has waited for long; or it rests, and has for long."""
        oldest = next(iter(self.leases.values()), None)
        since = self._ended_at if oldest is None else oldest.sent_at if oldest.sent else math.inf
        return self._clock.now() - since > QUICK

    @property
    def attended(self) -> bool:
        """Whether an application is there. A pushed one that can't be called leaves a session of size 0."""
        return self.max_outstanding > 0 or bool(self.leases)

    @property
    def in_flight(self) -> int:
        """How many deliveries were sent and are not settled."""
        return len(self.leases) - self._unsent

    def offer(self, leases: Leases) -> None:
        """Deliver these, in this order."""
        if not self.leases and self._lingers():
            self._earned = 0
        for part in _parts(leases):
            self.leases.update(zip(part.tokens, part, strict=True))
            self._held += sum(part.sizes)
            self._unsent += len(part)
            self._outbox.append(part)
        self._wakeup.set()

    def received(self, tokens: Iterable[bytes]) -> list[Lease]:
        """Note receipts, and answer of which deliveries; of a token that is of no use a problem is said."""
        received = []
        for token in tokens:
            lease = self.leases.get(token)
            if lease is None or not lease.leases.sent:
                self._unusable(token)
            else:
                leases, place = lease  # quicker than by the lease's properties, and there are many
                leases.received[place] = True
                received.append(lease)
        return received

    def end(self, tokens: Sequence[bytes]) -> list[Lease]:
        """Take deliveries out, and answer them; of a token that is of no use a problem is said."""
        ended = []
        was_free = self.free
        for token in tokens:
            lease = self.leases.get(token)
            if lease is None or not lease.leases.sent:  # unheard of; but tokens of one claim count up
                self._unusable(token)
            else:
                del self.leases[token]
                leases, place = lease
                self._held -= leases.sizes[place]
                leases.timers.payloads[place] = b""  # those beside it may stay for long
                self._ended.add(token, DUPLICATE)
                ended.append(lease)
        if ended:
            self._ended_at = self._clock.now()
            quick = self._ended_at - ended[-1].sent_at <= QUICK
            self._earned = min(self._earned + len(ended), self.max_outstanding) if quick else 0
        self._ended.trim(2 * self.max_outstanding)
        if was_free <= 0 < self.free:  # else there was room before, and nobody waits for some
            self.changed(self)
        if self._alone is not None or self._outbox:
            self._wakeup.set()
        return ended

    def give_up(self, tokens: Iterable[bytes]) -> None:
        """Forget deliveries whose leases have run out; what is said about them later is stale."""
        given_up = [lease for token in tokens if (lease := self.leases.pop(token, None)) is not None]
        if not given_up:
            return
        for leases, together in by_claim(given_up):
            places = sorted(lease.place for lease in together)
            if not leases.sent:
                self._strike(leases, places)
            for place in places:
                self._held -= leases.sizes[place]
                leases.timers.payloads[place] = b""
                self._ended.add(leases.tokens[place], Problem.STALE)
        self._ended.trim(2 * self.max_outstanding)
        self.changed(self)
        self._wakeup.set()

    def _strike(self, leases: Leases, places: Sequence[int]) -> None:
        """Take these out of what waits to be sent; those beside them become leases of their own."""
        at = self._outbox.index(leases)
        if self._alone is None and at == 0:
            self._hold_until = 0.0
        del self._outbox[at]
        for part in reversed(leases.without(places)):
            self.leases.update(zip(part.tokens, part, strict=True))
            self._outbox.insert(at, part)
        self._unsent -= len(places)

    def tidy(self) -> None:
        """Let go of what was claimed together when only a few of it are left: one slow handler must not keep
        all that is known of its neighbours."""
        left: dict[Leases, list[int]] = {}
        for leases, place in self.leases.values():
            left.setdefault(leases, []).append(place)
        for leases, places in left.items():
            if FEW * len(places) < len(leases):  # what waits to be sent is whole
                few = leases.only(places)
                self.leases.update(zip(few.tokens, few, strict=True))

    def lose(self, token: bytes, problem: Problem) -> None:
        """The lease of a delivery in flight, if it still is, is lost; it keeps its place until its end."""
        lease = self.leases.get(token)
        if lease is not None and not lease.lost:
            lease.lost = True
            self.complain(token, problem)

    def complain(self, token: bytes, problem: Problem) -> None:
        """Say that a settlement changed nothing."""
        self._problems.append((token, problem))
        self._wakeup.set()

    def resize(self, capacity: int) -> list[Lease]:
        """Hold at most so many from now on, or nothing: then it answers what has not been sent, and is
        the session's no longer."""
        self.max_outstanding = capacity
        return [] if capacity else self._unsend()

    def drain(self, *, say: bool) -> list[Lease]:
        """Send nothing more; `say` so to the application if it was not its own wish.

        Answers what has not been sent, and is the session's no longer.
        """
        self.draining = True
        self._say_drain |= say
        return self._unsend()

    def close(self) -> list[Lease]:
        """End it; answers what was unsettled."""
        self.draining = True
        unsettled = list(self.leases.values())
        self.leases.clear()
        self._outbox.clear()
        self._held = self._unsent = 0
        return unsettled

    def finish(self) -> None:
        """Let `next` end once there is nothing more to say."""
        self._finished = True
        self._wakeup.set()

    async def listening(self) -> None:
        """Until the application has been told enough of its problems to be listened to again."""
        while len(self._problems) > MAX_PROBLEMS:
            await self._said.wait()

    async def next(self) -> Outgoing | None:
        """What to say next; waits until there is something, and answers None at the end."""
        while True:
            outgoing = self.take()
            if outgoing.parts or outgoing.problems or outgoing.drain:
                return outgoing
            if self._finished:
                return None
            waiting = self._outbox and self._hold_until > self._clock.now()
            if waiting:
                await self._clock.wait(self._wakeup, self._hold_until - self._clock.now())
            else:
                await self._wakeup.wait()

    def take(self) -> Outgoing:
        """What can be said now."""
        outgoing = Outgoing(self._frame(), self._problems[:FRAME_PROBLEMS], self._say_drain)
        del self._problems[:FRAME_PROBLEMS]
        self._say_drain = False
        self._said.set()
        return outgoing

    def _frame(self) -> list[Leases]:
        if not self._outbox or not self._may_send():
            return []
        now = self._clock.now()
        if any(self._outbox[0].timers.suspect):  # see 0003
            frame = [self._outbox.popleft()]
            self._alone = frame[0][0]
            self._hold_until = now + HOLD
        else:
            frame = self._together()
        for part in frame:
            self._unsent -= len(part)
            part.send(now)
            self.sending(part)
        return frame

    def _together(self) -> list[Leases]:
        """The first that wait, as many as go into one frame."""
        frame: list[Leases] = []
        count = size = 0
        while self._outbox and not any(self._outbox[0].timers.suspect):
            part = self._outbox[0]
            count += len(part)
            size += sum(part.sizes)
            if frame and (count > FRAME_TIMERS or size > FRAME_BYTES):
                break
            frame.append(self._outbox.popleft())
        return frame

    def _may_send(self) -> bool:
        """Whether the stream is clear: of the suspect before, and for a suspect, of everything."""
        now = self._clock.now()
        if self._alone is not None:
            still_there = self._alone.token in self.leases
            if still_there and now < self._hold_until:
                return False
            self._alone = None
            self._hold_until = 0.0
            if still_there:
                return True  # it has had its time; the next one need not wait for it again
        if any(self._outbox[0].timers.suspect) and self.in_flight:
            if not self._hold_until:
                self._hold_until = now + HOLD
            return now >= self._hold_until
        return True

    def _unsend(self) -> list[Lease]:
        unsent = list(chain.from_iterable(self._outbox))
        self._outbox.clear()
        self._unsent = 0
        for lease in unsent:
            del self.leases[lease.token]
            self._held -= lease.size
        self._wakeup.set()
        return unsent

    def _unusable(self, token: bytes) -> None:
        self.complain(token, self._ended.get(token) or Problem.UNKNOWN_TOKEN)


def _parts(leases: Leases) -> Iterator[Leases]:
    """The same, cut into what can go out at once: so much as one frame takes, and each suspect alone."""
    start = size = 0
    alone = False
    for place, (more, suspect) in enumerate(zip(leases.sizes, leases.timers.suspect, strict=True)):
        size += more
        if place > start and (suspect or alone or place - start == FRAME_TIMERS or size > FRAME_BYTES):
            yield leases[start:place]
            start, size = place, more
        alone = suspect
    yield leases[start:]
