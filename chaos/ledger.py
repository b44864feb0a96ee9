"""Ledgers: what callers, handlers and the nemesis wrote down themselves, while it happened.

One file for each process, of JSON lines; a line is one `write` to a file that is only appended to, so none is
lost with its process. Times are CLOCK_MONOTONIC, which all processes of a machine share; nothing here is
Relay's own, and nothing is believed that Relay says of itself.

    ask     a try begins: id, n (the intent: 1 is the timer's first call, and so on), what, due, level
    answer  … and is over: id, n, ok; of an error code and said (its words), otherwise reached, and next of a
            recurrence's put or pause; none of a pause that has found no recurrence
    begin   a handler begins: id, n, due, attempt, occurrence, deadline (the lease's), relay
    end     … and ends: the same, and outcome
    clock   a server's clock was read: port, time, master, sent and heard (when it was asked, and answered),
            full (it takes no writes, for its disk is full)
    strike, heal, loss, death, note   of the nemesis; see `chaos.world`
    load    of the machine: busy, stolen, waiting
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


class Ledger:
    """Appends to a file of its own: `name` may be any number of processes one after the other."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self._file = os.open(directory / f"{name}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, **fields: Any) -> None:
        """One line, with the monotonic time and the wall clock's."""
        line = {"kind": kind, "at": time.monotonic(), "wall": time.time(), "by": self.name, **fields}
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read(directory: Path) -> list[Entry]:
    """All entries of all ledgers, by their times."""
    return merged(lines(path) for path in sorted(directory.glob("*.jsonl")))


def merged(ledgers: Iterable[Iterable[Entry]]) -> list[Entry]:
    """The same of ledgers in memory."""
    return sorted((entry for ledger in ledgers for entry in ledger), key=lambda entry: entry["at"])


def lines(path: Path) -> Iterator[Entry]:
    """The entries of one ledger; a last line that was not finished is left out."""
    whole = path.read_bytes().rpartition(b"\n")[0]
    return map(json.loads, whole.splitlines())
