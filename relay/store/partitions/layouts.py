"""Which partitions each topic has, as far as this process knows."""

from __future__ import annotations

import logging
from collections.abc import Callable

from relay.core.errors import StoreRefused
from relay.core.partitions import Layout, topic_of
from relay.store.server.server import Server
from relay.store.verbs import layout

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
        server.other_layout, server.share = self.learn, self._share

    def known(self, topic: str) -> Layout | None:
        """See `Layouts.known`."""
        found = self._known.get(topic)
        if found is None and self._wished(topic) == 1:
            found = self._known[topic] = Layout(topic)
        return found

    def _share(self, partition: str, total: int) -> int:
        layout = self.known(topic_of(partition))
        return total if layout is None else layout.share(total)

    async def ask(self, topic: str) -> Layout:
        """See `Layouts.ask`. One script call."""
        wished = self._wished(topic)
        self.learn(topic, (await self._server.call(layout.begin(topic, wished))).decode())
        return self._known[topic]

    def learn(self, topic: str, text: str) -> None:
        """Take in what Redis says of a topic, and tell `changed` if that is new. Raises `StoreRefused` for a
        text that is not a layout."""
        found = _read(self._server, topic, text)
        before = self._known.get(topic)
        if before == found:
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
    key = server.keys.key("layout", topic)
    if await server.ask("TYPE", key) != b"string":
        return Layout(topic)
    return _read(server, topic, (await server.ask("GET", key) or b"").decode(errors="replace"))


def _read(server: Server, topic: str, text: str) -> Layout:
    try:
        return Layout.parse(topic, text)
    except ValueError as problem:
        raise StoreRefused(f"{server.keys.key('layout', topic)}: {problem}") from None
