"""Deliveries for consumers that come and go: they take some with one call, and settle them with another.

A delivery that was taken stays leased, and is renewed like any delivery, in a session of its own that takes
nothing more. It counts as received once the answer that carries it was written. Without an outcome within its
visibility it is released, since the consumer seems to be gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio

from relay.api.access import Access
from relay.api.settlements import EXTEND, admit, invalid, problem, take
from relay.core.errors import InvalidField, StoreUnavailable, TooMany
from relay.core.trust.verbs import AccessVerb
from relay.engine.delivery.leases import Lease
from relay.engine.delivery.session import Problem, Session
from relay.engine.engine import Engine
from relay.v1 import delivery_service_pb2 as pb

LEAST_WAIT = 0.5
"""Seconds that a call waits even if it asks not to: a claim takes a moment."""

SETTLE_TIMEOUT = 5.0
"""Seconds that outcomes have to be written; after that the caller is answered that Redis is away."""

REMEMBERED = 10_000
"""The deliveries that have ended whose end is remembered."""

MOST_CALLS = 1_000
"""The calls that may wait for deliveries, or have their answer written, at a time."""

MOST_HELD = 10_000
"""The most deliveries without an outcome; beyond that nobody gets more. Each is renewed and remembered until
it is settled or given up."""

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Held:
    """The deliveries that one call took. `until` has the loop's time at which each is given up."""

    topic: str
    session: Session
    visibility: float
    until: dict[bytes, float]
    problems: dict[bytes, Problem] = field(default_factory=dict)
    look: asyncio.TimerHandle | None = None

    def collect(self) -> None:
        """Take the session's messages, since there is no stream that does."""
        self.problems.update(self.session.take().problems)


