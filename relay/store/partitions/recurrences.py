"""Recurrences in Redis: the contract is that of `relay.core.ports.RecurrenceStore`."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import compress

from relay.core.errors import ContentSealed, InvalidField, StoreRefused
from relay.core.instants import to_score
from relay.core.partitions import LEAVING, Layout, hashed, layout_of, own_name
from relay.core.recurring.ends import Became
from relay.core.recurring.recurrence import (
    Due,
    Recurrence,
    RecurrencePage,
    Standing,
    StoredRecurrence,
    Turn,
    Turned,
)
from relay.core.recurring.turns import look_at
from relay.core.timers import Content
from relay.core.trust.sealing import Unopened
from relay.store.codec.contents import PLAIN, Contents
from relay.store.codec.kept_recurrences import kept_of, sealed_of
from relay.store.codec.recurrence_text import content_to_seal, write_rule, write_standing
from relay.store.codec.subjects import SubjectKey
from relay.store.partitions.carrying import Carrier, asking
from relay.store.partitions.ends import ended
from relay.store.partitions.for_each import for_each
from relay.store.server.scripts import Argument
from relay.store.server.server import Server
from relay.store.timeline.subjects import Subjects
from relay.store.verbs import move, recur

_TURNED = {each.value.encode(): each for each in Turned}

PAGE = 1_000
"""The number of timers whose ids one command looks at, roughly."""

_GLOB = re.compile(r"[*?\[\]\\^]")
"""What means something in a glob."""

NEVER = "inf"
"""When a recurrence is looked at that has ended."""


class RedisRecurrences:
    """The `RecurrenceStore` of the topics on a server.

    A recurrence that a move takes away is carried to where it belongs before anything is done with it, behind
    its last occurrence: turns ask whether that is there.
    """

    def __init__(self, server: Server, carrier: Carrier, contents: Contents = PLAIN) -> None:
        self._server = server
        self._contents = contents
        self._subjects = Subjects(server, contents)
        self._carrier = carrier

    async def get(self, partition: str, recurrence_id: str) -> tuple[int, StoredRecurrence | None]:
        """See `RecurrenceStore.get`. One script call, and an HMGET if its subject is not known."""
        home = await self._home(partition, recurrence_id)
        return await self._read(home, recurrence_id)

    async def _read(self, partition: str, recurrence_id: str) -> tuple[int, StoredRecurrence | None]:
        with asking(partition):
            now, *found = await self._server.call(recur.get(partition, [recurrence_id]))
        kept, unread = await self._kept_of(partition, found)
        if unread and all(found[1:3]):
            if (why := unread[recurrence_id]) is not None:
                raise ContentSealed(f"the content of recurrence {recurrence_id!r} is {why}")
            problem = f"recurrence {recurrence_id!r} was written by another version of Relay, and this one"
            raise StoreRefused(f"{problem} can't read it; call a relay of that version")
        return int(now), kept[0] if kept else None

    async def due(self, partition: str, limit: int, *, skip: int = 0) -> Due:
        """See `RecurrenceStore.due`. One script call, and an HMGET for subjects that are not known."""
        now, following, *found = await self._server.call(recur.due(partition, limit, skip))
        kept, unread = await self._kept_of(partition, found)
        return Due(int(now), int(following) if following else None, kept, list(unread))

    async def turn(
        self, partition: str, turns: Sequence[Turn], now: int, *, max_waiting: int = 0
    ) -> list[Turned]:
        """See `RecurrenceStore.turn`. One script call, and one more for subjects that are not known; while a
        move takes these away, three more for each."""
        if partition.endswith(LEAVING):
            for each in turns:
                await self._home(partition, each.kept.recurrence.recurrence_id)
            partition = layout_of(partition).filled(partition)
        keys = await self._keys_of(partition, turns)
        can_be = [not each.occurrences or each.kept.recurrence.seal_with in keys for each in turns]
        args: list[Argument] = []
        for each in compress(turns, can_be):
            args += self._turn_words(partition, each, now, keys.get(each.kept.recurrence.seal_with))
        with asking(partition):
            told = await self._server.call(recur.turn(partition, max_waiting, args))
        words = iter(told)
        return [_TURNED[next(words)] if can else Turned.OTHER for can in can_be]

    async def keep(
        self,
        partition: str,
        before: StoredRecurrence | None,
        recurrence: Recurrence,
        standing: Standing,
        now: int,
        *,
        reason: str,
    ) -> bool:
        """See `RecurrenceStore.keep`. One script call, and one more for a subject that is not known. Raises
        `InvalidField` for a subject that has no key."""
        look = look_at(standing, now)
        sealed = await self._sealed(partition, recurrence)
        return await self._keep(
            partition,
            recur.Keeping(
                recurrence.recurrence_id,
                b"" if before is None else before.stamp,
                write_rule(recurrence, sealed),
                write_standing(standing),
                NEVER if look is None else look,
                0 if before is None else _next(before.standing),
                _next(standing),
                reason,
            ),
        )

    async def remove(self, partition: str, kept: StoredRecurrence) -> bool:
        """See `RecurrenceStore.remove`. One script call."""
        name, before = kept.recurrence.recurrence_id, _next(kept.standing)
        return await self._keep(
            partition, recur.Keeping(name, kept.stamp, "", "", NEVER, before, 0, "removed")
        )

    async def _keep(self, partition: str, keeping: recur.Keeping) -> bool:
        home = await self._home(partition, keeping.recurrence_id)
        with asking(home):
            return await self._server.call(recur.keep(home, keeping)) == b"OK"

    async def occurrences(self, layout: Layout, recurrence_id: str) -> list[str]:
        """See `RecurrenceStore.occurrences`. A script call for each `PAGE` timers; while a move takes them
        away, those of where they leave first, so that none is passed over on its way, and once more behind
        those of where they belong: what found no room has come back."""
        partition = layout.partition(recurrence_id)
        if not partition.endswith(LEAVING):
            return sorted(await self._occurrences(partition, recurrence_id))
        here = own_name(partition)
        found = await self._occurrences(here, recurrence_id)
        await self._carrier.carry(layout, partition)
        for each in (layout.filled(partition), here):
            found |= await self._occurrences(each, recurrence_id)
        return sorted(found)

    async def _occurrences(self, partition: str, recurrence_id: str) -> set[str]:
        match = _GLOB.sub(r"\\\g<0>", recurrence_id) + "@*"
        while True:
            found, servers, cursor = set[str](), set[bytes](), b""
            while cursor != b"0":
                with asking(partition):
                    call = move.scan(partition, cursor or "0", PAGE, match)
                    server, cursor, *names = await self._server.call(call)
                servers.add(server)
                found.update(name.decode(errors="replace") for name in names)
            if len(servers) == 1:  # another one reads a cursor otherwise, and passes timers over
                return {name for name in found if hashed(name) == recurrence_id}

    async def page(self, layout: Layout, *, prefix: str, limit: int, cursor: str) -> RecurrencePage:
        """See `RecurrenceStore.page`. A script call for each partition, all at once."""
        first, last = _bounds(prefix.encode(), _read_cursor(cursor))
        read = partial(self._page, limit=limit, first=first, last=last)
        emptied = [own_name(each) for each in layout.emptied]
        pages = await for_each(read, emptied)
        if emptied:
            await self._carrier.arrive(layout)
        arrived = await for_each(read, [each for each in layout.partitions if each not in emptied])
        # What found no room has come back. What is found twice is where it belongs.
        pages += [*await for_each(read, emptied), *arrived]
        found = {each.recurrence.recurrence_id.encode(): each for kept, _ in pages for each in kept}
        ends = [end for _, end in pages if end is not None]
        names = sorted(name for name in found if name <= min(ends, default=name))
        end = names[limit - 1] if len(names) > limit else min(ends, default=None)
        return RecurrencePage(
            [found[name] for name in names[:limit]], "" if end is None else _write_cursor(end)
        )

    async def ended(
        self, layout: Layout, recurrence_id: str, made: Mapping[str, int], *, journaled: bool
    ) -> Mapping[str, Became]:
        """See `RecurrenceStore.ended`. A script call for 500 dead letters, and with a journal an XRANGE for
        100 entries, as far as they are read."""
        return await ended(self._server, layout, recurrence_id, made, journaled=journaled)

    async def _page(
        self, partition: str, limit: int, first: bytes, last: bytes
    ) -> tuple[list[StoredRecurrence], bytes | None]:
        """What can be read of a page, and the id at which it ends; None if there is no more."""
        _, more, *found = await self._server.call(recur.page(partition, limit, first, last))
        kept, _ = await self._kept_of(partition, found)
        return kept, found[-4] if more else None

    async def _home(self, partition: str, recurrence_id: str) -> str:
        """The partition in which a recurrence is, or is to be: where a move takes it, once it is there."""
        if not partition.endswith(LEAVING):
            return partition
        layout = layout_of(partition)
        await self._carrier.carry(layout, partition)
        while (kept := (await self._read(own_name(partition), recurrence_id))[1]) is not None:
            if kept.stands:
                await self._carrier.take(layout, partition, "t", [kept.standing.last])
            await self._carrier.take(layout, partition, "c", [recurrence_id])
        return layout.filled(partition)

    async def _kept_of(
        self, partition: str, found: Sequence[bytes]
    ) -> tuple[list[StoredRecurrence], dict[str, Unopened | None]]:
        await self._subjects.look(partition, sealed_of(found))
        return kept_of(self._contents, partition, found)

    async def _sealed(self, partition: str, wanted: Recurrence) -> bytes | None:
        """The content of a recurrence as it is stored if its topic, or itself, is sealed."""
        if not wanted.seal_with and not self._contents.seals(partition):
            return None
        (key,) = await self._subjects.keep(partition, [wanted.seal_with])
        return self._encoded(partition, wanted.recurrence_id, content_to_seal(wanted), key)

    def _encoded(self, partition: str, timer_id: str, content: Content, key: SubjectKey | None) -> bytes:
        payload, headers, content_type = content
        (stored,) = self._contents.encode_all(
            partition, [timer_id], [payload], [headers], [content_type], [key] if key else ()
        )
        return stored

    async def _keys_of(self, partition: str, turns: Sequence[Turn]) -> dict[str, SubjectKey | None]:
        """The keys with which the occurrences of turns are sealed, by subjects; None for no subject.

        This has a race: a subject is forgotten after its recurrence was read. It is missing here: its
        recurrence is not as it was read, and those of others are turned.
        """
        keys: dict[str, SubjectKey | None] = {"": None}
        for name in {each.kept.recurrence.seal_with for each in turns if each.occurrences} - {""}:
            with suppress(InvalidField):
                (keys[name],) = await self._subjects.keep(partition, [name])
        return keys

    def _turn_words(self, partition: str, turn: Turn, now: int, key: SubjectKey | None) -> list[Argument]:
        kept, wanted = turn.kept, turn.kept.recurrence
        look = look_at(turn.standing, now)
        words: list[Argument] = [
            wanted.recurrence_id,
            kept.stamp,
            "1" if kept.stands else "",
            write_standing(turn.standing),
            NEVER if look is None else look,
            _next(kept.standing),
            _next(turn.standing),
            _reasons(turn),
            turn.cancel,
            len(turn.occurrences),
        ]
        expires = "" if wanted.expires_after is None else f";x{wanted.expires_after}"
        for each in turn.occurrences:
            content = Content(wanted.payload, each.headers, wanted.content_type)
            stored = self._encoded(partition, each.timer_id, content, key)
            words += (each.timer_id, f"{to_score(each.due)!r}{expires}", stored)
        return words


def _next(standing: Standing) -> float:
    return 0 if standing.next is None else to_score(standing.next)


def _reasons(turn: Turn) -> str:
    """Why instants that this turn has gone through have no occurrence; see KIND_TICKED."""
    counts = {reason.value: count for reason, count in turn.left_out.items()}
    before, after = turn.kept.standing, turn.standing
    for name in ("buffered", "held"):
        if change := (getattr(after, name) is not None) - (getattr(before, name) is not None):
            counts[name] = change
    return " ".join(f"{reason}={count}" for reason, count in counts.items())


def _bounds(prefix: bytes, after: bytes | None) -> tuple[bytes, bytes]:
    """From where to where a page goes, as ZRANGE takes it by BYLEX. No byte of UTF-8 is FF."""
    first = b"[" + prefix if after is None else b"(" + after
    return first, b"(" + prefix + b"\xff"


def _write_cursor(name: bytes) -> str:
    return base64.urlsafe_b64encode(name).decode()


def _read_cursor(cursor: str) -> bytes | None:
    if not cursor:
        return None
    try:
        return base64.b64decode(cursor, b"-_", validate=True)
    except ValueError:
        raise InvalidField("page_token", "is not one that a page gave; start without one") from None
