"""What Relay stores behind a timeline, recorded byte for byte: a ready list, and a stream with one group.

    python -m tests.contract.dispatch_recording

writes `recorded/dispatch.json` anew; see `recording.py` for when.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.core.instants import SECOND
from relay.core.outcomes import Limits, Verb
from relay.core.timers import ClaimedTimer, NewTimer
from relay.store.dispatch.stream_groups import _PROOF
from tests.contract.recording import plain, record
from tests.settlements import end_of
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.desk import BILLING, LIST, Desk, Reader

if TYPE_CHECKING:
    from tests.servers import RunningServer

DISPATCH = Path(__file__).with_name("recorded") / "dispatch.json"
TOPIC = "recorded"
LIMITS = Limits(max_attempts=3, keep=True, keep_expired=True)
Step = Callable[[Desk], Awaitable[Any]]


async def schedule(desk: Desk) -> Any:
    await desk.schedule("plain", NOW - SECOND, b"payload")
    await desk.schedule("headers", NOW - 7, b"\x00\xff", headers={"ü": "ß"}, content_type="text/plain")
    await desk.schedule("expires", NOW - 5, expires=NOW + 60 * SECOND)
    await desk.schedule("expired", NOW - SECOND, expires=NOW)


async def promote(desk: Desk) -> Any:
    promotion = await desk.promote()
    return [promotion.promoted, promotion.next, promotion.deaths]


async def take(desk: Desk) -> Any:
    """A worker takes an entry, and a relay sees that."""
    desk.raw.lmove(desk.ready, desk.processing, "RIGHT", "LEFT")
    await desk.tidy()


async def claim(desk: Desk) -> Any:
    timers = await reader_of(desk).take(limits=LIMITS)
    return [
        [
            *(timer.timer_id, timer.payload, dict(timer.headers), timer.content_type, timer.due),
            *(timer.attempt, timer.suspect, timer.claims),
        ]
        for timer in timers
    ]


async def receive(desk: Desk) -> Any:
    return await reader_of(desk).extend(pending_timer(desk, 0), received=True)


async def settle(desk: Desk) -> Any:
    reader = reader_of(desk)
    plain_, headers, expires = (pending_timer(desk, n) for n in range(3))
    settlements = [
        end_of("", plain_.proof, Verb.NACK, 5 * SECOND, error="busy"),
        end_of("", headers.proof, Verb.RELEASE, suspect=True),
        end_of("", expires.proof, Verb.RESCHEDULE, again=NewTimer("", b"", NOW + 9 * SECOND)),
    ]
    return await reader.source.settle(desk.topic, settlements, limits=LIMITS)


async def claim_again(desk: Desk) -> Any:
    desk.later(10)
    return await claim(desk)


async def reject(desk: Desk) -> Any:
    return await reader_of(desk).settle(
        pending_timer(desk, 0), Verb.REJECT, limits=LIMITS, error="no such customer"
    )


STEPS: dict[str, list[Step]] = {
    "list": [schedule, promote, take],
    "stream": [schedule, claim, receive, settle, claim_again, reject],
}
POLICIES = {"list": LIST, "stream": BILLING}


def reader_of(desk: Desk) -> Reader:
    return desk.reader("recorder")


def pending_of(desk: Desk) -> list[Any]:
    raw: Any = desk.raw
    if not raw.exists(desk.stream):
        return []
    return list(raw.xpending_range(desk.stream, "billing", "-", "+", 100))


def pending_timer(desk: Desk, place: int) -> ClaimedTimer:
    """A pending entry's token, as its claim gave it."""
    each = pending_of(desk)[place]
    milliseconds, sequence = map(int, each["message_id"].decode().split("-"))
    token = _PROOF.pack(milliseconds, sequence, each["times_delivered"])
    return ClaimedTimer("", b"", {}, "", 0, 1, "", proof=token)


