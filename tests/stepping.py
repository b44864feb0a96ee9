"""The clock of a server, which a test steps by libfaketime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.missing import need, skip


class SteppingClock:
    """The machine's clock, and a number of seconds that `step` changes. The monotonic clock goes on.

    A server that is started with `environment` goes by it. Skips the test where libfaketime is missing.
    """

    def __init__(self, directory: Path) -> None:
        need("faketime")
        library = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
        if library is None:
            skip("libfaketime", "apt-get install faketime")
        self._ahead = directory / "ahead"
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._ahead),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        self.step(0)

    def step(self, seconds: int) -> None:
        """Let the clock be so many seconds ahead of the machine's; a negative number is behind it."""
        told = self._ahead.with_suffix(".new")
        told.write_text(f"{seconds:+d}\n")
        told.replace(self._ahead)  # the server reads it at each look at its clock
