"""Timers in bulk, for Spark's workers: written in batches that Redis hardly notices, and without a guard.

A load replaces existing timers with its ids, as `timeline/schedule` does, without a check. So it is for new
timers. Timers that may have been delivered or cancelled since they were written down need a sweep's guarded
load.

Each batch is one MULTI. ZADD comes first, so that a full Redis refuses the whole. Then the lease records of
the ids are removed, so that the token of a delivery of a replaced timer is void. Then come the envelopes.
Topics with a journal take the script instead: there an entry comes before the first write.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeVar

from relay.core.errors import WrongKeyType
from relay.core.instants import EXACT, SECOND, to_score
from relay.store.codec import lease_record
from relay.store.server.blocking import BlockingServer, checked, is_refusal
from relay.store.server.scripts import Argument, Call
from relay.store.verbs import timeline

R = TypeVar("R")

BATCH = 500
"""The most timers that one call writes: a claim beside it waits that long."""

BATCH_BYTES = 1 << 20
"""The approximate limit of envelope bytes that one call writes."""

AHEAD = 3
"""Batches that are under way while the next one is made: Redis has work while a worker packs, or waits for a
core. A claim beside it waits for one of them, not for all: Redis turns to its clients one batch at a time."""

Buffer = bytes | memoryview


class TimerBatch(NamedTuple):
    """Timers of one topic as columns of equal length.

    `due` in microseconds since 1970; `expires` likewise, None for never, and () if none expires.
    """

    topic: str
    timer_ids: Sequence[str | bytes]
    due: Sequence[int]
    envelopes: Sequence[bytes]
    expires: Sequence[int | None] = ()

    def part(self, start: int, end: int) -> TimerBatch:
        """Some of them."""
        return TimerBatch(
            self.topic,
            self.timer_ids[start:end],
            self.due[start:end],
            self.envelopes[start:end],
            self.expires[start:end],
        )


class Packed(NamedTuple):
    """A batch whose arguments are as they go over the wire: score and id of each timer, the ids, id and
    envelope of each. `first` is the least of the scores; none of them expires. At most `BATCH`."""

    size: int
    timers: Buffer
    timer_ids: Buffer
    stored: Buffer
    first: float


@dataclass(slots=True)
class _Topic:
    """What a store knows about a topic: the score of the earliest timer that a hint has named."""

    keep: int
    hinted: float = math.inf


class _Sent(NamedTuple):
    """What is under way: a batch, or a hint if `first` is None."""

    topic: str
    replies: int
    first: float | None


class BulkStore:  # see 0050
    """Writes and reads many timers over a connection of its own. Not to be shared between threads."""

    def __init__(self, server: BlockingServer) -> None:
        self.server = server
        self._topics: dict[str, _Topic] = {}
        self._under_way: deque[_Sent] = deque()

    def connect(self) -> None:
        """Check that Redis answers. Raises `StoreError`."""
        self.server.ask("PING")

    def close(self) -> None:
        """Close the connection. Timers that `flush` has not confirmed may have been written or not."""
        self._under_way.clear()
        self.server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        self.close()

    def now(self) -> int:
        """Return the time by the clock of Redis, in microseconds since 1970. Raises `StoreError`."""
        seconds, micros = self.server.ask("TIME")
        return int(seconds) * SECOND + int(micros)

    def count(self, topic: str) -> int:
        """Return how many timers the topic has. Raises `StoreError`."""
        found: int = self.server.ask("ZCARD", self.server.keys.of(topic)[0])
        return found

    def topics(self) -> list[str]:
        """Return all topics that relays or loads have registered, sorted. Raises `StoreError`."""
        found: set[bytes] = set()
        cursor = b"0"
        while True:
            cursor, names = self.server.ask("SSCAN", self.server.keys.topics, cursor, "COUNT", 1000)
            found.update(names)
            if int(cursor) == 0:
                return sorted(name.decode(errors="surrogateescape") for name in found)

    # ------------------------------------------------------------------- writing

    def write(self, batch: TimerBatch) -> None:
        """Write the timers in the place of existing ones. If an id comes twice, its last timer counts.

        Names, sizes and due times have been checked. Returns when most are written: `flush` tells that all
        are. Raises `StoreError`; then any number of them may be written, each of them whole.
        """
        topic = self._topic(batch.topic)
        start = 0
        while start < len(batch.timer_ids):
            end = _end(batch.envelopes, start)
            part = batch.part(start, end)
            if topic.keep:
                self._write_through_journal(part)
            else:
                self._send(part)
            start = end

    def packs(self, topic: str) -> bool:
        """Whether `write_packed` may be used: not where there is a journal. Raises `StoreError`."""
        return not self.keep(topic)

    def keep(self, topic: str) -> int:
        """How many changes the topic's journal keeps; 0 if it has none. The first call for a topic looks at
        its keys and registers it. Raises `StoreError`."""
        return self._topic(topic).keep

    def write_packed(self, topic: str, part: Packed) -> None:
        """As `write`, of a batch that somebody has packed."""
        timeline, payloads, leases, *_ = self.server.keys.of(topic)
        size, timers, timer_ids, stored, first = part
        data = [
            _BEGIN,
            _command(b"ZRANGE", timeline, 3),
            _FIRST_ONE,
            _command(b"ZADD", timeline, 2 * size),
            timers,
            _command(b"HDEL", leases, size),
            timer_ids,
            _command(b"HSET", payloads, 2 * size),
            stored,
            _END,
        ]
        self.server.send_packed(b"".join(data), 6)
        self._sent(_Sent(topic, 6, first))

    def _sent(self, sent: _Sent) -> None:
        self._under_way.append(sent)
        while len(self._under_way) > AHEAD:
            self._settle()

    def flush(self) -> None:
        """Wait until all is written. Raises `StoreError`."""
        while self._under_way:
            self._settle()

    def _topic(self, name: str) -> _Topic:
        """Before a topic's first batch: see what lies there, and have it known as a topic."""
        known = self._topics.get(name)
        if known is None:
            self.flush()
            self._probe(name)
            self.server.ask("SADD", self.server.keys.topics, name)
            known = self._topics[name] = _Topic(self.server.keep(name))
        return known

    def _probe(self, name: str) -> None:
        """Raises `WrongKeyType` if a key of the topic holds something else."""
        timeline, payloads, leases, _, _, journal = self.server.keys.of(name)
        kinds = {timeline: b"zset", payloads: b"hash", leases: b"hash", journal: b"stream"}
        replies = self.server.all(*(("TYPE", key) for key in kinds))
        found = dict(zip(kinds, map(checked, replies), strict=True))
        for key, kind in kinds.items():
            if found[key] not in (kind, b"none"):
                raise WrongKeyType(
                    f"{key} holds a {found[key].decode()}, not a {kind.decode()}; "
                    "move it away or set another key prefix"
                )

    def _send(self, part: TimerBatch) -> None:
        timeline, payloads, leases, *_ = self.server.keys.of(part.topic)
        scores, kept = _scores(part)
        size = len(part.timer_ids)
        timers: list[Argument] = [b""] * (2 * size)
        stored: list[Argument] = [b""] * (2 * size)
        timers[::2], timers[1::2] = scores, part.timer_ids
        stored[::2], stored[1::2] = part.timer_ids, part.envelopes
        commands: list[Sequence[Argument]] = [
            ("MULTI",),
            ("ZRANGE", timeline, 0, 0, "WITHSCORES"),
            ("ZADD", timeline, *timers),
            ("HDEL", leases, *part.timer_ids),
            ("HSET", payloads, *stored),
        ]
        if kept:
            commands.append(("HSET", leases, *kept))
        commands.append(("EXEC",))
        self.server.send(*commands)
        self._sent(_Sent(part.topic, len(commands), to_score(min(part.due))))

    def _settle(self) -> None:
        """Read what became of the oldest that is under way."""
        sent = self._under_way.popleft()
        *queued, done = self.server.receive(sent.replies)
        if sent.first is None:
            if is_refusal(done):
                self.server.on_refused_hint(str(done))
            return  # whatever became of the hint, the timers are stored, and relays poll
        checked(queued)  # the reason stands there, and not in EXEC's own refusal
        head = checked(done)[0]
        topic = self._topics[sent.topic]
        if sent.first < topic.hinted and (not head or sent.first < float(head[1])):
            topic.hinted = sent.first
            self.server.send(("PUBLISH", self.server.keys.channel(sent.topic), repr(sent.first)))
            self._under_way.append(_Sent(sent.topic, 1, None))

    def _write_through_journal(self, part: TimerBatch) -> None:
        """By the script that relays take: the journal's entry comes before the first write."""
        args: list[Argument] = []
        for n, timer_id in enumerate(part.timer_ids):
            expires = part.expires[n] if part.expires else None
            terms = "" if expires is None else f";e{to_score(expires)!r}"
            args += (timer_id, f"{to_score(part.due[n])!r}{terms}", part.envelopes[n])
        self.call(timeline.schedule(part.topic, 0, args))

    # ------------------------------------------------------------------ scripts

    def call(self, call: Call[R]) -> R:
        """Run a script, behind all that is under way. Raises `StoreError`."""
        self.flush()
        return self.server.call(call)


