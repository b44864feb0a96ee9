"""What may be tuned per topic, as the engine needs it; `relay.settings` documents the values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relay.core import validate
from relay.core.errors import InvalidField


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """One topic's policy. All times in seconds.

    `target` is the application that the relay dials to push the topic's timers; empty where
    applications dial the relay.
    """

    polling_interval: float = 0.05
    max_polling_interval: float = 5.0
    lease_ttl: float = 30.0
    renew: bool = True
    delivery_timeout: float = 600.0
    claim_batch: int = 300
    max_payload_bytes: int = 1 << 20
    max_concurrent: int = 100
    target: str = ""

    @property
    def lifetime(self) -> float:
        """How long a silent delivery keeps its lease (seconds)."""
        return self.delivery_timeout if self.renew else self.lease_ttl


@dataclass(frozen=True, slots=True)
class Policies:
    """The policy of every topic: its `own`, or else the `default`.

    `closed`: only topics with an entry of their own are admitted.
    """

    default: TopicPolicy = TopicPolicy()
    own: Mapping[str, TopicPolicy] = field(default_factory=dict)
    closed: bool = False

    def __call__(self, topic: str) -> TopicPolicy:
        """The topic's policy."""
        return self.own.get(topic, self.default)

    def admit(self, field: str, topic: str) -> str:
        """The topic's name, if it is one and such a topic is admitted; raises `InvalidField`."""
        if self.closed and topic not in self.own:
            validate.name(field, topic)
            raise InvalidField(
                field, f"{topic!r} is not configured, and topics_closed is set; add it to topics"
            )
        return validate.name(field, topic)

    def pushed(self) -> dict[str, TopicPolicy]:
        """The topics whose timers the relay pushes."""
        return {topic: policy for topic, policy in self.own.items() if policy.target}
