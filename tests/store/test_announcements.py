"""Which relays live, by a stream of Redis: bounded, by the server's clock, and read without trust in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from relay.core.endpoints.announcement import Announcement
from relay.store.keys import KeyNames
from relay.store.server.server import Server
from relay.store.timeline import announcements
from relay.store.timeline.announcements import RedisAnnouncements
from tests.servers import RunningServer

pytestmark = pytest.mark.anyio

KEY = KeyNames().alive
ONE = Announcement("1", "orders-a", "0.1.0", up=7, streams=2, held=3, pushes=1, push_held=4)
OTHER = Announcement("2", "orders-b", "0.1.0")


@pytest.fixture
async def server(scripted_server: RunningServer) -> AsyncIterator[Server]:
    with scripted_server.client() as client:
        client.delete(KEY)
    async with Server(scripted_server.url, connections=2, timeout=60.0) as server:
        yield server


async def test_what_a_relay_said_last_holds_until_it_leaves(server: Server) -> None:
    relays = RedisAnnouncements(server)
    assert await relays.living() == []
    await relays.announce(ONE)
    await relays.announce(OTHER)
    later = Announcement("1", "orders-a", "0.1.0", up=17)
    await relays.announce(later)
    assert await relays.living() == [later, OTHER]
    await relays.leave("1")
    assert await relays.living() == [OTHER]


async def test_a_word_ends_by_the_clock_of_the_server(server: Server) -> None:
    """What was said more than 25 s before the newest word holds no more, whatever any relay's clock says."""
    relays = RedisAnnouncements(server)
    for at, instance in ((1_000, "1"), (1_001, "2"), (26_001, "3")):
        await server.ask("XADD", KEY, f"{at}-0", "instance", instance)
    assert [each.instance for each in await relays.living()] == ["2", "3"]


async def test_the_stream_is_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis trims by whole nodes of a stream, 100 entries each; and a look reads page after page."""
    monkeypatch.setattr(announcements, "KEEPS", 200)
    monkeypatch.setattr(announcements, "PAGE", 30)
    relays = RedisAnnouncements(server)
    for number in range(450):
        await relays.announce(Announcement(str(number % 45), f"relay-{number % 45:02}", "0.1.0", up=number))
    assert await server.ask("XLEN", KEY) < 400
    found = await relays.living()
    assert [each.up for each in found] == list(range(405, 450))


async def test_what_others_wrote_does_no_harm(server: Server) -> None:
    await server.ask(
        "XADD", KEY, "*", "instance", "9", "name", b"\xff" * 9_000, "up", "-5", "held", "x", "more", "1"
    )
    (found,) = await RedisAnnouncements(server).living()
    assert (len(found.name), found.up, found.held) == (announcements.MOST_TEXT, 0, 0)
