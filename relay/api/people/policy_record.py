"""Records which policy is in force."""

from __future__ import annotations

import logging
from collections import deque

import anyio

from relay.api.people.actions import Actions
from relay.core.errors import ServiceError

PAUSE = 1.0
"""Seconds between two tries while Redis is away."""


log = logging.getLogger(__name__)


class PolicyRecord:
    """Hears of each policy that comes into force, at the start and when the file has changed, and records it
    once for all relays that read the same file."""

    def __init__(self) -> None:
        self._heard: deque[tuple[str, str]] = deque()
        self._news = anyio.Event()

    def hear(self, path: str, digest: str) -> None:
        """A policy with this digest is in force, from this file."""
        self._heard.append((path, digest))
        self._news.set()

    async def run(self, actions: Actions) -> None:
        """Record until cancelled; what Redis does not take is tried again."""
        failing = False
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._heard:
                try:
                    await actions.took_over_policy(*self._heard[0])
                    self._heard.popleft()
                    failing = False
                except ServiceError as failure:
                    if not failing:
                        log.warning(
                            "the action log can't be written; a policy in force is recorded later",
                            extra={"reason": str(failure)},
                        )
                    failing = True
                    await anyio.sleep(PAUSE)
