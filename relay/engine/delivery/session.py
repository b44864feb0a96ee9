"""One application's stream as the engine sees it: its capacity, the deliveries in flight, the messages to
send."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain

from relay.core.loop.wakeup import Wakeup
from relay.core.policy import HandlerPolicy
from relay.engine.clock import Clock
from relay.engine.delivery.leases import Lease, Leases, by_claim

FRAME_BYTES = 2 << 20
"""The most bytes of payloads and headers in one frame, unless a single delivery has more."""

FRAME_TIMERS = 500
"""The most deliveries of a frame."""

FRAME_PROBLEMS = 1_000
"""The most problems of one message."""

MAX_PROBLEMS = 10_000
"""The number of unsent problems from which on the application's messages are not read."""

FEW = 4
"""If less than one in this many deliveries of a claim is left, only a few are."""

HOLD = 0.5
"""Seconds for which a suspect timer has the stream to itself, which is long enough for a crash to show."""

REST = 1.0
"""Seconds after which a rest is looked at again: what asked for it may be over."""

QUICK = 0.2
"""Seconds between sending and outcome within which a delivery is quick; see `Session.slow_outstanding`."""

LIGHT = 16 << 20
"""Bytes of payloads and headers up to which the deliveries of a session are light."""


GRACE = 5.0
"""Seconds that an application has to say that a handler was too slow, before the relay finds that itself."""


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


DUPLICATE = Problem.DUPLICATE  # a lookup for every outcome is expensive: Python 3.11's enums do it in Python


@dataclass(slots=True)
class Outgoing:
    """The next message to the application."""

    parts: list[Leases] = field(default_factory=list)
    """Deliveries in order; those of one claim are together."""
    problems: list[tuple[bytes, Problem]] = field(default_factory=list)
    drain: bool = False

    @property
    def leases(self) -> list[Lease]:
        """Return the deliveries one by one."""
        return list(chain.from_iterable(self.parts))


class RecentEnds:
    """Remembers for the deliveries that ended last what a second outcome is. They are kept in two
    generations, since forgetting each by itself would take as long as everything else at the end of one."""

    def __init__(self) -> None:
        self._young: dict[bytes, Problem] = {}
        self._old: dict[bytes, Problem] = {}

    def add(self, token: bytes, problem: Problem) -> None:
        """Add a delivery."""
        self._young[token] = problem

    def trim(self, enough: int) -> None:
        """Keep at least the last `count`, and at most about twice as many."""
        if len(self._young) > enough:
            self._old, self._young = self._young, {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, token: bytes) -> Problem | None:
        """Return what a second outcome is, if the token is known."""
        return self._young.get(token) or self._old.get(token)


