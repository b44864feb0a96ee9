"""Twenty bugs that the judge has to find: a row starts its relays from a copy of the code with one of them.

    python -m chaos.seeded               all of them, each in its row, for a few minutes each at most
    python -m chaos.seeded --bug 3       one of them

Whoever changes a line that a bug is in changes it here as well; `tests/faults` holds their texts to the code.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chaos.faults.network import CallsHeldBack
from chaos.faults.pods import PodKilled
from chaos.report.results import read, write
from chaos.rows import row
from chaos.run import end_by_sigterm, run
from tests.worlds.relay.processes import ROOT

COPIED = "relay", "lua"
"""The folders of which a relay is made."""
TIMERS, FAULTS, RATE = 600, 8, 40.0
"""The size of a row that looks for a bug."""
TRIES = 3
"""How often it is played at most, each time with another seed: a few bugs need a chance."""
RESULTS = ROOT / "chaos" / "report" / "seeded.jsonl"
"""What was found last, bug by bug."""


@dataclass(frozen=True, slots=True)
class Change:
    """In `file`, `before` stands once; the bug has `after` there."""

    file: str
    before: str
    after: str

    def made_in(self, root: Path) -> str:
        """The file with it. Raises `ValueError` if `before` does not stand there once."""
        text = (root / self.file).read_text(encoding="utf-8")
        if text.count(self.before) != 1:
            raise ValueError(f"this stands {text.count(self.before)} times in {self.file}: {self.before}")
        return text.replace(self.before, self.after)


@dataclass(frozen=True, slots=True)
class SeededBug:
    """What is wrong, the row that meets it, and the field of the verdict in which it shows. `fault` is the
    one of the row's that meets it, where others would only take time."""

    name: str
    row: str
    shows: str
    changes: tuple[Change, ...]
    fault: str = ""

    def put_into(self, copy: Path) -> None:
        """Make a copy of the code with the bug in it. Raises `ValueError` if its text is not there once."""
        for folder in COPIED:
            shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for change in self.changes:
            (copy / change.file).write_text(change.made_in(copy), encoding="utf-8")


def _bug(name: str, row: str, shows: str, *changes: tuple[str, str, str], fault: str = "") -> SeededBug:
    return SeededBug(name, row, shows, tuple(Change(*change) for change in changes), fault)


CLAIM, SETTLE, SCHEDULE = "lua/timeline/claim.lua", "lua/timeline/settle.lua", "lua/timeline/schedule.lua"
LIFE, OUTCOMES, TURN = "lua/lib/life.lua", "lua/lib/outcomes.lua", "lua/recur/turn.lua"
GROUP_COMMIT = "relay/store/server/group_commit.py"
OFFER = "relay/store/server/durable/offer.py"

BUGS = (
    # ------------------------------------------------------------------------------ scripts
    _bug(
        "timers are claimed half a second before they are due",
        "calm",
        "early",
        (CLAIM, "number((now_us - behind) / 1e6)", "number((now_us - behind) / 1e6 + 0.5)"),
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
            (
                "local before = there and redis.call('HGET', payloads, id)\n"
                "    stored[2 * size + 1], stored[2 * size + 2] = id, before or ARGV[tail + 3 * n - 1]"
            ),
        ),
    ),
    _bug(
        "a cancel is answered and not done",
        "calm",
        "undone",
        (
            "lua/timeline/cancel.lua",
            "if #gone > 0 then -- @rule refused",
            "if #gone > 1e6 then -- @rule refused",
        ),
    ),
    _bug(
        "a NACK does not count the attempt",
        "calm",
        "uncounted",
        (OUTCOMES, "r.attempts = r.attempts + 1 -- @rule nack-counts\n", ""),
    ),
    _bug(
        "a lease that is over does not count the attempt",
        "relay",
        "uncounted",
        (LIFE, "r.attempts = r.attempts + r.received -- @rule lapse-counts-receipt\n", ""),
        fault=PodKilled.name,
    ),
    _bug(
        "a redrive takes the dead letter out, and puts no timer in",
        "calm",
        "lost",
        (
            "lua/people/redrive.lua",
            (
                "  redis.call('ZADD', timeline, unpack(moved))\n"
                "  redis.call('HSET', payloads, unpack(stored))\n"
                "  redis.call('HSET', leases, unpack(kept)) -- @rule redrive-writes-record\n"
            ),
            "",
        ),
    ),
    _bug(
        "a call acts however late it comes",
        "network",
        "undone",
        ("lua/lib/given_up.lua", "return now_us > us or us", "return now_us > us + 3.6e9 or us"),
        fault=CallsHeldBack.name,
    ),
    # ------------------------------------------------------------------------------ ticks
    _bug(
        "a tick leaves an instant out",
        "calm",
        "instants_lost",
        (TURN, "        take_in(each)\n", "        if now_us % 5 > 0 then take_in(each) end\n"),
    ),
    _bug(
        "two relays tick at once",
        "network",
        "instants_double",
        (TURN, "if redis.call('HGET', standings, id) ~= stood then", "if false then"),
        (TURN, "elseif last_stands(stood) ~= there then", "elseif false then"),
        fault=CallsHeldBack.name,
    ),
    # ------------------------------------------------------------------------------ settler, leases
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
    # A lease that is renewed for an hour is none: relays that start cut it, see 0088.
    _bug(
        "a lease that is over is left to its relay, dead or not",
        "relay",
        "lost",
        (LIFE, "if r.elsewhere then return 'ELSEWHERE' end", "do return 'ELSEWHERE' end"),
        fault=PodKilled.name,
    ),
    # ------------------------------------------------------------------------------ moves
    _bug(
        "a move's batch is not written at its new place",
        "partitions",
        "lost",
        ("lua/move/put.lua", "local entries = insert(tail, name, ARRIVED)", "local entries = {}"),
    ),
    _bug(
        "a partition that timers leave takes new ones in",
        "partitions",
        "lost",
        (SCHEDULE, "if here.leaving and not there then", "if false then"),
    ),
    # ------------------------------------------------------------------------------ durability
    # With `always` a server answers nothing that it has not synced, and the relay's wait is for nothing.
    _bug(
        "an OK does not wait for the disk",
        "power-fsync",
        "lost",
        (GROUP_COMMIT, "            await self._settled(asked)\n", ""),
    ),
    _bug(
        "an OK does not wait for the replica",
        "failover-replicas",
        "lost",
        (OFFER, 'return "WAIT", level.replicas, milliseconds', 'return "WAIT", 0, milliseconds'),
        (GROUP_COMMIT, "problem = missing(level, reached)", 'problem = ""'),
    ),
    # ------------------------------------------------------------------------------ calls
    _bug(
        "a call whose answer was lost is answered OK",
        "server-killed-always",
        "lost",
        (
            "relay/engine/engine.py",
            "        except PartlyDone as partly:\n            self._scheduled(partition,",
            (
                "        except ServiceError:\n"
                "            return [Scheduled(due=None, change=Change.CREATED)] * len(timers)\n"
                "        except PartlyDone as partly:\n            self._scheduled(partition,"
            ),
        ),
    ),
    # That it never takes Redis for back does no harm: each ping that is answered has the loops try again.
    _bug(
        "a relay that lost sight of Redis does not claim again",
        "server-killed-always",
        "lost",
        (
            "relay/engine/redis_health.py",
            "        self.tries += 1\n        self._tell()\n",
            "        self.tries += 1\n",
        ),
    ),
)


