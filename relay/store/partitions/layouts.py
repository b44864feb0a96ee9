"""Which partitions each topic has, as far as this process knows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import anyio

from relay.core.errors import StoreError, WrongKeyType
from relay.core.partitions import Layout
from relay.core.ports import share
from relay.store.partitions.for_each import for_each
from relay.store.server.server import Server
from relay.store.verbs import layout

LOOK = 5.0
"""Seconds between two looks at the layouts that are known."""

log = logging.getLogger(__name__)


class RedisLayouts:
    """The `Layouts` of the topics on a server. `wished` says how many partitions a new topic is to have.

    A topic that is to have one is taken for one of one, without a question, until Redis refuses a call and
    says that it has several: most topics have one, and this costs them nothing.
    """

    def __init__(self, server: Server, wished: Callable[[str], int] = lambda _: 1) -> None:
        self.changed: list[Callable[[str], None]] = []
        self._server = server
        self._wished = wished
        self._known: dict[str, Layout] = {}
        self._missed: set[str] = set()
        """The topics whose layouts Redis lacks, which the log has said."""
        server.other_layout, server.share = self.learn, partial(share, self)

    def known(self, topic: str) -> Layout | None:
        """See `Layouts.known`."""
        found = self._known.get(topic)
        if found is None and self._wished(topic) == 1:
            found = self._known[topic] = Layout(topic)
        return found

    async def ask(self, topic: str) -> Layout:
        """See `Layouts.ask`. One script call, which brings back what is known and Redis has lost."""
        known = self._known.get(topic)
        call = layout.begin(topic, self._wished(topic), known.text if known is not None else "")
        self.learn(topic, (await self._server.call(call)).decode())
        return self._known[topic]

    async def run(self) -> None:
        """Look every `LOOK` seconds, until cancelled."""
        while True:
            await anyio.sleep(LOOK)
            await self.look()

    async def look(self) -> None:
        """Bring back the layouts that Redis has lost, and learn those that are others now. One command for
        each topic that has a layout; what fails is looked at the next time.

        A call for a partition does not say that the layout is gone. Without it, a relay that starts would not
        find the timers of any partition but the first.
        """
        await for_each(self._look_at, [each for each in self._known.values() if each.epoch])

    async def _look_at(self, known: Layout) -> None:
        with suppress(StoreError):
            if await _text(self._server, known.topic) == known.text:
                self._missed.discard(known.topic)
                return
            if known.topic not in self._missed:
                self._missed.add(known.topic)
                log.warning(
                    "Redis has not the layout of a topic that it had: it has lost data, or somebody did that",
                    extra={"topic": known.topic, "partitions": known.count},
                )
            await self.ask(known.topic)

    def learn(self, topic: str, text: str) -> None:
        """Take in what Redis says of a topic, and tell `changed` if that is new. Raises `StoreRefused` for a
        text that is not a layout."""
        found = self._server.keys.read_layout(topic, text)
        before = self._known.get(topic)
        if before == found:
            return
        if before is not None and 0 < found.epoch < before.epoch:  # an answer that came late
            return
        self._known[topic] = found
        wished = self._wished(topic)
        if before is None and wished not in (1, found.count):
            log.warning(
                "the topic has another number of partitions than the setting, which is for new topics",
                extra={"topic": topic, "partitions": found.count, "setting": wished},
            )
        for changed in self.changed:
            changed(topic)


async def look_up(server: Server, topic: str) -> Layout:
    """The layout of a topic, in which nothing begins by this: for whoever only reads. Raises `StoreError`."""
    return server.keys.read_layout(topic, await _text(server, topic))


async def _text(server: Server, topic: str) -> str:
    """What stands in Redis, empty for a topic of one partition."""
    try:
        text = await server.ask("GET", server.keys.key("layout", topic))
    except WrongKeyType:  # lease records lie there then
        return ""
    return (text or b"").decode(errors="replace")
