"""The names of all Redis keys and channels, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyNames:
    """The prefixes; a topic's key is `prefix:topic`."""

    timeline: str = "timers_timeline"
    payloads: str = "timers_payloads"
    leases: str = "timers_leases"
    wake: str = "timers_wake"

    def of(self, topic: str) -> tuple[str, str, str]:
        """Timeline, payloads and leases, in the order in which every script takes them."""
        return f"{self.timeline}:{topic}", f"{self.payloads}:{topic}", f"{self.leases}:{topic}"

    def channel(self, topic: str) -> str:
        """The pub/sub channel of the topic's wake hints."""
        return f"{self.wake}:{topic}"