def look_for(bug: SeededBug, seed: int, *, timers: int = TIMERS, keep: Path | None = None) -> dict[str, Any]:
    """Play the bug's row with its code; what the judge found, and after how many tries. `keep` is a folder
    for the ledgers and logs of each try."""
    whole = row(bug.row).sized(timers, FAULTS, RATE)
    played = replace(whole, faults=lambda: [each for each in whole.faults() if bug.fault in each.name])
    told: dict[str, Any] = {"bug": bug.name, "row": bug.row, "shows": bug.shows, "found": 0, "tries": 0}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="relay-seeded-") as copy:
        bug.put_into(Path(copy))
        while told["tries"] < TRIES and not told["found"]:
            told["tries"] += 1
            kept = keep / str(told["tries"]) if keep else None
            result = run(played, seed + told["tries"], lambda _: None, code=Path(copy), keep=kept)
            told["found"] = shown(result["verdict"], bug.shows, may_lose=played.may_lose)
            told["journal"] = result["second"]["verdict"]
    return told | {"seed": seed, "seconds": round(time.monotonic() - began)}


def shown(verdict: Mapping[str, Any], shows: str, *, may_lose: bool) -> int:
    """How much of it the ledgers show. Where servers may lose nothing that they have answered for, no loss is
    an excuse."""
    excused = 0 if may_lose or shows not in ("lost", "undone") else verdict[f"{shows}_explained"]
    return int(verdict[shows] + excused)


def main(argv: Sequence[str] | None = None) -> int:
    """Look for all bugs, or for one. Return 1 if one of them was not found."""
    parser = argparse.ArgumentParser(prog="python -m chaos.seeded")
    parser.add_argument("--bug", type=int, help="its number, from 1")
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000)
    parser.add_argument("--keep", type=Path, help="a folder for the ledgers and logs, by bug and try")
    options = parser.parse_args(argv)
    end_by_sigterm()
    numbers = [options.bug] if options.bug else range(1, len(BUGS) + 1)
    left = 0
    for number in numbers:
        keep = options.keep / str(number) if options.keep else None
        if keep:
            keep.mkdir(parents=True)
        told = look_for(BUGS[number - 1], options.seed, keep=keep)
        left += not told["found"]
        print(f"{number}. {line_of(told)}", flush=True)
        found = {each["bug"]: each for each in (*read(RESULTS), told)}
        write(RESULTS, [found[each.name] for each in BUGS if each.name in found])
    return int(left > 0)


def line_of(told: Mapping[str, Any]) -> str:
    """A result in one line, for a terminal."""
    found = f"{told['found']} {told['shows']}" if told["found"] else "NOT FOUND"
    return f"{told['bug']}: {found} ({told['row']}, {told['tries']} tries, {told['seconds']} s)"


if __name__ == "__main__":
    sys.exit(main())
