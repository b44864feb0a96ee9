"""Which partitions topics have, for whoever loads or reads them in bulk."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

from relay.core.errors import InvalidField
from relay.core.partitions import Layout
from relay.store.server.blocking import BlockingServer
from relay.store.verbs import layout

MOVE_WAIT = 60.0
"""Seconds for which a load waits for a move's end. Spark takes a task that waits for one that works."""

LOOK = 0.25
"""Seconds between two looks while a topic moves."""

MOVES = (
    "{topic!r} moves from {layout.count} to {layout.towards} partitions{waited}; begin again when that has "
    "ended: `relay topics reshard {topic} --partitions {layout.towards}` waits for it"
)


def one(_topic: str) -> int:
    """The partitions of a new topic where nobody says how many."""
    return 1


class BulkLayouts:
    """The layouts of the topics on a server, as far as they were asked for. `wished` says how many partitions
    a new topic is to have.

    Whoever loads works by layouts of topics at rest, and waits while a topic moves. A call by a layout that
    is over is refused by the partition's text, and may be begun again: see `relay.store.bulk.columns_call`.
    """

    def __init__(self, server: BlockingServer, wished: Callable[[str], int] = one) -> None:
        self._server = server
        self._wished = wished
        self._known: dict[str, Layout] = {}

    def known_at_rest(self, topic: str) -> Layout | None:
        """The layout of a topic, if that was asked for, and the topic did not move then."""
        found = self._known.get(topic)
        return None if found is None or found.towards else found

    def at_rest(self, topic: str, patience: float | None = None) -> Layout:
        """The layout of a topic, and a new topic gets one. While its timers move, wait for `patience` seconds
        (`MOVE_WAIT`). Raises `StoreError`; `InvalidField` if the topic still moves then."""
        found = self.known_at_rest(topic) or self.ask(topic)
        waits = MOVE_WAIT if patience is None else patience
        deadline = monotonic() + waits
        while found.towards:
            if monotonic() > deadline:
                raise still_moves(found, waits)
            sleep(min(LOOK, waits / 4))
            found = self.ask(topic)
        return found

    def ask(self, topic: str) -> Layout:
        """The layout that Redis has, and a new topic gets one. Raises `StoreError`."""
        known, wished = self._known.get(topic), self._wished(topic)
        if wished == 1 and known is None:  # most topics: one command, and no further right
            return self.look_up(topic)
        call = layout.begin(topic, wished, known.text if known is not None else "")
        return self.learn(topic, self._server.call(call))

    def look_up(self, topic: str) -> Layout:
        """The layout that Redis has; nothing begins by this. Raises `StoreError`."""
        return self._newer(self._server.layout_now(topic))

    def learn(self, topic: str, text: bytes | str) -> Layout:
        """Take in what Redis says of a topic. Raises `StoreRefused` for a text that is not a layout."""
        return self._newer(self._server.keys.read_layout(topic, text))

    def _newer(self, found: Layout) -> Layout:
        known = self._known.get(found.topic)
        if known is None or not 0 < found.epoch < known.epoch:  # else the answer is an old one
            self._known[found.topic] = found
        return self._known[found.topic]


def still_moves(moving: Layout, waited: float = 0.0) -> InvalidField:
    """The error for a topic that moves, and the command that waits until it does not."""
    told = f", and did for {waited:.0f} s" if waited else ""
    return InvalidField("topic", MOVES.format(topic=moving.topic, layout=moving, waited=told))
