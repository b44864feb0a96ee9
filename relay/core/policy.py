"""What may be tuned per topic, as the engine needs it; `relay.settings` documents the values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """One topic's policy. All times in seconds."""

    polling_interval: float = 0.05
    max_polling_interval: float = 5.0
    lease_ttl: float = 30.0
    renew: bool = True
    delivery_timeout: float = 600.0
    claim_batch: int = 300
    max_payload_bytes: int = 1 << 20

    @property
    def lifetime(self) -> float:
        """How long a silent delivery keeps its lease (seconds)."""
        return self.delivery_timeout if self.renew else self.lease_ttl
