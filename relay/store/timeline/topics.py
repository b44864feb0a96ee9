"""What people do to topics, in Redis: the contract is that of `relay.core.ports.TopicStore`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from relay.core.errors import InvalidField
from relay.core.instants import LATEST, from_score
from relay.core.ports import MAX_PER_CALL
from relay.core.recurring.cold_counts import ColdCounts
from relay.core.recurring.forecast import WINDOWS
from relay.core.timers import Change, DeadLetter, DeadPage, TopicStats
from relay.store.codec.cold_counts import counts_of
from relay.store.codec.contents import PLAIN, Contents
from relay.store.codec.lease_record import text_of
from relay.store.server.server import Server
from relay.store.timeline.read_sizes import Largest, at_once, usual
from relay.store.timeline.subjects import Subjects
from relay.store.verbs import people, stream, timeline

CHANGES = {b"OK": Change.RUN, b"GONE": Change.GONE, b"CONFLICT": Change.UNCHANGED}

ELSEWHERE = b"ELSEWHERE"

SEALED = "1"
"""What the mark of a sealed topic holds."""

PAGE_BYTES = 4 << 20
"""The approximate limit of content bytes that a page of dead letters reads; the page ends sooner then."""

PART = 25
"""The most dead letters that one script call redrives or purges: their contents pass through it."""

_ENTRY = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")


class RedisTopics:
    """A `TopicStore` on a Redis or Valkey server; arguments as of `RedisStore`."""

    def __init__(self, server: Server, *, largest: Largest = usual, contents: Contents = PLAIN) -> None:
        self._server = server
        self._largest = largest
        self._contents = contents
        self._subjects = Subjects(server, contents)
        self._places: dict[str, tuple[Literal["payloads", "leases"], bytes | str]] = {}
        """Where the search for orphans goes on in each topic: the hash and its cursor."""

    async def register(self, topic: str) -> None:
        """See `TopicStore.register`. One SADD, behind the mark of a sealed topic, by which jobs know it."""
        if self._contents.seals(topic):
            await self._server.ask("SET", self._server.keys.key("sealed", topic), SEALED)
        await self._server.ask("SADD", self._server.keys.topics, topic)

    async def forget_subject(self, topic: str, subject: str) -> int | None:
        """See `TopicStore.forget_subject`. One script call."""
        return await self._subjects.forget(topic, subject)

    async def topics(self) -> list[str]:
        """See `TopicStore.topics`. SSCAN in steps of a thousand."""
        found: set[str] = set()
        cursor = 0
        while True:
            cursor, names = await self._server.ask("SSCAN", self._server.keys.topics, cursor, "COUNT", 1000)
            found |= {text_of(name)[0] for name in names}
            if cursor == 0:
                return sorted(found)

    async def stats(self, topic: str) -> TopicStats:
        """See `TopicStore.stats`. One script call."""
        return _stats(topic, await self._server.call(people.stats(topic)))

    async def overview(self, topics: Sequence[str]) -> list[TopicStats]:
        """See `TopicStore.overview`. One pipeline of script calls."""
        replies = await self._server.each([people.stats(topic) for topic in topics])
        return [
            _stats(topic, reply)
            for topic, reply in zip(topics, replies, strict=True)
            if not isinstance(reply, Exception)
        ]

    async def parts(self, topic: str, *, first: int = 0, most: int = MAX_PER_CALL) -> list[TopicStats]:
        """See `TopicStore.parts`. One script call."""
        return [await self.stats(topic)][first : first + most]

    async def pause(self, topic: str, *, until: int | None = None, duration: int | None = None) -> int | None:
        """See `TopicStore.pause`. One script call."""
        if duration is not None:
            call = people.pause(topic, "in", duration)
        else:
            call = people.pause(topic, "at", LATEST if until is None else until)
        reply = await self._server.call(call)
        return int(reply) if reply else None

    async def resume(self, topic: str) -> None:
        """See `TopicStore.resume`. One script call."""
        await self._server.call(people.pause(topic, "end", 0))

    async def dead_page(self, topic: str, *, limit: int, cursor: str) -> DeadPage:
        """See `TopicStore.dead_page`. One script call. Raises `InvalidField`."""
        if cursor and not _ENTRY.fullmatch(cursor):
            raise InvalidField("page_token", "is not one that a page gave; start without one")
        size = at_once(self._largest(topic))
        more, *flat = await self._server.call(people.letters(topic, limit, cursor, PAGE_BYTES, size))
        letters = [
            _letter(
                flat[i], dict(zip(flat[i + 1][::2], flat[i + 1][1::2], strict=True)), topic, self._contents
            )
            for i in range(0, len(flat), 2)
        ]
        return DeadPage(letters, letters[-1].dead_id if more else "")

    async def dead_letter(self, topic: str, dead_id: str) -> DeadLetter | None:
        """See `TopicStore.dead_letter`. One XRANGE, and an HMGET for a subject that is not known."""
        _check(dead_id)
        found = await self._server.ask("XRANGE", self._server.keys.key("dead", topic), dead_id, dead_id)
        if not found:
            return None
        name, fields = found[0]
        await self._subjects.look(topic, [fields.get(b"envelope", b"")])
        return _letter(name, fields, topic, self._contents)

    async def redrive(self, topic: str, dead_ids: Sequence[str]) -> list[Change]:
        """See `TopicStore.redrive`. A script call for some at a time."""
        for dead_id in dead_ids:
            _check(dead_id)
        changes: list[Change] = []
        size = at_once(self._largest(topic), PART)
        for start in range(0, len(dead_ids), size):
            part = dead_ids[start : start + size]
            reply = await self._server.call(people.redrive(topic, part))
            ours = [CHANGES.get(word, Change.GONE) for word in reply[::2]]
            groups: dict[bytes, list[int]] = {}
            for index, word in enumerate(reply[::2]):
                if word == ELSEWHERE:
                    groups.setdefault(reply[2 * index + 1], []).append(index)
            for group, places in groups.items():
                theirs = stream.redrive(topic, group, [part[index] for index in places])
                words = await self._server.call(theirs)
                for index, word in zip(places, words, strict=True):
                    ours[index] = CHANGES[word]
            changes += ours
        return changes

    async def purge(self, topic: str, dead_ids: Sequence[str]) -> int:
        """See `TopicStore.purge`. A script call for some at a time."""
        for dead_id in dead_ids:
            _check(dead_id)
        removed = 0
        size = at_once(self._largest(topic), PART)
        for start in range(0, len(dead_ids), size):
            removed += await self._server.call(people.purge(topic, dead_ids[start : start + size]))
        return removed

    async def trim(self, topic: str, *, max_count: int, max_age: int) -> int:
        """See `TopicStore.trim`. One script call."""
        return await self._server.call(people.trim(topic, max_count, max_age))

    async def orphans(self, topic: str, *, limit: int) -> tuple[list[str], bool]:
        """See `TopicStore.orphans`. One script call; payloads and lease records in turn."""
        which, cursor = self._places.get(topic, ("payloads", "0"))
        cursor, *found = await self._server.call(timeline.orphans(topic, which, cursor, limit))
        done = False
        if int(cursor) == 0:
            done = which == "leases"
            which = "payloads" if done else "leases"
        self._places[topic] = (which, cursor)
        return [text_of(name)[0] for name in found], done

    async def repair(self, topic: str, timer_ids: Sequence[str]) -> tuple[int, int]:
        """See `TopicStore.repair`. One script call."""
        payloads, leases = await self._server.call(timeline.repair(topic, timer_ids))
        return payloads, leases

    async def lock(self, name: str, topic: str = "", *, ttl: int) -> bool:
        """See `TopicStore.lock`. One SET NX."""
        key = self._server.keys.lock(name, topic)
        reply = await self._server.ask("SET", key, "1", "NX", "PX", max(ttl // 1000, 1))
        return reply is not None


def _check(dead_id: str) -> None:
    if not _ENTRY.fullmatch(dead_id):
        raise InvalidField(
            "dead_id",
            f"{dead_id!r} is not one that a listing gave, such as 1767225600000-0; list the dead letters",
        )


def _within(cold: Sequence[ColdCounts], ends: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*(each.before(ends) for each in cold), strict=True)))


def _stats(topic: str, reply: people.StatsReply) -> TopicStats:
    now = int(reply.now)
    cold = counts_of(dict(zip(reply.cold[::2], reply.cold[1::2], strict=True)), now)
    return TopicStats(
        topic=topic,
        now=now,
        timers=reply.timers,
        due=reply.due,
        first=from_score(float(reply.first)) if reply.first else None,
        dead=reply.dead,
        oldest_death=int(reply.oldest.partition(b"-")[0]) * 1000 if reply.oldest else None,
        paused_until=int(reply.paused) if reply.paused else None,
        coming=(reply.minute, reply.hour, reply.day),
        cold=_within(cold, [now + ahead for ahead in WINDOWS]) if cold else None,
    )


def _letter(name: bytes, fields: Mapping[bytes, bytes], topic: str, contents: Contents) -> DeadLetter:
    timer_id = text_of(fields[b"timer_id"])[0]
    held = contents.decode(topic, timer_id, fields.get(b"envelope", b""))
    return DeadLetter(
        dead_id=name.decode(),
        timer_id=timer_id,
        reason=fields[b"reason"].decode(),
        attempts=int(fields[b"attempts"]),
        due=from_score(float(fields[b"due"])),
        died=int(fields[b"died"]),
        error=fields[b"error"].decode(errors="replace"),
        occurrence_id=f"{timer_id}/{fields[b'occurrence'].hex()}",
        **held.fields(),
        claims=int(fields.get(b"claims", 0)),
        group=fields.get(b"group", b"").decode(errors="replace"),
    )
