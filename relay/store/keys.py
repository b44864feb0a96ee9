"""The names of all Redis keys and channels, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyNames:
    """The prefixes; a topic's key is `prefix:topic`.

    With `hash_tags` it is `prefix:{topic}`: a Redis Cluster keeps in one slot what shares the part
    in braces. Neither prefixes nor topics contain any.
    """

    timeline: str = "timers_timeline"
    payloads: str = "timers_payloads"
    leases: str = "timers_leases"
    wake: str = "timers_wake"
    hash_tags: bool = False

    def of(self, topic: str) -> tuple[str, str, str]:
        """Timeline, payloads and leases, in the order in which every script takes them."""
        tag = self._tag(topic)
        return f"{self.timeline}:{tag}", f"{self.payloads}:{tag}", f"{self.leases}:{tag}"

    def channel(self, topic: str) -> str:
        """The pub/sub channel of the topic's wake hints."""
        return f"{self.wake}:{self._tag(topic)}"

    def _tag(self, topic: str) -> str:
        return f"{{{topic}}}" if self.hash_tags else topic
