"""lua/recur/calendar.lua and calendars.lua: calendars are kept whole, and each change has a revision."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from relay.core.errors import InvalidField, StoreFull, WrongKeyType
from relay.core.instants import SECOND
from relay.core.recurring.calendars import MOST_CALENDARS, KnownCalendars
from relay.core.recurring.recurrence import Put
from relay.store.keys import KeyNames
from relay.store.server.server import Server
from relay.store.timeline.calendars import RedisCalendars
from relay.store.verbs import recur
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench

NONE = KnownCalendars()


class Desk(RedisCalendars):
    """Calendars of this bench alone, by its clock."""

    def __init__(self, bench: Bench, server: Server) -> None:
        super().__init__(server)
        self.bench, self.server, self.key = bench, server, server.keys.calendars
        self.now = NOW

    @property
    def now(self) -> int:
        return self._now

    @now.setter
    def now(self, instant: int) -> None:
        self._now = instant
        self.bench.raw.set(f"{self.key}:now", instant)

    async def revision(self) -> str:
        return (await self.read(NONE)).revision


@asynccontextmanager
async def desk(bench: Bench) -> AsyncIterator[Desk]:
    keys = KeyNames(topics=f"{KeyNames().topics}:{bench.topic}")
    async with Server(bench.server.url, keys, connections=1, timeout=60.0, texts=bench.texts) as server:
        yield Desk(bench, server)


async def test_put(bench: Bench) -> None:
    """Created, left as it is, replaced; what was read is whole."""
    async with desk(bench) as calendars:
        assert await calendars.put("de", ["2026-12-25", "2026-12-26"]) is Put.CREATED
        assert await calendars.put("none", []) is Put.CREATED
        first = await calendars.read(NONE)
        assert first.dates == {"de": frozenset({"2026-12-25", "2026-12-26"}), "none": frozenset()}
        assert await calendars.put("de", ["2026-12-25", "2026-12-26"]) is Put.UNCHANGED
        assert await calendars.read(first) is first
        assert await calendars.put("de", ["2026-12-25"]) is Put.REPLACED
        assert (await calendars.read(first)).dates["de"] == {"2026-12-25"}
        stored = cast("dict[bytes, bytes]", bench.raw.hgetall(calendars.key))
        assert stored == {b"de": b"2026-12-25", b"none": b"", b"#revision": str(NOW + 2).encode()}


async def test_removed(bench: Bench) -> None:
    """Whoever has read it learns of it, also where it was the last one."""
    async with desk(bench) as calendars:
        assert (await calendars.read(NONE)).dates == {}
        assert not await calendars.remove("de")
        await calendars.put("de", ["2026-12-25"])
        known = await calendars.read(NONE)
        assert await calendars.remove("de")
        assert not await calendars.remove("de")
        assert (await calendars.read(known)).dates == {}


async def test_a_call_that_knows_all_is_answered_by_nothing_else(bench: Bench) -> None:
    """Relays ask once a second: the dates don't cross the wire again."""
    async with desk(bench) as calendars:
        await calendars.put("de", ["2026-12-25"])
        revision = await calendars.revision()
        assert await calendars.server.call(recur.calendars(revision)) == [revision.encode()]


async def test_revisions_grow(bench: Bench) -> None:
    """By the clock; also while it stands still, and when it steps back."""
    async with desk(bench) as calendars:
        found = []
        for n, step in enumerate((0, 0, SECOND, -3600 * SECOND)):
            calendars.now += step
            await calendars.put("de", [f"2026-12-{n + 1:02}"])
            found.append(int(await calendars.revision()))
        assert found == [NOW, NOW + 1, NOW + SECOND, NOW + SECOND + 1]


async def test_a_server_that_was_put_back(bench: Bench) -> None:
    """It has lost a change, and another one is made instead: whoever has read the lost one reads again."""
    async with desk(bench) as calendars:
        await calendars.put("de", ["2026-12-01"])
        backup = cast("bytes", bench.raw.dump(calendars.key))
        calendars.now += SECOND
        await calendars.put("de", ["2026-12-02"])
        lost = await calendars.read(NONE)
        bench.raw.restore(calendars.key, 0, backup, replace=True)
        calendars.now += SECOND
        await calendars.put("de", ["2026-12-03"])
        assert (await calendars.read(lost)).dates == {"de": {"2026-12-03"}}


async def test_as_many_as_may_be(bench: Bench) -> None:
    """One more is refused; those there are may change."""
    async with desk(bench) as calendars:
        for n in range(MOST_CALENDARS):
            await calendars.put(f"c{n}", [])
        with pytest.raises(InvalidField, match=r"^calendar.name: would be one more than the 100 calendars"):
            await calendars.put("more", [])
        assert await calendars.put("c1", ["2026-12-01"]) is Put.REPLACED
        assert len((await calendars.read(NONE)).dates) == MOST_CALENDARS
        await calendars.remove("c1")
        assert await calendars.put("more", []) is Put.CREATED


async def test_what_people_wrote(bench: Bench) -> None:
    """What is no date and no name does no harm, and the revision of whoever wrote it counts."""
    async with desk(bench) as calendars:
        bench.raw.hset(calendars.key, mapping={"de": "2026-12-25 never", b"\xff": "", "#revision": "mine"})
        known = await calendars.read(NONE)
        assert known.revision == "mine"
        assert known.dates["de"] == {"2026-12-25", "never"}
        assert await calendars.put("de", ["2026-12-25"]) is Put.REPLACED
        assert (await calendars.read(known)).revision == str(NOW)


@pytest.mark.parametrize("revision", ["1e300", "nan", "9007199254740992", "-1e300"])
async def test_a_revision_that_people_wrote(bench: Bench, revision: str) -> None:
    """Each change is another one, also where no number is greater by 1."""
    async with desk(bench) as calendars:
        bench.raw.hset(calendars.key, mapping={"de": "", "#revision": revision})
        seen = [await calendars.revision()]
        for day in ("2026-12-25", "2026-12-26"):
            await calendars.put("de", [day])
            seen.append(await calendars.revision())
        assert (seen[0], len(set(seen))) == (revision, 3)


async def test_another_type(bench: Bench) -> None:
    async with desk(bench) as calendars:
        bench.raw.set(calendars.key, "x")
        for call in (calendars.read(NONE), calendars.put("de", []), calendars.remove("de")):
            with pytest.raises(WrongKeyType, match="calendars holds a string, not a hash"):
                await call
        assert bench.raw.get(calendars.key) == b"x"


async def test_a_full_server(bench: Bench) -> None:
    """It refuses a new one whole, and lets one go."""
    async with desk(bench) as calendars:
        await calendars.put("de", ["2026-12-25"])
        before = bench.raw.hgetall(calendars.key)
        with bench.full():
            with pytest.raises(StoreFull):
                await calendars.put("fr", ["2026-07-14"])
            assert bench.raw.hgetall(calendars.key) == before
            assert await calendars.remove("de")
