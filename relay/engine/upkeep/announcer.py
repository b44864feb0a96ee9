"""Says now and then that this relay lives."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

import anyio

from relay.core.endpoints.announcement import Announcement, Announcements
from relay.core.errors import ServiceError

EVERY = 10.0
"""Seconds between two words."""

PATIENCE = 2.0
"""Seconds that a word may take; the next one comes anyway. A relay that stops waits for its last one."""

Describe = Callable[[str, int], Announcement]
"""What a relay says of itself, given the id of its process and the seconds for which it has been there."""

log = logging.getLogger(__name__)


class Announcer:  # see 0128
    """Announces one relay. Nothing depends on it but what others show of this relay, so a word that is lost
    is not repeated."""

    def __init__(self, announcements: Announcements, describe: Describe) -> None:
        self._announcements = announcements
        self._describe = describe
        self._began = anyio.current_time()
        self._told = False
        self.instance = secrets.token_hex(6)

    async def run(self) -> None:
        """Announce until cancelled, and take leave."""
        try:
            while True:
                await self.step()
                await anyio.sleep(EVERY)
        finally:
            with anyio.move_on_after(PATIENCE, shield=True):
                await self._leave()

    async def step(self) -> None:
        """Announce once."""
        up = round(anyio.current_time() - self._began)
        try:
            with anyio.move_on_after(PATIENCE):
                await self._announcements.announce(self._describe(self.instance, up))
        except ServiceError as failure:
            log.log(
                logging.DEBUG if self._told else logging.INFO,
                "this relay could not be announced: consoles of other relays don't show it",
                extra={"reason": str(failure)},
            )
            self._told = True

    async def _leave(self) -> None:
        try:
            await self._announcements.leave(self.instance)
        except ServiceError as failure:
            log.debug("this relay could not take leave", extra={"reason": str(failure)})
