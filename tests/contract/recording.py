"""What Relay stores, recorded byte for byte: a history of one topic, and its keys behind each step.

    python -m tests.contract.recording

writes `recorded/redis.json` anew. That is for a change of the format that was decided and written down. Where
the bytes changed unasked, the code is wrong, and not the recording.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.core.instants import SECOND
from relay.core.journal import JournalRecord
from relay.core.outcomes import Extension, Limits, Reason, Verb
from relay.core.partitions import Layout
from relay.core.timers import KEEP_EXISTING, Condition, Debounce, NewTimer, OnConflict
from tests.servers import start_server
from tests.settlements import end_of
from tests.worlds.scripts.asking import LEASE, N1, N2, N3, NOW
from tests.worlds.scripts.bench import GRACE, Bench

if TYPE_CHECKING:
    from tests.servers import RunningServer

TOPIC = "recorded"
REDIS = Path(__file__).with_name("recorded") / "redis.json"
LIMITS = Limits(max_attempts=3, max_claims=1000, keep=True, keep_expired=True)
DEAD_ID, NO_ID = re.compile(rb"[0-9]{13}-[0-9]"), b"0000000000000-0"
"""The id of a dead letter, which the server makes of its own clock, and what is recorded in its place."""
NEWEST = 4
"""Entries of the journal that are compared: a step makes fewer."""

Step = Callable[[Bench], Awaitable[Any]]


async def schedule(bench: Bench) -> Any:
    timers = [
        NewTimer("plain", b"payload", NOW - SECOND),
        NewTimer("micro", b"", NOW - 123_456),
        NewTimer("headers", b"\x00\xff", NOW - SECOND, None, {"k": "v", "ü": "ß"}, "application/json"),
        NewTimer("delay", b"x", delay=1_500_001),
        NewTimer("expires", b"x", NOW - SECOND, expires=NOW + 5 * SECOND),
        NewTimer("expires after", b"x", NOW - SECOND, expires_after=90 * SECOND),
        NewTimer("far", b"x", 253_402_300_799 * SECOND),
        *(NewTimer(name, b"x", NOW - 2 * SECOND) for name in ("acked", "rejected", "again", "moved")),
    ]
    return [
        [each.change for each in await bench.store.schedule(bench.topic, timers)],
        [each.due for each in await bench.store.schedule(bench.topic, timers[:1])],
    ]


async def refuse(bench: Bench) -> Any:
    timers = [
        NewTimer("plain", b"other", NOW, intent=KEEP_EXISTING),
        NewTimer("far", b"other", NOW, condition=Condition(due=NOW)),
        NewTimer("none", b"other", NOW, condition=Condition(only_pending=True)),
    ]
    return [[each.due, each.change] for each in await bench.store.schedule(bench.topic, timers)]


async def claim(bench: Bench, nonce: bytes = N1) -> Any:
    claim = await bench.claim(nonce, limits=LIMITS)
    timers = [
        [
            timer.timer_id,
            timer.payload,
            dict(timer.headers),
            timer.content_type,
            timer.due,
            timer.attempt,
            timer.occurrence_id,
            timer.approximate,
            timer.suspect,
            timer.claims,
        ]
        for timer in claim.timers
    ]
    return [sorted(timers), claim.now, claim.next, claim.deadline, claim.parked, claim.orphans, claim.deaths]


async def renew(bench: Bench) -> Any:
    bench.now = NOW + SECOND
    extensions = [
        Extension("plain", N1, received=True),
        Extension("micro", N1),
        Extension("headers", N2),
        Extension("none", N1, received=True),
    ]
    return await bench.store.extend(bench.topic, extensions, lease=LEASE)


async def settle(bench: Bench) -> Any:
    again = NewTimer("again", b"period", NOW + LEASE, None, {"n": "2"}, "text/plain")
    settlements = [
        end_of("plain", N1, Verb.NACK, 5 * SECOND, error="busy; later"),
        end_of("headers", N1, Verb.RELEASE, SECOND, received=True, suspect=True),
        end_of("expires", N1, Verb.RELEASE, unsent=True),
        end_of("rejected", N1, Verb.REJECT, reason=Reason.FAILED, error="no such customer"),
        end_of("again", N1, Verb.RESCHEDULE, again=again, new_content=True),
        end_of("moved", N1, Verb.RESCHEDULE, again=NewTimer("moved", b"", delay=7)),
        end_of("acked", N1, Verb.ACK),
        end_of("micro", N2, Verb.ACK),
        end_of("none", N1, Verb.NACK),
    ]
    return await bench.store.settle(bench.topic, settlements, limits=LIMITS)


async def expire(bench: Bench) -> Any:
    """One has expired, the others come again."""
    bench.now = NOW + 10 * SECOND
    return await claim(bench, N2)


async def lapse(bench: Bench) -> Any:
    """Those that nobody settled come again, an attempt further where a receipt had come."""
    extensions = [Extension("plain", N2, received=True)]
    before = await bench.store.extend(bench.topic, extensions, lease=LEASE)
    bench.now = NOW + 10 * SECOND + 2 * LEASE
    return [before, await claim(bench, N3)]


async def die(bench: Bench) -> Any:
    """The last attempt of one."""
    settlements = [
        end_of("plain", N3, Verb.NACK, 0, error="still"),
        end_of("headers", N3, Verb.NACK, error="busy"),
        end_of("moved", N3, Verb.NACK, 3600 * SECOND, error="busy"),
    ]
    return await bench.store.settle(bench.topic, settlements, limits=LIMITS)


async def change(bench: Bench) -> Any:
    answers = [
        await bench.store.run(bench.topic, ["moved", "far", "micro", "none"]),
        await bench.store.cancel(bench.topic, ["far", "none"]),
        await bench.store.cancel(bench.topic, ["micro"], Condition(only_pending=True)),
    ]
    return [[each.change for each in answer] for answer in answers]


async def meet_foreign_writers(bench: Bench) -> Any:
    """A publisher, a worker, a commit, and a timeline without payloads."""
    bench.raw.zadd(bench.timeline, {"micro": (bench.now - SECOND) / 1e6})
    bench.put_payload("micro", b'{"a": 1}')
    bench.raw.zadd(bench.timeline, {"moved": bench.now / 1e6 - 0.25 + 2**-22})
    bench.raw.zadd(bench.timeline, {"orphan": (bench.now - SECOND) / 1e6})
    bench.raw.zrem(bench.timeline, "again")
    bench.raw.hdel(bench.payloads, "again")
    settlements = [end_of("again", N3, Verb.ACK), end_of("micro", N1, Verb.ACK)]
    return [await bench.store.settle(bench.topic, settlements, limits=LIMITS), await claim(bench)]


async def drop_orphans(bench: Bench) -> Any:
    bench.now = bench.now + GRACE + SECOND
    return await claim(bench, N2)


async def redrive(bench: Bench) -> Any:
    return await bench.topics.redrive(bench.topic, bench.dead_ids()[:1])


async def purge(bench: Bench) -> Any:
    return await bench.topics.purge(bench.topic, bench.dead_ids()[:1])


async def pause(bench: Bench) -> Any:
    return [
        await bench.topics.pause(bench.topic, until=bench.now + 3600 * SECOND),
        await claim(bench, N3),
    ]


async def resume(bench: Bench) -> Any:
    await bench.topics.resume(bench.topic)
    bench.now = bench.now + 1
    return await claim(bench, b"4" * 16)


async def debounce(bench: Bench) -> Any:
    """The begin of two runs, of which one has a limit."""
    names = {"limited": Debounce(40 * SECOND), "unlimited": Debounce()}
    timers = [NewTimer(name, b"1", delay=30 * SECOND, intent=intent) for name, intent in names.items()]
    return [[each.due, each.change] for each in await bench.store.schedule(bench.topic, timers)]


async def debounce_again(bench: Bench) -> Any:
    """At the limit; and what stands beside a run."""
    bench.now = bench.now + 20 * SECOND
    timers = [
        NewTimer("limited", b"2", delay=30 * SECOND, intent=Debounce(600 * SECOND)),
        NewTimer("unlimited", b"2", delay=30 * SECOND, intent=Debounce()),
        NewTimer("limited", b"3", bench.now + 3600 * SECOND, intent=OnConflict.KEEP_EARLIEST),
        NewTimer("unlimited", b"3", bench.now, intent=OnConflict.KEEP_LATEST),
    ]
    return [[each.due, each.change] for each in await bench.store.schedule(bench.topic, timers)]


async def claim_debounced(bench: Bench) -> Any:
    """Which ends the run, as it would at a relay that knows none."""
    bench.now = bench.now + 25 * SECOND
    return await claim(bench, b"5" * 16)


STEPS: list[Step] = [
    schedule,
    refuse,
    claim,
    renew,
    settle,
    expire,
    lapse,
    die,
    change,
    meet_foreign_writers,
    drop_orphans,
    redrive,
    purge,
    pause,
    resume,
    debounce,
    debounce_again,
    claim_debounced,
]


def plain(value: Any) -> Any:
    """As JSON has it: bytes in hexadecimal, what Relay answers by its word."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {plain(key) if isinstance(key, bytes) else key: plain(each) for key, each in value.items()}
    return [*map(plain, value)] if isinstance(value, list | tuple) else value


