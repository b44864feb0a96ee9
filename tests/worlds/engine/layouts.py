"""Topics of several partitions on a store in memory, which keeps each partition by its name."""

from __future__ import annotations

from collections.abc import Callable

from relay.core.errors import OtherLayout
from relay.core.partitions import Layout
from tests.worlds.engine.doubles import Doors


class GatedLayouts:
    """`Layouts` in the test's hand. Topics have one partition each, unless the test says otherwise; the
    question `ask` goes through the store's doors."""

    def __init__(self, doors: Doors) -> None:
        self.changed: list[Callable[[str], None]] = []
        self._doors = doors
        self._there: dict[str, Layout] = {}
        self._known: dict[str, Layout | None] = {}

    def put(self, topic: str, count: int, *, known: bool = True, presumed: bool = False) -> Layout:
        """Give a topic `count` partitions. `known`: callers know the number already; `presumed`: they believe
        in one partition until the store refuses a call."""
        layout = self._there[topic] = Layout(topic, 1, count)
        if known and not presumed:
            return self._learn(topic)
        self._known[topic] = Layout(topic) if presumed else None
        return layout

    def there(self, topic: str) -> Layout:
        """The layout that the topic has, whoever knows."""
        return self._there.get(topic, Layout(topic))

    def known(self, topic: str) -> Layout | None:
        return self._known.get(topic, Layout(topic))

    async def ask(self, topic: str) -> Layout:
        async def answer() -> Layout:
            return self._learn(topic)

        return await Doors.through(self._doors, "ask", topic, answer)  # which is never refused

    def check(self, name: str) -> None:
        """Refuse a call as Redis does, and learn from it. Raises `OtherLayout`."""
        if name in self._there:
            layout = self._learn(name)
            raise OtherLayout(f"{layout.epoch} {layout.count}")

    def _learn(self, topic: str) -> Layout:
        layout = self.there(topic)
        if self._known.get(topic) != layout:
            self._known[topic] = layout
            for changed in self.changed:
                changed(topic)
        return layout