class Taken:
    """The deliveries of a call until it is known whether they reached the consumer. May be empty."""

    def __init__(
        self,
        engine: Engine,
        session: Session,
        leases: list[Lease],
        hold: Callable[[], None],
        over: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._session = session
        self._hold = hold
        self._over = over
        self.leases = leases

    def handed(self) -> None:
        """Note that the answer was written: the attempts count."""
        self._over()
        self._engine.received(self._session, [lease.token for lease in self.leases])
        self._hold()

    def give_back(self) -> None:
        """Note that the consumer went away before that: no attempt counts."""
        self._over()
        for lease in self.leases:
            self._engine.give_back(self._session, lease.token, began=False)
        self._engine.detach(self._session, broken=False)


def _nothing() -> None:
    """Do nothing."""


class Consumers:
    """Serves all consumers."""

    def __init__(self, engine: Engine, access: Access | None = None) -> None:
        self._engine = engine
        self._access = access or Access()
        self._held: dict[bytes, _Held] = {}
        self._ended: OrderedDict[bytes, Problem] = OrderedDict()
        self._asked: dict[Session, int] = {}
        """For each call that waits, or whose answer is being written: the deliveries that it may have."""

    async def receive(self, topic: str, *, limit: int, wait: float, visibility: float | None) -> Taken | None:
        """Take up to `limit` deliveries of a topic; wait up to `wait` seconds for the first.

        Empty if none came, None if the relay drains. `visibility` is the number of seconds in which an
        outcome must come; the topic's `delivery_timeout` is both its limit and its default. Raises
        `InvalidField` and `TooMany`.
        """
        self._access.require(AccessVerb.DELIVER, topic)
        admit(self._engine, "topic", [topic])
        lifetime = self._engine.lifetime(topic)
        if visibility is not None and visibility > lifetime:
            raise InvalidField("visibility_sec", f"is more than the topic allows, which is {lifetime:g}")
        limit = self._admitted(limit)
        session = self._engine.open([topic], limit)
        leases: list[Lease] = []
        self._asked[session] = limit
        try:
            self._engine.attach(session)
            with anyio.move_on_after(max(wait, LEAST_WAIT)):
                leases = await self._first(session)
            if leases and not self._access.allows(AccessVerb.DELIVER, topic):
                leases = []  # the policy has changed while it waited
                self._access.require(AccessVerb.DELIVER, topic)
        finally:
            if not leases:  # or the caller has gone: then what was on its way to it is released
                del self._asked[session]
                self._engine.detach(session, broken=False)
        if not leases:
            return None if self._engine.draining else Taken(self._engine, session, [], _nothing, _nothing)
        self._engine.resize(session, 0)
        held = _Held(topic, session, min(visibility or lifetime, lifetime), {})
        return Taken(
            self._engine,
            session,
            leases,
            hold=partial(self._hold, held, leases),
            over=partial(self._over, session),
        )

    def _over(self, session: Session) -> None:
        self._asked.pop(session, None)

    def _admitted(self, limit: int) -> int:
        """How many of `limit` deliveries one more call may have, at least one. Raises `TooMany`."""
        if len(self._asked) >= MOST_CALLS:
            raise TooMany(f"{MOST_CALLS} calls wait for deliveries already; wait in fewer")
        if len(self._held) >= MOST_HELD:
            raise TooMany(f"{MOST_HELD} deliveries have no outcome yet; settle those that were received")
        return max(1, min(limit, MOST_HELD - len(self._held) - sum(self._asked.values())))

    async def _first(self, session: Session) -> list[Lease]:
        """Wait for the first deliveries; empty once the session drains. There is no await between taking and
        answering them, so a call that is cancelled has either answered them or taken none."""
        while not session.draining:
            outgoing = await session.next()
            if outgoing and outgoing.leases:
                return outgoing.leases
        return []

    def _hold(self, held: _Held, leases: list[Lease]) -> None:
        end = asyncio.get_running_loop().time() + held.visibility
        for lease in leases:
            held.until[lease.token] = end
            self._held[lease.token] = held
        self._watch(held)

    def _watch(self, held: _Held) -> None:
        """Look again when the next delivery would have to be given up."""
        if held.look is not None:
            held.look.cancel()
            held.look = None
        if held.until:
            end = min(held.until.values())
            held.look = asyncio.get_running_loop().call_at(end, self._give_up, held)
        else:
            self._engine.detach(held.session, broken=False)

    def _give_up(self, held: _Held) -> None:
        now = asyncio.get_running_loop().time()
        over = [token for token, end in held.until.items() if end <= now]
        silent = [token for token in over if token in held.session.leases]
        for token in silent:
            # Its consumer may have died of it.
            self._engine.give_back(held.session, token, received=True, broken=True)
        if silent:
            log.warning(
                "deliveries given up: no outcome within their visibility",
                extra={"topic": held.topic, "count": len(silent)},
            )
        for token in over:
            self._forget(held, token, Problem.STALE)
        self._watch(held)

    def _forget(self, held: _Held, token: bytes, what: Problem) -> None:
        """Note that a delivery has ended; later outcomes of it are answered with `what`."""
        del held.until[token], self._held[token]
        self._ended[token] = what
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    async def settle(self, topic: str, settlements: Sequence[pb.Settlement]) -> list[pb.Problem]:
        """Take outcomes, and wait until they are written; return those that changed nothing, and why.

        Raises `StoreUnavailable` if Redis is away: the outcomes wait for it, and need not be sent again.
        """
        self._access.require(AccessVerb.DELIVER, topic)
        admit(self._engine, "topic", [topic])
        found: list[pb.Problem] = []
        ended: dict[bytes, _Held] = {}
        touched: dict[_Held, None] = {}
        for settlement in settlements:
            what = self._settle(topic, settlement, ended, touched)
            if what is not None:
                found.append(problem(settlement.token, what))
        for held in touched:
            self._watch(held)
        with anyio.move_on_after(SETTLE_TIMEOUT) as scope:
            for held in dict.fromkeys(ended.values()):
                await self._engine.flush(held.session)
        if scope.cancelled_caught:
            raise StoreUnavailable(
                "Redis can't be reached now; the outcomes are kept, and written when it is back"
            )
        for token, held in ended.items():
            held.collect()
            if token in held.problems:
                found.append(problem(token, held.problems.pop(token)))
        return found

    def _settle(
        self,
        topic: str,
        settlement: pb.Settlement,
        ended: dict[bytes, _Held],
        touched: dict[_Held, None],
    ) -> Problem | None:
        """Take one outcome; `ended` and `touched` note what it did."""
        token = settlement.token
        held = self._held.get(token)
        if held is None or held.topic != topic:
            return self._ended.get(token, Problem.UNKNOWN_TOKEN)
        lease = held.session.leases.get(token)
        extends = settlement.outcome == EXTEND
        if lease is None or (extends and lease.lost):
            return Problem.STALE
        held.collect()
        held.problems.pop(token, None)  # the settlement reports it again if it holds
        failures: list[InvalidField] = []
        take(self._engine, held.session, [settlement], wrong=lambda _, failure: failures.append(failure))
        if failures:
            return invalid(failures[0])
        if extends:
            held.until[token] = asyncio.get_running_loop().time() + held.visibility
        else:
            self._forget(held, token, Problem.DUPLICATE)
            ended[token] = held
        touched[held] = None
        return None
