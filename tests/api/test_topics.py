"""Topics as messages."""

from __future__ import annotations

from relay.api.topics import _topic
from relay.core.dispatch import Dispatch
from relay.core.timers import TopicStats


def test_the_number_of_partitions() -> None:
    """The message has the number only where a topic has several; any other message is as it always was."""
    stats = TopicStats("orders", 1, 2, 0, None, 0, None, None, partitions=8)
    assert _topic(stats, Dispatch.LEASE, None).partitions == 8
    single = TopicStats("orders", 1, 2, 0, None, 0, None, None)
    assert not _topic(single, Dispatch.LEASE, (1, 2)).HasField("partitions")
