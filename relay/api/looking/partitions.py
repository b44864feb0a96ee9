"""The partitions of a topic side by side."""

from __future__ import annotations

from collections.abc import Sequence

from relay.api.access import Access
from relay.core import validate
from relay.core.timers import TopicStats
from relay.core.trust.verbs import AccessVerb
from relay.engine.engine import Engine


class PartitionCalls:
    """Reads how partitions stand, by the verb `read`."""

    def __init__(self, engine: Engine, access: Access | None = None) -> None:
        self._topics = engine.topics
        self._access = access or Access()

    async def parts(self, topic: str, *, first: int, most: int) -> Sequence[TopicStats]:
        """Read `most` partitions of a topic at most, from number `first` on. One script call for each. Raises
        `InvalidField` and `Denied`."""
        self._access.require(AccessVerb.READ, topic)
        return await self._topics.parts(validate.topic("topic", topic), first=first, most=most)
