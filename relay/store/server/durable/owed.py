"""What a load has written and what its OK still has to wait for: one wait for all of it, at its end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from relay.core.durability import STORED, Durability
from relay.core.errors import DurabilityMissed
from relay.core.partitions import topic_of
from relay.store.keys import KeyNames
from relay.store.server.durable.offer import (
    FSYNCS,
    PACE,
    SYNC_INTERVAL,
    Replicas,
    files_at_rest,
    look,
    missing,
    wait_command,
)
from relay.store.server.errors import CantGiveNow
from relay.store.server.line import Line, packed
from relay.store.server.manifest import text_of
from relay.store.server.scripts import Prepared

WRITTEN = text_of("lib/written")

SHARE = 0.8
"""The part of the time in which a server has to answer that a wait may take."""


@dataclass(slots=True)
class _Debt:
    """What was written over one line. `made` tells the connection that it went over.

    `keys` are to be written behind it, one for each topic or partition: a node refuses one whose slot has
    moved to another since, and with it what was written.
    """

    made: int
    level: Durability
    keys: dict[str, None] = field(default_factory=dict)


class Owed:  # see 0099
    """The changes that a thread has made to topics with a durability, by the lines they went over.

    A load waits once, behind all of its batches, on the connections that they went over. One that was made
    again in between may lead to another server, or to one that was restarted and has lost what it had in
    memory. So what went over the one before is not known to be durable, and the load has to be run again.
    """

    def __init__(self, keys: KeyNames, level_of: Callable[[str], Durability], timeout: float) -> None:
        """`level_of` tells the durability of a topic; `timeout` (seconds) is that of the lines."""
        self._keys = keys
        self._level_of = level_of
        self._timeout = timeout
        self._replicas = Replicas()
        self._debts: dict[Line, _Debt] = {}

    def level(self, name: str) -> Durability:
        """The durability that changes of a topic or partition must have."""
        return self._level_of(topic_of(name))

    @property
    def any(self) -> bool:
        """Whether there is something to wait for."""
        return bool(self._debts)

    def note(self, line: Line, call: Prepared) -> None:
        """Note that a script is sent over a line. Raises `DurabilityMissed` if the line is not the one any
        more over which others went before."""
        if call.script.writes:
            self.owe(line, call.topic)

    def owe(self, line: Line, name: str) -> None:
        """The same of whatever a load before may have written to a topic or partition, and not have waited
        for. Raises `DurabilityMissed` as `note` does."""
        if not (level := self.level(name)).waits:
            return
        debt = self._debts.get(line)
        if debt is None:
            debt = self._debts[line] = _Debt(line.made, STORED)
        debt.level = debt.level.joined(level)
        debt.keys[self._keys.key("written", name)] = None
        self._check(line, debt)

    def require(self, line: Line, name: str) -> None:
        """Find out, before anything is written to a topic, whether the line's server can give its durability.
        Nothing else may be under way. Raises `CantGive`, `DurabilityMissed`, redis-py's errors."""
        if not (level := self.level(name)).waits:
            return
        line.connect()
        self._asked(line, level)

    def forget(self) -> None:
        """Wait for nothing that was noted: its lines are left, and nobody was told that it is durable."""
        self._debts.clear()

    def settle(self) -> None:
        """Wait until all has the durability that it must have. Nothing else may be under way. Raises
        `DurabilityMissed`, `CantGive`, redis-py's errors."""
        debts, self._debts = self._debts, {}
        for line, debt in debts.items():
            self._check(line, debt)
            line.connect()
            self._check(line, debt)
            level = debt.level
            if level.replicas and level.fsync:
                self._wait(line, debt, Durability(replicas=level.replicas))
            # Its word, as any replica's, does not count before an fsync has begun: see 0096.
            if self._asked(line, level) is not None or (level.fsync and level.replicas):
                self._wait_synced(line, debt, level)
            else:
                self._wait(line, debt, level)
            self._check(line, debt)

    def _wait_synced(self, line: Line, debt: _Debt, level: Durability) -> None:
        """See `GroupCommit._until_synced`, which goes by the same.

        The race: an fsync takes longer than two seconds. Then the server writes beside it, and counts the
        second until the next one from there; so that one may begin a second behind the end of the first,
        however long ago the last write was.
        """
        end = monotonic() + self._timeout * SHARE
        before, after = None, _at_rest(line, end)
        while before != after:
            before = after
            time.sleep(SYNC_INTERVAL)
            self._wait(line, debt, level)
            after = _at_rest(line, end)

    def _wait(self, line: Line, debt: _Debt, level: Durability) -> None:
        milliseconds = math.ceil(self._timeout * SHARE * 1_000)
        commands = [*(("EVAL", WRITTEN, 1, key) for key in debt.keys), wait_command(level, milliseconds)]
        *written, reached = line.replies(b"".join(map(packed, commands)), len(commands))
        refused = next((each for each in written if isinstance(each, BaseException)), None)
        problem = missing(level, refused or reached)
        if problem:
            raise DurabilityMissed(_words(level, problem))

    def _asked(self, line: Line, level: Durability) -> bytes | None:
        """See `look`. Raises `DurabilityMissed` if replicas are away that were there before."""
        steps, reply = look(level, self._replicas), None
        try:
            while True:
                command = steps.send(reply)
                (reply,) = line.replies(packed(command), 1)
        except StopIteration as end:
            process: bytes | None = end.value
            return process
        except CantGiveNow as lack:
            raise DurabilityMissed(_words(level, str(lack))) from lack

    @staticmethod
    def _check(line: Line, debt: _Debt) -> None:
        if line.made != debt.made:
            raise DurabilityMissed(_words(debt.level, "the connection was lost in between"))


def _at_rest(line: Line, end: float) -> list[bytes]:
    """Wait until `end` for a moment at which no fsync is under way; see `files_at_rest`."""
    while True:
        (reply,) = line.replies(packed(FSYNCS), 1)
        files = files_at_rest(reply)
        if files is not None:
            return files
        if monotonic() > end:
            raise DurabilityMissed(
                _words(Durability(fsync=True), "the server's disk did not have it in time")
            )
        time.sleep(PACE)


def _words(level: Durability, problem: str) -> str:
    return (
        f"durability: {level} was not reached: {problem}; what was written stands, but may be lost with the "
        "server: run the load again"
    )
