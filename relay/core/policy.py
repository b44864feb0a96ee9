"""What may be tuned for each topic, in the form that the engine needs; `relay.settings` documents the
values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from relay.core import validate
from relay.core.dispatch import Dispatch, ListPolicy, StreamPolicy
from relay.core.durability import STORED, Durability
from relay.core.errors import InvalidField
from relay.core.instants import micros
from relay.core.outcomes import Limits
from relay.core.partitions import topic_of


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon a failed delivery is tried again. Times are in seconds; 0 means no limit.

    The wait before attempt n+1 is a random time between 0 and `initial` × `multiplier`^(n-1), at most `max`:
    with full jitter, timers that failed together do not come together again.
    """

    max_attempts: int = 25
    initial: float = 1.0
    multiplier: float = 2.0
    max: float = 600.0
    max_age: float = 0.0

    def delay(self, attempts: int, jitter: float) -> int:
        """Return the microseconds to wait after `attempts` failed attempts; `jitter` is a random number in
        [0, 1)."""
        try:
            longest = min(self.initial * self.multiplier ** max(attempts - 1, 0), self.max)
        except OverflowError:
            longest = self.max if self.initial else 0.0
        return micros(longest * jitter)


@dataclass(frozen=True, slots=True)
class HandlerPolicy:  # see 0129
    """What a topic's handler asks for, for the deliveries of its own stream; 0 and None ask for nothing.

    `max_attempts` is the attempt whose failure is a timer's death. `backoff` says how long to wait for the
    next one; its limits have no meaning here. `timeout` (seconds) is how long the handler may run.
    """

    max_attempts: int = 0
    backoff: RetryPolicy | None = None
    timeout: float = 0.0


@dataclass(frozen=True, slots=True)
class DeadLetterPolicy:
    """Whether dead timers are kept, and expired ones; how many, and for how long (seconds). 0 means no
    limit."""

    keep: bool = True
    keep_expired: bool = False
    max_count: int = 0
    max_age: float = 0.0


@dataclass(frozen=True, slots=True)
class TargetTls:
    """The files, as PEM, by which the relay knows an application that it dials, and proves who it is. Without
    `ca` it dials in the clear."""

    ca: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True)
class TopicPolicy:
    """One topic's policy. All times are in seconds.

    `target` is the application that the relay dials to push the topic's timers; it is empty if applications
    dial the relay; `target_tls` is for it. `max_waiting` is the number of timers that the topic may
    hold; 0 means any number. Rules of recurrences fire `min_recurrence_interval` apart, or further. A topic
    with a `journal` keeps its newest `journal_max_length` records. `dispatch` says where its due timers
    go; with a stream, `lease_ttl` is how long an entry may lie idle with a relay. `partitions` is
    the number that the topic has from its first timer on. `durability` is what an OK means at least. With
    `sealing` payloads and headers are sealed.
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
    target_tls: TargetTls = TargetTls()
    max_claims: int = 1_000
    max_waiting: int = 0
    min_recurrence_interval: float = 1.0
    journal: bool = False
    journal_max_length: int = 1_000_000
    sealing: bool = False
    retry: RetryPolicy = RetryPolicy()
    dead_letters: DeadLetterPolicy = DeadLetterPolicy()
    partitions: int = 1
    durability: Durability = STORED
    dispatch: Dispatch = Dispatch.LEASE
    stream: StreamPolicy = field(default_factory=StreamPolicy)
    ready: ListPolicy = field(default_factory=ListPolicy)

    @property
    def lifetime(self) -> float:
        """The seconds for which a silent delivery keeps its lease."""
        return self.delivery_timeout if self.renew else self.lease_ttl

    def narrowed(self, asked: HandlerPolicy) -> HandlerPolicy:
        """Return what holds of a handler's wishes: it may have fewer attempts and less time than the topic
        allows, which without renewals is its `lease_ttl`, and any back-off."""
        attempts = [most for most in (asked.max_attempts, self.retry.max_attempts) if most]
        return HandlerPolicy(
            max_attempts=min(attempts) if asked.max_attempts else 0,
            backoff=asked.backoff,
            timeout=min(asked.timeout, self.lifetime),
        )

    @property
    def journal_keeps(self) -> int:
        """The number of records that its journal keeps; 0 if it has none."""
        return self.journal_max_length if self.journal else 0

    @cached_property
    def limits(self) -> Limits:
        """The part of the policy that the store uses."""
        return Limits(
            max_attempts=self.retry.max_attempts,
            max_claims=self.max_claims,
            max_age=micros(self.retry.max_age),
            keep=self.dead_letters.keep,
            keep_expired=self.dead_letters.keep_expired,
        )


@dataclass(frozen=True, slots=True)
class Policies:
    """The policy of every topic: its `own`, or the `default`.

    With `closed` only topics with an entry of their own are admitted.
    """

    default: TopicPolicy = TopicPolicy()
    own: Mapping[str, TopicPolicy] = field(default_factory=dict)
    closed: bool = False

    def __call__(self, topic: str) -> TopicPolicy:
        """Return the policy of a topic, or of the topic of a partition."""
        found = self.own.get(topic)
        if found is None and "#" in topic:
            found = self.own.get(topic_of(topic))
        return self.default if found is None else found

    def admit(self, field: str, topic: str) -> str:
        """Return the topic's name if it is valid and the topic is admitted. Raises `InvalidField`."""
        if self.closed and topic not in self.own:
            validate.topic(field, topic)
            raise InvalidField(
                field, f"{topic!r} is not configured, and topics_closed is set; add it to topics"
            )
        return validate.topic(field, topic)

    def largest(self, topic: str) -> int:
        """Return the most bytes that a payload of the topic may have."""
        return self(topic).max_payload_bytes

    def durabilities(self) -> dict[str, Durability]:
        """Return what must be waited for, by the setting that asks for it."""
        asked = {f"topics.{topic}.durability": policy.durability for topic, policy in self.own.items()}
        asked["defaults.durability"] = self.default.durability
        return {setting: level for setting, level in asked.items() if level.waits}

    def seals(self, topic: str) -> bool:
        """Return whether the contents of a topic's timers are sealed."""
        return self(topic).sealing

    def pushed(self) -> dict[str, TopicPolicy]:
        """Return the topics whose timers the relay pushes."""
        return {topic: policy for topic, policy in self.own.items() if policy.target}

    def promoted(self) -> dict[str, TopicPolicy]:
        """Return the topics whose due timers leave the timeline for a list or a stream."""
        return {topic: policy for topic, policy in self.own.items() if policy.dispatch is not Dispatch.LEASE}
