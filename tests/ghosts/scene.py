"""One scene for all stories: a Valkey, two relays behind a slow line, and another one beside it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from relay.core.instants import SECOND
from tests.ghosts.callers import Caller
from tests.ghosts.slow_line import SlowLine
from tests.ghosts.stories import HOUR, PATIENT, Story, answered
from tests.worlds.relay.processes import Relay
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

HASTY, PATIENT_TTL = 0.1, 60.0
"""Seconds that a script call of these relays may take until Redis refuses it."""


class Scene(Stage):
    """The bytes of `hasty` and `patient` go by `line`, which can hold them back. `hasty` gives each call
    little time, `patient` as much as its caller has."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.line = SlowLine(self.server.port)
        self.hasty = self._relay("hasty", self.line.url, HASTY)
        self.patient = self._relay("patient", self.line.url, PATIENT_TTL)
        self.other = self._relay("other", self.server.url, PATIENT_TTL)
        self._threads = ThreadPoolExecutor(4)
        self._told = 0

    def _relay(self, name: str, url: str, write_ttl: float) -> Relay:
        return self.relay(name, {"RELAY_REDIS__WRITE_TTL": str(write_ttl)}, url=url)

    def close(self) -> None:
        """As in `Stage`."""
        super().close()
        self.line.close()
        self._threads.shutdown(cancel_futures=True)

    def tell(self, story: type[Story], topic: str) -> Story:
        """A story of a timer that no other story is about."""
        self._told += 1
        due = int(time.time() + 3600) * SECOND + self._told
        return story(topic, f"timer-{secrets.token_hex(4)}", due, due + HOUR)

    def tried(self, first: Callable[[], None]) -> Future[bool]:
        """Make a call in a thread. The result: whether it was answered."""
        return self._threads.submit(answered, first)

    def given_up(
        self,
        story: Story,
        caller: Caller,
        timeout: float = PATIENT,
        *,
        line: SlowLine | None = None,
        mark: str = "",
        hang_up: bool = False,
        pass_on: bool = False,
    ) -> bool:
        """Make the first call of a story while a line holds its bytes back, until its caller has an error;
        see `SlowLine` for the ways. `mark` is what they have in them, if it is not the story's own.

        Return whether the bytes were on their way: a caller with little time may be gone before that.
        """
        line = line or self.line
        line.hold(mark or story.mark, pass_on=pass_on)
        call = self.tried(lambda: story.first(caller, timeout))
        eventually(lambda: line.holds or call.done(), "the bytes are on their way")
        if hang_up:
            line.hang_up()
        assert not call.result(PATIENT), "there was an answer, and nobody has run the call"
        return line.holds