def stored(desk: Desk) -> dict[str, Any]:
    """The bytes behind the timeline. The server names entries by its own clock; here they have places."""
    raw: Any = desk.raw
    retries, group = desk.keys_of()
    entries = raw.xrange(desk.stream) if raw.exists(desk.stream) else []
    place = {name: f"entry {n}" for n, (name, _) in enumerate(entries)}
    return {
        "now": int(raw.get(f"{desk.timeline}:now")),
        "ready": [each.hex() for each in raw.lrange(desk.ready, 0, -1)],
        "processing": [each.hex() for each in raw.lrange(desk.processing, 0, -1)],
        "taken": {key.hex(): each.hex() for key, each in sorted(raw.hgetall(desk.taken).items())},
        "stream": [_entry(fields) for _, fields in entries],
        "pending": [
            [place[each["message_id"]], each["consumer"].decode(), each["times_delivered"]]
            for each in pending_of(desk)
        ],
        "retries": [[place[name], at] for name, at in raw.zrange(retries, 0, -1, withscores=True)],
        "group": {place[name]: each.hex() for name, each in sorted(raw.hgetall(group).items())},
        "dead": [
            {key.decode(): each.hex() for key, each in fields.items()} for _, fields in raw.xrange(desk.dead)
        ],
    }


def _entry(fields: dict[bytes, bytes]) -> dict[str, str]:
    told = {key.decode(): each.hex() for key, each in fields.items()}
    if "only_group" in told:
        told["occurrence_id"] = ""  # made of the entry's id
    return told


def restore(desk: Desk, recorded: dict[str, Any]) -> None:
    """Write recorded bytes. An entry's id is its place."""
    raw: Any = desk.raw
    clear(desk)
    desk.now = recorded["now"]
    for key, each in ((desk.ready, recorded["ready"]), (desk.processing, recorded["processing"])):
        if each:
            raw.rpush(key, *map(bytes.fromhex, each))
    for name, value in recorded["taken"].items():
        raw.hset(desk.taken, bytes.fromhex(name), bytes.fromhex(value))
    for letter in recorded["dead"]:
        raw.xadd(desk.dead, _fields(letter))
    if recorded["stream"]:
        _restore_stream(desk, recorded)


def _restore_stream(desk: Desk, recorded: dict[str, Any]) -> None:
    raw: Any = desk.raw
    retries, group = desk.keys_of()
    ids = {f"entry {n}": f"{n + 1}-0" for n in range(len(recorded["stream"]))}
    for name, entry in zip(ids.values(), recorded["stream"], strict=True):
        raw.xadd(desk.stream, _fields(entry), id=name)
    raw.xgroup_create(desk.stream, "billing", "0")
    raw.xreadgroup("billing", "recorder", {desk.stream: ">"})
    for place, consumer, deliveries in recorded["pending"]:
        raw.xclaim(desk.stream, "billing", consumer, 0, [ids[place]], retrycount=deliveries, justid=True)
    for place in ids.keys() - {place for place, *_ in recorded["pending"]}:
        raw.xack(desk.stream, "billing", ids[place])
    for place, at in recorded["retries"]:
        raw.zadd(retries, {ids[place]: at})
    for place, each in recorded["group"].items():
        raw.hset(group, ids[place], bytes.fromhex(each))


def _fields(entry: dict[str, str]) -> dict[str, bytes]:
    return {name: bytes.fromhex(each) for name, each in entry.items()}


def clear(desk: Desk) -> None:
    """Begin anew."""
    own = (desk.ready, desk.processing, desk.taken, desk.stream, *desk.keys_of())
    desk.raw.delete(*desk.keys, *own)
    desk.now = NOW


async def history(server: RunningServer, kind: str) -> list[dict[str, Any]]:
    """Each step, its answer, and what stands behind the timeline then."""
    desk = Desk(server, TOPIC, POLICIES[kind])
    clear(desk)
    steps = []
    for step in STEPS[kind]:
        answer = plain(await step(desk))
        steps.append({"step": step.__name__, "answer": answer, "stored": stored(desk)})
    await desk.close()
    return steps


async def histories(server: RunningServer) -> dict[str, list[dict[str, Any]]]:
    """Both, by what the topic is dispatched to."""
    return {kind: await history(server, kind) for kind in STEPS}


if __name__ == "__main__":
    record(DISPATCH, histories)
