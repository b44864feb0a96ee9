"""timeline/get.lua and timeline/list.lua: what is shown; reading writes nothing."""

from __future__ import annotations

from relay.core.instants import LATEST, SECOND
from relay.core.partitions import Layout
from relay.core.timers import StoredTimer, TimerState
from relay.store.codec import envelope
from relay.store.codec.lease_record import LEASED
from relay.store.verbs import timeline
from tests.worlds.scripts.asking import LEASE, N1, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import own, record, score

DUE = score(NOW - SECOND)
DEADLINE = own(NOW + LEASE)
HELD = record(LEASED, DEADLINE, due=DUE, nonce=N1, attempts=1)


async def pages(bench: Bench, limit: int) -> list[list[str]]:
    """All pages' ids."""
    found: list[list[str]] = []
    cursor = ""
    while True:
        page = await bench.store.list(Layout(bench.topic), state=None, limit=limit, cursor=cursor)
        found.append([timer.timer_id for timer in page.timers])
        if not page.cursor:
            return found
        assert page.cursor != cursor, "the same page for ever"
        cursor = page.cursor


async def test_get_shows_a_lease(bench: Bench) -> None:
    """State, due time, deadline, attempts and content, as stored."""
    bench.put("a", DEADLINE, HELD, stored=envelope.encode(b"x", {"h": "ü"}, "text/plain"))
    before = bench.state()
    assert await bench.store.get(bench.topic, "a") == StoredTimer(
        "a", TimerState.LEASED, NOW - SECOND, NOW + LEASE, 1, b"x", {"h": "ü"}, "text/plain"
    )
    assert bench.state() == before


async def test_get_what_is_not_there(bench: Bench) -> None:
    """No timer, a payload alone and a timeline entry alone are no timers."""
    bench.put_payload("payload")
    bench.put("timeline", DUE, stored=None)
    for timer_id in ("nothing", "payload", "timeline"):
        assert await bench.store.get(bench.topic, timer_id) is None


async def test_list_shows_what_get_shows(bench: Bench) -> None:
    """In the order of scores, without content; infinities are brought into 1970 to 9999."""
    bench.put("held", DEADLINE, HELD)
    bench.put("pending", DUE)
    bench.put("high", float("inf"))
    bench.put("low", float("-inf"))
    before = bench.state()
    page = await bench.store.list(Layout(bench.topic), state=None, limit=10, cursor="")
    assert page.cursor == ""
    assert page.timers == [
        StoredTimer("low", TimerState.PENDING, 0, 0, 0),
        StoredTimer("pending", TimerState.PENDING, NOW - SECOND, NOW - SECOND, 0),
        StoredTimer("held", TimerState.LEASED, NOW - SECOND, NOW + LEASE, 1),
        StoredTimer("high", TimerState.PENDING, LATEST, LATEST, 0),
    ]
    assert bench.state() == before


async def test_pages_over_any_scores(bench: Bench) -> None:
    """Pages begin and end at infinities, negative scores and equal ones without loss."""
    scores = [float("-inf"), -1.5, 0.0, DUE, DEADLINE, float("inf")]
    for n, at in enumerate(scores):
        for twin in ("a", "b", "é", ""):
            bench.put(f"{n}{twin}", at)
    everything = [f"{n}{twin}" for n in range(len(scores)) for twin in ("", "a", "b", "é")]
    for limit in (1, 2, 3, 5, 24, 25):
        found = await pages(bench, limit)
        assert [timer_id for page in found for timer_id in page] == everything
        assert all(len(page) == limit for page in found[:-1])
        assert found[-1], "the last page is not an empty one"


async def test_pages_with_envelopes(bench: Bench) -> None:
    """A page with its envelopes ends before the one that would be too much, and has one at least."""
    big, small = envelope.encode(b"x" * 500, {}, ""), envelope.encode(b"y", {}, "")
    stored = {"a": small, "b": small, "c": big, "d": None, "e": small}
    for timer_id, held in stored.items():
        bench.put(timer_id, DUE, stored=held)
    found: list[list[bytes]] = []
    cursor: tuple[str, bytes] = ("", b"")
    while True:
        more, *flat = await bench.redis.call(timeline.page(bench.topic, 500, *cursor, 100))
        found.append(flat[0::4])
        assert all(held == stored[name.decode()] for name, held in zip(flat[0::4], flat[3::4], strict=True))
        if not more:
            break
        assert cursor[1] != flat[-4], "the same page for ever"
        cursor = flat[-3].decode(), flat[-4]
    assert found == [[b"a", b"b"], [b"c"], [b"d", b"e"]]


async def test_pages_over_ids_that_are_not_utf8(bench: Bench) -> None:
    """Equal scores are ordered by bytes, whatever the server's locale, and empty ids are ids."""
    for raw in (b"", b"\x00", b"a\x00b", b"a", b"\x80", b"\xff\xff", b"Z"):
        bench.put(raw, DUE)
    found = await pages(bench, 1)
    assert [page[0].encode(errors="surrogateescape") for page in found] == [
        b"", b"\x00", b"Z", b"a", b"a\x00b", b"\x80", b"\xff\xff",
    ]  # fmt: skip