def stored(bench: Bench) -> dict[str, Any]:
    """The bytes under the topic's keys; scores are doubles, which each server prints in its own way."""
    raw: Any = bench.raw
    journal = [DEAD_ID.sub(NO_ID, found[b"b"]).hex() for _, found in raw.xrange(bench.journal)]
    return {
        "now": bench.now,
        "timeline": {_text(key): at for key, at in raw.zrange(bench.timeline, 0, -1, withscores=True)},
        "payloads": {_text(key): each.hex() for key, each in sorted(raw.hgetall(bench.payloads).items())},
        "leases": {_text(key): each.hex() for key, each in sorted(raw.hgetall(bench.leases).items())},
        "dead": [
            {_text(key): each.hex() for key, each in found.items()} for _, found in bench.stored_letters()
        ],
        "journal": journal[-NEWEST:],
        "pause": _text(raw.get(bench.pause) or b""),
    }


def _text(raw: bytes) -> str:
    return raw.decode()


def restore(bench: Bench, recorded: dict[str, Any]) -> None:
    """Write recorded bytes."""
    raw: Any = bench.raw
    raw.delete(*bench.keys)
    bench.now = recorded["now"]
    if recorded["timeline"]:
        raw.zadd(bench.timeline, recorded["timeline"])
    for key, hashed in ((bench.payloads, recorded["payloads"]), (bench.leases, recorded["leases"])):
        if hashed:
            raw.hset(key, mapping={name: bytes.fromhex(each) for name, each in hashed.items()})
    for letter in recorded["dead"]:
        raw.xadd(bench.dead, {name: bytes.fromhex(each) for name, each in letter.items()})
    for entry in recorded["journal"]:
        raw.xadd(bench.journal, {"b": bytes.fromhex(entry)})
    if recorded["pause"]:
        raw.set(bench.pause, recorded["pause"])


