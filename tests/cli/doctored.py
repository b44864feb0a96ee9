"""What the tests of `relay doctor` share: servers as it wants them, and what it said."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from typer.testing import Result

from relay.store.examine import ServerFacts
from tests.servers import Kind, RunningServer, start_server

AOF = {"appendonly": "yes"}

WELL = ServerFacts(
    name="Redis 7.0.15",
    place="",
    slots=0,
    replicas=0,
    stops_alone=False,
    one_of_several=False,
    policy="noeviction",
    memory_used=1,
    memory_limit=0,
    aof=True,
    snapshots=False,
    writes_fail=False,
)


@contextmanager
def server(kind: Kind = "valkey", config: Mapping[str, str] | None = None) -> Iterator[RunningServer]:
    with start_server(kind, config={**AOF, **(config or {})}) as started:
        yield started


class Seen:
    """What the doctor said."""

    def __init__(self, result: Result) -> None:
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        self.code = result.exit_code
        self.lines = [json.loads(line) for line in result.stdout.splitlines()]

    def all_of(self, check: str) -> list[dict[str, Any]]:
        """The lines of a check."""
        return [line for line in self.lines if line["check"] == check]

    def of(self, check: str) -> tuple[str, str]:
        """The result and the message of the only line of a check."""
        (line,) = self.all_of(check)
        return line["result"], line["message"]

    def results(self, wanted: str) -> list[str]:
        return [line["check"] for line in self.lines if line["result"] == wanted]
