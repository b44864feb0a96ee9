"""A timer at another instant, with what it carries, or with another payload."""

from __future__ import annotations

from relay.api.access import Access
from relay.core import validate
from relay.core.errors import InvalidField, TimerNotFound
from relay.core.timers import Change, Condition, NewTimer, Scheduled, StoredTimer
from relay.core.trust.verbs import AccessVerb
from relay.engine.engine import Engine


class TimerMoves:  # see 0122
    """Moves timers by the verbs `read`, `payload` and `schedule`: a timer is read, and scheduled again."""

    def __init__(self, engine: Engine, access: Access | None = None) -> None:
        self._engine = engine
        self._access = access or Access()

    async def read(self, topic: str, timer_id: str) -> StoredTimer:
        """The timer that may be moved, with the digest of its content. Raises `Denied`, `InvalidField`,
        `TimerNotFound` and `ContentSealed`."""
        for verb in (AccessVerb.SCHEDULE, AccessVerb.READ, AccessVerb.PAYLOAD):
            self._access.require(verb, topic)
        found = await self._engine.get(self._engine.admit("topic", topic), timer_id)
        if found is None:
            raise TimerNotFound.of(topic, timer_id)
        return found

    async def move(
        self,
        topic: str,
        timer_id: str,
        seen: Condition,
        due: int,
        *,
        payload: bytes | None = None,
        expires_after: int | None = None,
    ) -> Scheduled:
        """Give a timer another due time, and another `payload` unless that is None, if it is still as it was
        seen and is not being delivered. Instants and lengths are in microseconds.

        Between the read and the write others may schedule the same timer, also for the same instant and with
        other contents: the script compares both, so the newest intent stands. Raises `InvalidField`, and what
        `read` raises.
        """
        found = await self.read(topic, timer_id)
        validate.due(due)
        if payload is not None:
            validate.payload(payload, self._engine.max_payload_bytes(topic))
        if expires_after is not None and expires_after <= 0:
            raise InvalidField("expires", "is not above 0; give more, or leave it out")
        if seen.content != found.digest:  # what this call has read must not be written in its place
            return Scheduled(found.due, Change.UNCHANGED)
        timer = NewTimer(
            timer_id,
            found.payload if payload is None else payload,
            due,
            headers=found.headers,
            content_type=found.content_type,
            expires_after=expires_after,
            condition=seen,
        )
        result = await self._engine.schedule(topic, timer)
        if result.change is Change.GONE:
            raise TimerNotFound.of(topic, timer_id)
        return result