class Session:
    """The wishes of one stream, and the deliveries that it holds.

    A timer that was in flight when its application's stream broke, and not for the first time, comes back as
    a suspect. It is sent when nothing else is in flight, and nothing is sent beside it, each for at most
    `HOLD`: so a timer that kills its application counts against itself only from then on. Other timers wait
    for the next suspect, and not for all of them.

    It holds `slow_outstanding` deliveries, and up to `max_outstanding` while they are quick, and light
    together. Each quick end earns one more place; a slow one, or a rest of `QUICK`, loses the earned places.
    So a burst after a rest is spread over all sessions, however quick each was before it.
    """

    def __init__(
        self,
        topics: Iterable[str],
        max_outstanding: int,
        clock: Clock,
        slow_outstanding: int = 0,
        handlers: Mapping[str, HandlerPolicy] | None = None,
    ) -> None:
        self.topics = tuple(dict.fromkeys(topics))
        self.max_outstanding = max_outstanding
        self.slow_outstanding = slow_outstanding
        """0 means the same as `max_outstanding`."""
        self.handlers = handlers or {}
        """What the handlers of its topics ask for, those that do."""
        self.leases: dict[bytes, Lease] = {}
        self.reserved = 0
        """The places that are kept for claims under way; the dispatcher maintains it."""
        self.unwritten = 0
        """The settlements of this session that are not in Redis yet; the settler maintains it."""
        self.draining = False
        self.changed: Callable[[Session], None] = lambda _: None
        self.sending: Callable[[Leases], None] = lambda _: None
        """Called with the deliveries that go out next; both callbacks are the dispatcher's."""
        self.turns = list(self.topics)
        """The topics, with the one that was served longest ago first; the dispatcher maintains it."""
        self._clock = clock
        self._outbox: deque[Leases] = deque()
        self._unsent = 0
        """The number of deliveries in the outbox."""
        self._problems: list[tuple[bytes, Problem]] = []
        self._ended = RecentEnds()
        self._held = 0
        """The bytes of the deliveries that it holds."""
        self._earned = 0
        """The places beyond `slow_outstanding`."""
        self._ended_at = 0.0
        """When the last delivery ended."""
        self._say_drain = False
        self._alone: Lease | None = None
        self._hold_until = 0.0
        self._rest_until = 0.0
        self._has_to_rest: Callable[[], bool] = lambda: True
        self._waited = False
        """Whether a suspect was sent last: then whatever is in flight has had its time, and the next one need
        not wait for that again."""
        self._finished = False
        self._wakeup = Wakeup()
        self._said = Wakeup()

    @property
    def free(self) -> int:
        """The number of further deliveries that it can take."""
        return 0 if self.draining else self.places - len(self.leases) - self.reserved

    @property
    def places(self) -> int:  # see 0041
        """The number of deliveries that it can hold now."""
        slow = self.slow_outstanding
        if not slow or not self._earned:
            return slow or self.max_outstanding
        if self._held > LIGHT or self._lingers():
            return slow
        return min(slow + self._earned, self.max_outstanding)

    def _lingers(self) -> bool:
        """Whether the oldest delivery in flight has waited for long, or the session has rested for long."""
        oldest = next(iter(self.leases.values()), None)
        since = self._ended_at if oldest is None else oldest.sent_at if oldest.sent else math.inf
        return self._clock.now() - since > QUICK

    @property
    def attended(self) -> bool:
        """Whether there is an application. A pushed one that can't be called has a session of size 0."""
        return self.max_outstanding > 0 or bool(self.leases)

    @property
    def in_flight(self) -> int:
        """The number of deliveries that were sent and are not settled."""
        return len(self.leases) - self._unsent

    def offer(self, leases: Leases) -> None:
        """Deliver these leases, in order."""
        if not self.leases and self._lingers():
            self._earned = 0
        leases.handler = self.handlers.get(leases.topic)
        for part in _parts(leases):
            self.leases.update(zip(part.tokens, part, strict=True))
            self._held += sum(part.sizes)
            self._unsent += len(part)
            if _is_suspect(part):
                self._outbox.append(part)
            else:
                self._outbox.insert(self._turn(), part)
        self._wakeup.set()

    def _turn(self) -> int:
        """Where in the outbox a part goes that is not a suspect: behind the next suspect, or before it while
        another one has its time. So it waits for one suspect at most."""
        ahead = self._alone is None
        if ahead and self._outbox and not _is_suspect(self._outbox[-1]):
            return len(self._outbox)  # no other stands behind the second suspect
        for at, part in enumerate(self._outbox):
            if _is_suspect(part):
                if not ahead:
                    return at
                ahead = False
        return len(self._outbox)

    def received(self, tokens: Iterable[bytes]) -> list[Lease]:
        """Note receipts, and return their deliveries. A token that is not valid becomes a problem."""
        received = []
        for token in tokens:
            lease = self.leases.get(token)
            if lease is None or not lease.leases.sent:
                self._unusable(token)
            else:
                leases, place = lease  # this is quicker than the lease's properties, and there are many
                leases.received[place] = True
                received.append(lease)
                if leases.handler is not None and leases.handler.timeout:
                    limit = self._clock.now() + leases.handler.timeout + GRACE
                    lease.silent_until = min(lease.silent_until, limit)
        return received

    def end(self, tokens: Sequence[bytes]) -> dict[Leases, list[int]]:
        """Take deliveries out, and return their places by their claims. A token that is not valid becomes a
        problem."""
        ended: dict[Leases, list[int]] = {}
        last: Leases | None = None
        was_free, held = self.free, len(self.leases)
        for token in tokens:
            lease = self.leases.get(token)
            if (
                lease is None or not lease.leases.sent
            ):  # an unsent one can be guessed: tokens of one claim count up
                self._unusable(token)
            else:
                del self.leases[token]
                leases, place = lease
                self._held -= leases.sizes[place]
                leases.timers.payloads[place] = b""  # its neighbours may stay for long
                self._ended.add(token, DUPLICATE)
                ended.setdefault(leases, []).append(place)
                last = leases
        if last is not None:
            self._ended_at = self._clock.now()
            quick = self._ended_at - last.sent_at <= QUICK
            count = held - len(self.leases)
            self._earned = min(self._earned + count, self.max_outstanding) if quick else 0
        self._ended.trim(2 * self.max_outstanding)
        if was_free <= 0 < self.free:  # otherwise there was room before, and nobody waits for it
            self.changed(self)
        if self._alone is not None or self._outbox:
            self._wakeup.set()
        return ended

    def give_up(self, tokens: Iterable[bytes]) -> None:
        """Forget deliveries whose leases have run out. Later outcomes of them are stale."""
        given_up = [lease for token in tokens if (lease := self.leases.pop(token, None)) is not None]
        if not given_up:
            return
        for leases, places in by_claim(given_up).items():
            places.sort()
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
        """Take these out of the outbox. Their neighbours become leases of their own."""
        at = self._outbox.index(leases)
        if self._alone is None and at == 0:
            self._hold_until = 0.0
        del self._outbox[at]
        for part in reversed(leases.without(places)):
            self.leases.update(zip(part.tokens, part, strict=True))
            self._outbox.insert(at, part)
        self._unsent -= len(places)

    def tidy(self) -> None:
        """Split off deliveries of a claim when only a few of them are left: one slow handler must not keep
        the memory of its neighbours."""
        left: dict[Leases, list[int]] = {}
        for leases, place in self.leases.values():
            left.setdefault(leases, []).append(place)
        for leases, places in left.items():
            if FEW * len(places) < len(leases):  # those in the outbox are whole
                few = leases.only(places)
                self.leases.update(zip(few.tokens, few, strict=True))

    def lose(self, token: bytes, problem: Problem) -> None:
        """Note that the lease of a delivery in flight is lost. It keeps its place until its end."""
        lease = self.leases.get(token)
        if lease is not None and not lease.lost:
            lease.lost = True
            self.complain(token, problem)

    def complain(self, token: bytes, problem: Problem) -> None:
        """Tell the application that a settlement changed nothing."""
        self._problems.append((token, problem))
        self._wakeup.set()

    def resize(self, capacity: int) -> list[Lease]:
        """Hold at most `size` deliveries from now on. With 0, return those that have not been sent, which
        leave the session."""
        self.max_outstanding = capacity
        return [] if capacity else self._unsend()

    def drain(self, *, say: bool) -> list[Lease]:
        """Send nothing more. With `say` the application is told, because it was not its own wish.

        Returns the deliveries that have not been sent, which leave the session.
        """
        self.draining = True
        self._say_drain |= say
        return self._unsend()

    def close(self) -> list[Lease]:
        """End the session; return its unsettled deliveries."""
        self.draining = True
        unsettled = list(self.leases.values())
        self.leases.clear()
        self._outbox.clear()
        self._held = self._unsent = 0
        return unsettled

    def rest(self, seconds: float, has_to: Callable[[], bool]) -> None:
        """Send no deliveries for this number of seconds, or until `has_to` denies it, which is asked every
        second; whatever else there is to say goes out."""
        self._rest_until = self._clock.now() + seconds
        self._has_to_rest = has_to

    def _rests_for(self) -> float:
        """For how many seconds to wait before the next look."""
        left = self._rest_until - self._clock.now()
        return min(left, REST) if left > 0 and self._has_to_rest() else 0.0

    def finish(self) -> None:
        """Let `next` end once there is nothing more to send."""
        self._finished = True
        self._wakeup.set()

    async def listening(self) -> None:
        """Wait until enough problems were sent that the application's messages are read again."""
        while len(self._problems) > MAX_PROBLEMS:
            await self._said.wait()

    async def next(self) -> Outgoing | None:
        """Wait for the next message and return it; None at the end."""
        while True:
            outgoing = self.take()
            if outgoing.parts or outgoing.problems or outgoing.drain:
                return outgoing
            if self._finished:
                return None
            pause = max(self._hold_until - self._clock.now(), self._rests_for())
            if self._outbox and pause > 0:
                await self._clock.wait(self._wakeup, pause)
            else:
                await self._wakeup.wait()

    def take(self) -> Outgoing:
        """Return what can be sent now."""
        outgoing = Outgoing(self._frame(), self._problems[:FRAME_PROBLEMS], self._say_drain)
        del self._problems[:FRAME_PROBLEMS]
        self._say_drain = False
        self._said.set()
        return outgoing

    def _frame(self) -> list[Leases]:
        now = self._clock.now()
        if not self._outbox or self._rests_for() or not self._may_send():
            return []
        if _is_suspect(self._outbox[0]):  # see 0003
            frame = [self._outbox.popleft()]
            self._alone = frame[0][0]
            self._hold_until = now + HOLD
            self._waited = True
        else:
            frame = self._together()
            self._waited = False
        for part in frame:
            self._unsent -= len(part)
            part.send(now)
            self.sending(part)
        return frame

    def _together(self) -> list[Leases]:
        """Take the first deliveries of the outbox, as many as fit into one frame."""
        frame: list[Leases] = []
        count = size = 0
        while self._outbox and not _is_suspect(self._outbox[0]):
            part = self._outbox[0]
            count += len(part)
            size += sum(part.sizes)
            if frame and (count > FRAME_TIMERS or size > FRAME_BYTES):
                break
            frame.append(self._outbox.popleft())
        return frame

    def _may_send(self) -> bool:
        """Whether the stream is clear of the previous suspect, and for a suspect, of everything."""
        now = self._clock.now()
        if self._alone is not None:
            if self._alone.token in self.leases and now < self._hold_until:
                return False
            self._alone = None
            self._hold_until = 0.0
        if _is_suspect(self._outbox[0]) and self.in_flight and not self._waited:
            if not self._hold_until:
                self._hold_until = now + HOLD
            return now >= self._hold_until
        return True

    def _unsend(self) -> list[Lease]:
        unsent = list(chain.from_iterable(self._outbox))
        self._outbox.clear()
        self._unsent = 0
        if self._alone is None:
            self._hold_until = 0.0
        for lease in unsent:
            del self.leases[lease.token]
            self._held -= lease.size
        self._wakeup.set()
        return unsent

    def _unusable(self, token: bytes) -> None:
        self.complain(token, self._ended.get(token) or Problem.UNKNOWN_TOKEN)


def _is_suspect(part: Leases) -> bool:
    return part.timers.suspect[0]  # each goes alone, and the others have none among them


def _parts(leases: Leases) -> Iterator[Leases]:
    """Split leases into what can go out at once: as much as one frame takes, and each suspect alone."""
    start = size = 0
    alone = False
    for place, (more, suspect) in enumerate(zip(leases.sizes, leases.timers.suspect, strict=True)):
        size += more
        if place > start and (suspect or alone or place - start == FRAME_TIMERS or size > FRAME_BYTES):
            yield leases[start:place]
            start, size = place, more
        alone = suspect
    yield leases[start:]