_BEGIN, _END = b"*1\r\n$5\r\nMULTI\r\n", b"*1\r\n$4\r\nEXEC\r\n"
_FIRST_ONE = b"$1\r\n0\r\n$1\r\n0\r\n$10\r\nWITHSCORES\r\n"


def _command(name: bytes, key: str, arguments: int) -> bytes:
    """Return the beginning of a command with this number of arguments behind its key."""
    raw = key.encode()
    return b"*%d\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (2 + arguments, len(name), name, len(raw), raw)


def _scores(part: TimerBatch) -> tuple[list[Argument], list[Argument]]:
    """The timers' scores; and id and record of each that expires, in turn."""
    scores: list[Argument]
    if max(part.due) < EXACT:
        # As text: Redis reads the nearest double, which is `to_score`, and Python writes it twice as fast.
        scores = [b"%d.%06d" % divmod(due, SECOND) for due in part.due]
    else:
        scores = [to_score(due) for due in part.due]
    kept: dict[str | bytes, bytes] = {}
    for n, expires in enumerate(part.expires):
        kept.pop(part.timer_ids[n], None)
        if expires is not None:
            scores[n], kept[part.timer_ids[n]] = lease_record.fresh(to_score(part.due[n]), to_score(expires))
    return scores, [each for pair in kept.items() for each in pair]


def _end(envelopes: Sequence[bytes], start: int) -> int:
    """Where the batch ends that begins at `start`: it has at least one timer."""
    part = envelopes[start : start + BATCH]
    if sum(map(len, part)) <= BATCH_BYTES:
        return start + len(part)
    end, size = start, 0
    for envelope in part:
        size += len(envelope)
        if size > BATCH_BYTES and end > start:
            break
        end += 1
    return end
