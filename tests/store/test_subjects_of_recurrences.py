"""Recurrences that are sealed with the key of a subject: what is read of them, and what races its removal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay.core.errors import ContentSealed, SubjectForgotten
from relay.core.instants import SECOND
from relay.core.partitions import Layout
from relay.core.recurring.nominal import Nominal
from relay.core.recurring.recurrence import LeftOut, Recurrence, Standing, StoredRecurrence, Turn, Turned
from relay.core.recurring.rule import Rule
from relay.core.recurring.turns import turn
from relay.core.trust.sealing import SUBJECT
from relay.store.bulk.resealing import Resealing, Sealed
from relay.store.bulk.store import BulkStore
from relay.store.codec.subjects import KNOWN
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.recurrences import RedisRecurrences
from relay.store.server.blocking import BlockingServer
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.store.test_resealing import contents
from tests.store.test_subjects import Desk

FIRST = 1_767_225_600 * SECOND
WHO = {"a": "ann", "b": "ben", "n": ""}


def recurrence(name: str) -> Recurrence:
    return Recurrence(name, Rule(every=SECOND), name.encode(), {"h": name}, "text/plain", seal_with=WHO[name])


class Keeper(Desk):
    """A relay that keeps recurrences."""

    def __init__(self, url: str, topic: str, directory: Path) -> None:
        super().__init__(url, topic, directory)
        self.url = url
        self.recurrences = RedisRecurrences(self.server, Carrier(self.server), self.contents)

    async def put(self, name: str) -> None:
        """Keep a recurrence, in the place of the one that is there."""
        _, before = await self.recurrences.get(self.topic, name)
        standing = Standing(1 if before is None else before.standing.version + 1, FIRST)
        kept = await self.recurrences.keep(self.topic, before, recurrence(name), standing, 0, reason="put")
        assert kept

    async def due(self) -> list[Turn]:
        """What becomes of all of them at their next instant."""
        due = await self.recurrences.due(self.topic, 10)
        assert not due.unread
        return [turn(each, nominals(each), each.standing.next or 0, "") for each in due.kept]

    async def turn(self, turns: list[Turn]) -> dict[str, Turned]:
        words = await self.recurrences.turn(self.topic, turns, FIRST)
        return {each.kept.recurrence.recurrence_id: word for each, word in zip(turns, words, strict=True)}


def nominals(kept: StoredRecurrence) -> list[Nominal]:
    return [Nominal((kept.standing.next or 0) + n * SECOND, 0) for n in range(3)]


@pytest.fixture
async def keepers(
    valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> AsyncIterator[tuple[Keeper, Keeper]]:
    """Two relays of one topic, which has three recurrences."""
    topic = keyspace.topic("recurring")
    keyspace.allow(f"*{topic}*")
    pair = Keeper(valkey.url, topic, tmp_path), Keeper(valkey.url, topic, tmp_path)
    for name in WHO:
        await pair[0].put(name)
    yield pair
    for each in pair:
        await each.server.aclose()


async def test_a_recurrence_and_its_occurrences_have_their_subjects_key(
    keepers: tuple[Keeper, Keeper],
) -> None:
    """Another relay reads and turns them as they were put. No name stands in Redis."""
    one, other = keepers
    for name in WHO:
        _, kept = await other.recurrences.get(one.topic, name)
        assert kept is not None
        assert (kept.recurrence, kept.forgotten) == (recurrence(name), False)
    assert set((await other.turn(await other.due())).values()) == {Turned.DONE}
    assert set((await one.claim()).values()) == {b"a", b"b", b"n"}
    for name in ("rules", "payloads", "standings"):
        values = await one.server.ask("HVALS", one.server.keys.key(name, one.topic))
        assert not [each for each in values if b"ann" in each or b"ben" in each]
    assert (await one.topics.forget_subject(one.topic, "ann")) is not None
    other.now += KNOWN
    page = await other.recurrences.page(Layout(one.topic), prefix="", limit=10, cursor="")
    said = {each.recurrence.recurrence_id: each for each in page.kept}
    assert {name: each.forgotten for name, each in said.items()} == {"a": True, "b": False, "n": False}
    read = said["a"].recurrence
    assert (read.payload, read.headers, read.content_type, read.seal_with) == (b"", {}, "", "")
    assert read.rule == recurrence("a").rule


async def test_a_subject_that_is_forgotten_between_a_look_and_its_turn(
    keepers: tuple[Keeper, Keeper],
) -> None:
    """The race: a turn was computed of what could be read then. That recurrence is not as it was any more,
    nothing of it is written, and the others are turned. At the next look it ends, with its instants counted,
    whichever relay looks, and only once."""
    one, other = keepers
    computed = await one.due()
    assert await other.topics.forget_subject(one.topic, "ann")
    one.now += KNOWN
    assert await one.turn(computed) == {"a": Turned.OTHER, "b": Turned.DONE, "n": Turned.DONE}
    assert set((await other.claim()).values()) == {b"b", b"n"}
    (ending,), (too,) = [
        [each for each in await relay.due() if each.kept.recurrence.recurrence_id == "a"]
        for relay in (one, other)
    ]
    assert (list(ending.occurrences), ending.standing.next) == ([], None)
    assert ending.left_out == {LeftOut.FORGOTTEN: 1}
    assert await one.turn([ending]) == {"a": Turned.DONE}
    assert await other.turn([too]) == {"a": Turned.OTHER}
    assert not [each for each in await one.due() if each.kept.recurrence.recurrence_id == "a"]


async def test_a_forgotten_subject_takes_no_recurrence(keepers: tuple[Keeper, Keeper]) -> None:
    """Also where the relay knows its key: as soon as that knowledge is over. What is there stays, and can be
    removed."""
    one, other = keepers
    assert await other.topics.forget_subject(one.topic, "ann")
    one.now += KNOWN
    before = await one.server.ask("HGET", one.server.keys.key("rules", one.topic), "a")
    with pytest.raises(SubjectForgotten, match=r"seal_with: names a subject that was forgotten"):
        await one.put("a")
    assert await one.server.ask("HGET", one.server.keys.key("rules", one.topic), "a") == before
    _, kept = await one.recurrences.get(one.topic, "a")
    assert kept is not None
    assert await one.recurrences.remove(one.topic, kept)


async def test_keys_that_redis_lacks_are_not_forgotten(keepers: tuple[Keeper, Keeper]) -> None:
    """The hash is gone, and comes back: until then such recurrences are left as they are, with their
    instants, and others are turned."""
    one, _ = keepers
    dump = await one.server.ask("DUMP", one.key)
    await one.server.ask("DEL", one.key)
    one.now += KNOWN
    due = await one.recurrences.due(one.topic, 10)
    assert ([each.recurrence.recurrence_id for each in due.kept], set(due.unread)) == (["n"], {"a", "b"})
    with pytest.raises(ContentSealed, match="which Redis lacks"):
        await one.recurrences.get(one.topic, "a")
    await one.server.ask("RESTORE", one.key, 0, dump)
    one.now += KNOWN
    assert set((await one.turn(await one.due())).values()) == {Turned.DONE}


async def test_a_rotation_beside_recurrences_of_subjects(
    keepers: tuple[Keeper, Keeper], tmp_path: Path
) -> None:
    """It gives the new key to the subjects' keys, and leaves what they have sealed: a relay with the new key
    alone reads and turns all recurrences."""
    one, other = keepers
    with BulkStore(BlockingServer(one.url)) as store:
        resealing = Resealing(store)
        resealing.rotate(one.topic, contents(tmp_path, "k2", "k1"), "k2")
        found = resealing.count(one.topic)
    assert found[Sealed.RECURRENCES] == {SUBJECT: 2, "k2": 1}
    assert found[Sealed.SUBJECTS] == {"k2": 2}
    newer = RedisRecurrences(other.server, Carrier(other.server), contents(tmp_path, "k2"))
    due = await newer.due(one.topic, 10)
    assert {each.recurrence.recurrence_id: each.recurrence for each in due.kept} == {
        name: recurrence(name) for name in WHO
    }
    turns = [turn(each, nominals(each), FIRST, "") for each in due.kept]
    assert set(await newer.turn(one.topic, turns, FIRST)) == {Turned.DONE}
