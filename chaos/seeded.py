"""Bugs that the judge has to find: each is put into a copy of the code, by which the relays of a row are started.

Whoever changes a line that one of them stands for changes it here as well: `tests` hold each text to the tree.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
COPIED = ("relay", "lua")
"""The folders of which a relay is made."""


@dataclass(frozen=True, slots=True)
class Change:
    """In `file`, `before` stands once; the bug has `after` there."""

    file: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class SeededBug:
    """A bug: what is wrong, the row that meets it, and the column of the page in which it shows."""

    name: str
    row: str
    shows: str
    changes: tuple[Change, ...]

    def put_into(self, copy: Path) -> None:
        """Make a copy of the code with the bug in it. Raises `ValueError` if a text does not stand there once."""
        for folder in COPIED:
            shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for change in self.changes:
            file = copy / change.file
            text = file.read_text()
            if text.count(change.before) != 1:
                raise ValueError(f"{self.name}: this stands {text.count(change.before)} times in {change.file}")
            file.write_text(text.replace(change.before, change.after))


def _bug(name: str, row: str, shows: str, *changes: tuple[str, str, str]) -> SeededBug:
    return SeededBug(name, row, shows, tuple(Change(*change) for change in changes))


CLAIM, SETTLE, SCHEDULE = "lua/timeline/claim.lua", "lua/timeline/settle.lua", "lua/timeline/schedule.lua"
LIFE, OUTCOMES, TURN = "lua/lib/life.lua", "lua/lib/outcomes.lua", "lua/recur/turn.lua"
GROUP_COMMIT = "relay/store/server/group_commit.py"

BUGS = (
    # ------------------------------------------------------------------------------ scripts
    _bug(
        "timers are claimed half a second before they are due",
        "calm",
        "early",
        (CLAIM, "number(now_us / 1e6), 'WITHSCORES'", "number(now_us / 1e6 + 0.5), 'WITHSCORES'"),
    ),
    _bug(
        "an ACK needs no valid token",
        "calm",
        "lost",
        (SETTLE, "elseif not holds(score,", "elseif verb ~= 'ack' and not holds(score,"),
    ),
    _bug(
        "a NACK removes the timer",
        "calm",
        "lost",
        (SETTLE, "elseif verb == 'ack' then", "elseif verb == 'ack' or verb == 'nack' then"),
    ),
    _bug(
        "a timer that is replaced keeps its payload",
        "calm",
        "undone",
        (
            SCHEDULE,
            "stored[2 * size + 1], stored[2 * size + 2] = id, ARGV[tail + 3 * n - 1]",
            "stored[2 * size + 1] = id\n"
            "    stored[2 * size + 2] = there and redis.call('HGET', payloads, id) or ARGV[tail + 3 * n - 1]",
        ),
    ),
    _bug(
        "a cancel is answered and not done",
        "calm",
        "undone",
        ("lua/timeline/cancel.lua", "if #gone > 0 then -- @rule refused", "if #gone > 1e6 then -- @rule refused"),
    ),
    _bug(
        "a NACK does not count the attempt",
        "calm",
        "uncounted",
        (OUTCOMES, "r.attempts = r.attempts + 1 -- @rule nack-counts\n", ""),
    ),
    _bug(
        "a lease that is over does not count the attempt",
        "relay killed",
        "uncounted",
        (LIFE, "r.attempts = r.attempts + r.received -- @rule lapse-counts-receipt\n", ""),
    ),
    _bug(
        "a redrive takes the dead letter out, and puts no timer in",
        "calm",
        "lost",
        (
            "lua/people/redrive.lua",
            "  redis.call('ZADD', timeline, unpack(moved))\n  redis.call('HSET', payloads, unpack(stored))\n"
            "  redis.call('HSET', leases, unpack(kept)) -- @rule redrive-writes-record\n",
            "",
        ),
    ),
    _bug(
        "a call acts however late it comes",
        "bytes held back",
        "undone",
        ("lua/lib/given_up.lua", "return now_us > us end", "return now_us > us + 3.6e9 end"),
    ),
    # ------------------------------------------------------------------------------ ticks
    _bug(
        "a tick leaves an instant out",
        "calm",
        "instants lost",
        (TURN, "        take_in(each)\n", "        if now_us % 5 > 0 then take_in(each) end\n"),
    ),
    _bug(
        "two relays tick at once",
        "calm",
        "instants twice",
        (TURN, "if redis.call('HGET', standings, id) ~= stood then", "if false then"),
        (TURN, "elseif last_stands(stood) ~= there then", "elseif false then"),
    ),
    # ------------------------------------------------------------------------------ settler, lease keeper
    _bug(
        "one outcome in ten is forgotten",
        "calm",
        "twice",
        (
            "relay/engine/delivery/settler.py",
            "            waiting.append(ends)\n",
            "            if self._clock.now() * 1000 % 10 > 1:\n                waiting.append(ends)\n",
        ),
    ),
    _bug(
        "leases are not renewed",
        "calm",
        "twice",
        (
            "relay/engine/delivery/lease_keeper.py",
            "elif lease.token in self._urgent or self._aged(lease):",
            "elif lease.token in self._urgent:",
        ),
    ),
    _bug(
        "a lease is renewed for an hour",
        "relay killed",
        "longest redelivery",
        (
            "relay/engine/delivery/lease_keeper.py",
            "lease=micros(ttl))",
            "lease=micros(3600.0))",
        ),
    ),
    # ------------------------------------------------------------------------------ moves
    _bug(
        "a move's batch is not written at its new place",
        "partitions moved",
        "lost",
        ("lua/move/put.lua", "local entries = insert(tail, name, ARRIVED)", "local entries = {}"),
    ),
    _bug(
        "a partition that timers leave takes new ones in",
        "partitions moved",
        "lost",
        (SCHEDULE, "if here.leaving and not there then", "if false then"),
    ),
    # ------------------------------------------------------------------------------ durability
    _bug(
        "an OK does not wait for the disk",
        "power lost",
        "lost",
        (GROUP_COMMIT, "            await self._settled(asked)\n", ""),
    ),
    _bug(
        "an OK does not wait for the replica",
        "failover",
        "lost",
        (GROUP_COMMIT, 'return "WAIT", level.replicas, milliseconds', 'return "WAIT", 0, milliseconds'),
        (GROUP_COMMIT, "return missing(level, reached)", 'return ""'),
    ),
    # ------------------------------------------------------------------------------ calls
    _bug(
        "a call whose answer was lost is answered OK",
        "redis killed",
        "lost",
        (
            "relay/engine/engine.py",
            "        except PartlyDone as partly:\n            self._scheduled(partition,",
            "        except __import__("relay.core.errors", fromlist=["x"]).StoreUnavailable:\n"
            "            return [Scheduled(due=None, change=Change.CREATED)] * len(timers)\n"
            "        except PartlyDone as partly:\n            self._scheduled(partition,",
        ),
    ),
    _bug(
        "a relay that lost sight of Redis does not claim again",
        "redis killed",
        "longest stretch",
        (
            "relay/engine/redis_health.py",
            '            log.warning("Redis is back", extra=self._about)\n',
            '            log.warning("Redis is back", extra=self._about)\n            return\n',
        ),
    ),
)


def copies(folder: Path) -> Iterator[tuple[SeededBug, Path]]:
    """Each bug with a copy of the code that has it."""
    for number, bug in enumerate(BUGS):
        copy = folder / f"{number}"
        bug.put_into(copy)
        yield bug, copy
