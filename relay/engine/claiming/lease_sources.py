"""Where the deliveries of each topic come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relay.core.dispatch import Dispatch
from relay.core.outcomes import (
    NO_LIMITS,
    Acknowledged,
    Extension,
    Limits,
    Settled,
    Settlement,
    Verdict,
)
from relay.core.policy import TopicPolicy
from relay.core.ports import LeaseSource
from relay.core.timers import Claim


class Sources:  # see 0042
    """A `LeaseSource` that asks `timelines`, or `groups` of topics with a stream."""

    def __init__(
        self, timelines: LeaseSource, groups: LeaseSource, policy: Callable[[str], TopicPolicy]
    ) -> None:
        self._timelines = timelines
        self._groups = groups
        self._policy = policy

    def _of(self, topic: str) -> LeaseSource:
        return self._groups if self._policy(topic).dispatch is Dispatch.STREAM else self._timelines

    async def claim(
        self,
        topic: str,
        *,
        limit: int,
        lease: int,
        nonce: bytes,
        max_bytes: int,
        limits: Limits = NO_LIMITS,
    ) -> Claim:
        """See `LeaseSource.claim`."""
        return await self._of(topic).claim(
            topic, limit=limit, lease=lease, nonce=nonce, max_bytes=max_bytes, limits=limits
        )

    async def settle(
        self,
        topic: str,
        settlements: Sequence[Settlement],
        *,
        acknowledged: Sequence[Acknowledged] = (),
        limits: Limits = NO_LIMITS,
    ) -> list[Settled]:
        """See `LeaseSource.settle`."""
        return await self._of(topic).settle(topic, settlements, acknowledged=acknowledged, limits=limits)

    async def extend(self, topic: str, extensions: Sequence[Extension], *, lease: int) -> list[Verdict]:
        """See `LeaseSource.extend`."""
        return await self._of(topic).extend(topic, extensions, lease=lease)
