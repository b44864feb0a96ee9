"""The nodes of a Cluster for one thread: which of them a call goes to, and what is done when it is sent
elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, TypeVar

from redis.exceptions import RedisError

from relay.core.endpoints.redis_url import RedisLocation
from relay.store.server.cluster.redirects import REFUSALS, Way
from relay.store.server.cluster.slot_map import SlotMap
from relay.store.server.line import Exchange, Line, asked
from relay.store.server.probing.commands import SHARDED_PUBLISH, is_missing
from relay.store.server.scripts import Argument

R = TypeVar("R")


class BlockingNodes:  # see 0085
    """As `relay.store.server.cluster.nodes.Cluster`, with a line to each node that is needed.

    A look is made before a call that finds nothing known, or after a reason to doubt, and only while nothing
    is under way: two calls about one topic that are sent ahead go to the same node, and so in their order.
    """

    def __init__(
        self,
        where: RedisLocation,
        options: Mapping[str, Any],
        to_ask: Mapping[str, Any],
        *,
        patience: float,
        changed: Callable[[], None],
    ) -> None:
        """`options` are those of a line, `to_ask` those of a connection for one question; without a host.
        `patience` is the number of seconds for which refusals are followed."""
        self._slots = SlotMap(where.hosts, where.addresses, changed)
        self._options = options
        self._to_ask = to_ask
        self._patience = patience
        self._lines: dict[str, Line] = {}

    @property
    def lines(self) -> list[Line]:
        """All that were needed."""
        return list(self._lines.values())

    @property
    def is_sharded(self) -> bool:
        """Whether a hint is heard at the node with its topic only."""
        return self._slots.is_sharded

    def known(self) -> None:
        """Look, if nothing is known or there is a reason to doubt. Raises what keeps the first answer away:
        redis-py's `ConnectionError`, or `UnfitServer`."""
        if self._slots.wanted or not self._slots.places:
            self._look()
        if not self._slots.places:
            raise self._slots.trouble.with_traceback(None)  # it may be raised often

    def line(self, keys: Sequence[Argument]) -> Line:
        """The line to the node with the keys, connected; without keys, to any."""

        def connected(to: Exchange) -> Line:
            to.line.connect()
            return to.line

        return self.lead(keys, connected)

    def lead(self, keys: Sequence[Argument], attempt: Callable[[Exchange], R]) -> R:
        """Let `attempt` talk to the node that has the keys, which share a slot; without keys, to any.

        What a node refuses because it has not, or not yet, what is asked for, or because it has become a
        replica, did nothing: it is tried again where the node says, or after a while, for as long as
        `patience` says. Raises `GivenUp` then if the node is well and the slot on its way, otherwise
        `StoreUnavailable`. All else is raised as it comes: a lost reply never leads to a second try.
        """
        self.known()
        way, deadline = Way(self._slots, keys), monotonic() + self._patience
        while True:
            told = self._told(attempt, way)
            if not isinstance(told, REFUSALS):
                reply: R = told
                return reply
            if way.sends_on(told):
                continue
            time.sleep(way.wait(deadline))
            if not way.asking:
                self.known()
                way.look_again()

    def doubt(self, line: Line) -> None:
        """Look at the Cluster before the next call, since the line was lost: its node may have died."""
        for place, each in self._lines.items():
            if each is line:
                self._slots.doubt(place)

    def _told(self, attempt: Callable[[Exchange], Any], way: Way) -> Any:
        """What came of a try, a refusal among it."""
        try:
            return attempt(Exchange(self._line(way.place), way.asking))
        except REFUSALS as refusal:  # of a connection, so that nothing was sent
            return refusal
        except (RedisError, OSError):
            self._slots.doubt(way.place)
            raise

    def _line(self, place: str) -> Line:
        line = self._lines.get(place)
        if line is None:
            host, port = self._slots.reachable(place)
            line = self._lines[place] = Line({**self._options, "host": host, "port": port})
        return line

    def _look(self) -> None:
        self._slots.wanted = False
        for place, address in self._slots.asked_in_turn():
            try:
                told, refusal = asked(self._to_ask, address, ("CLUSTER", "SLOTS"), SHARDED_PUBLISH)
                if isinstance(told, RedisError):
                    raise told
            except (RedisError, OSError) as failure:
                self._slots.failed(place, failure)
            else:
                if self._slots.take(place, told, is_sharded=not is_missing(str(refusal))):
                    return