async def understood(bench: Bench) -> dict[str, Any]:
    """What is read of the topic: timers, dead letters, the journal, and how it stands."""
    page = await bench.store.list(Layout(bench.topic), state=None, limit=100, cursor="")
    timers = [await bench.store.get(bench.topic, timer.timer_id) for timer in page.timers]
    letters = [await bench.topics.dead_letter(bench.topic, dead_id) for dead_id in bench.dead_ids()]
    return {
        "timers": [
            [
                timer.timer_id,
                timer.state,
                timer.due,
                timer.next_claim,
                timer.attempts,
                timer.payload,
                dict(timer.headers),
                timer.content_type,
            ]
            for timer in timers
            if timer is not None
        ],
        "dead": [
            [
                letter.timer_id,
                letter.reason,
                letter.attempts,
                letter.claims,
                letter.due,
                letter.died,
                letter.error,
                letter.occurrence_id,
                letter.payload,
                dict(letter.headers),
                letter.content_type,
            ]
            for letter in letters
            if letter is not None
        ],
        "journal": [
            [
                batch.time,
                batch.first,
                [
                    {
                        name: value
                        for name, value in record._asdict().items()
                        if name != "dead_id" and value != JournalRecord._field_defaults.get(name)
                    }
                    for record in batch.records
                ],
            ]
            for batch in (await bench.batches())[-NEWEST:]
        ],
    }


async def history(server: RunningServer) -> list[dict[str, Any]]:
    """Each step, its answer, and what stands behind it."""
    bench = Bench(server, TOPIC)
    bench.keep = 1_000_000
    steps = []
    for step in STEPS:
        answer = plain(await step(bench))
        behind = {"step": step.__name__, "answer": answer, "stored": stored(bench)}
        steps.append({**behind, "understood": plain(await understood(bench))})
    await bench.close()
    return steps


def record(path: Path, run: Callable[[RunningServer], Coroutine[Any, Any, object]]) -> None:
    """Run a history on a server of its own, and write down what it returns."""
    with start_server("valkey") as server:
        recorded = asyncio.run(run(server))
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record(REDIS, history)
