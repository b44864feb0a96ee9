"""A timer's life by its journal, page for page: what one call reads is bounded, and nothing is lost between
two calls."""

from __future__ import annotations

import pytest

from relay.core.errors import InvalidField
from relay.core.history.events import HistoryPage, TimerEvent
from relay.core.journal import RecordKind
from relay.core.partitions import Layout
from relay.core.timers import NewTimer
from relay.journal.v1 import journal_pb2
from relay.store import histories
from relay.store.histories import RedisHistories
from relay.store.partitions.journals import TopicJournal
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench

OTHERS = 25
"""Entries of other timers between two of this one."""


@pytest.fixture
def journal(bench: Bench) -> Bench:
    bench.keep = 1_000_000
    return bench


async def lived(bench: Bench, times: int) -> None:
    """A timer that is scheduled again and again, among two others, and with more entries in between."""
    for n in range(times):
        around = [NewTimer(name, b"", NOW + n) for name in (f"x{n}", "a", f"y{n}")]
        await bench.store.schedule(bench.topic, around)
        for m in range(OTHERS):
            await bench.store.schedule(bench.topic, [NewTimer(f"{n}.{m}", b"", NOW)])


def lines(*ids: str) -> dict[str, bytes]:
    """A journal with an entry a millisecond, each of one timer."""
    entries = {}
    for number, each in enumerate(ids, 1):
        change = journal_pb2.Change(kind=journal_pb2.KIND_SCHEDULED, timer_id=each.encode())
        batch = journal_pb2.Batch(version=1, time=5_000_000, first=number, last=number, changes=[change])
        entries[f"{5000 + number}-0"] = batch.SerializeToString()
    return entries


async def pages(bench: Bench, limit: int) -> list[HistoryPage]:
    found: list[HistoryPage] = []
    cursor = ""
    while True:
        page = await RedisHistories(bench.redis).read(bench.topic, "a", limit=limit, cursor=cursor)
        found.append(page)
        if not (cursor := page.cursor):
            return found


def events(found: list[HistoryPage]) -> list[TimerEvent]:
    return [event for page in found for event in page.events]


async def test_pages_have_all_of_it_once(journal: Bench) -> None:
    """The newest first, whatever their size; records of one call stay together."""
    await lived(journal, 6)
    twice = [NewTimer("a", b"", NOW + n) for n in (10, 11)]
    await journal.store.schedule(journal.topic, twice)
    (whole,) = await pages(journal, 500)
    assert [event.record.due - NOW for event in whole.events] == [11, 10, 5, 4, 3, 2, 1, 0]
    assert [event.kind for event in whole.events[-2:]] == [RecordKind.REPLACED, RecordKind.SCHEDULED]
    assert not whole.has_gaps
    for limit in (1, 2, 3, 7):
        found = await pages(journal, limit)
        assert events(found) == whole.events
        assert all(limit <= len(page.events) <= limit + 1 for page in found[:-1])


async def test_one_call_looks_at_a_bounded_number(journal: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page may be empty and lead on. By bytes and by time a call is bounded alike, and each goes on by a
    command at least."""
    await lived(journal, 6)
    (whole,) = await pages(journal, 500)
    monkeypatch.setattr(histories, "PAGE", 5)
    read = TopicJournal.page_before

    async def five(self: TopicJournal, number: int, start: str, count: int = 5) -> dict[str, bytes]:
        return await read(self, number, start, 5)

    monkeypatch.setattr(TopicJournal, "page_before", five)
    for name, value in (("MOST_ENTRIES", 10), ("MOST_BYTES", 1), ("MOST_SECONDS", 0.0)):
        with monkeypatch.context() as bounded:
            bounded.setattr(histories, name, value)
            found = await pages(journal, 500)
        assert events(found) == whole.events
        assert len(found) > 6 * OTHERS / 10
        assert any(not page.events for page in found)


async def test_what_was_trimmed_is_told(journal: Bench) -> None:
    """The oldest records are gone."""
    await lived(journal, 3)
    journal.raw.xtrim(journal.journal, maxlen=60, approximate=False)
    (page,) = await pages(journal, 500)
    assert [event.record.due - NOW for event in page.events] == [2, 1]
    assert page.has_gaps


async def test_what_was_trimmed_between_two_pages_is_told(journal: Bench) -> None:
    """The next page would begin at an entry that is gone, and finds nothing."""
    await lived(journal, 4)
    history = RedisHistories(journal.redis)
    first = await history.read(journal.topic, "a", limit=1, cursor="")
    assert not first.has_gaps
    journal.raw.xtrim(journal.journal, maxlen=5, approximate=False)
    rest = await history.read(journal.topic, "a", limit=1, cursor=first.cursor)
    assert rest == HistoryPage([], "", True)


async def test_a_journal_of_whole_pages(journal: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is missing where it ends with a page."""
    await lived(journal, 1)
    count = journal.raw.xlen(journal.journal)
    monkeypatch.setattr(histories, "PAGE", count)
    assert [page.has_gaps for page in await pages(journal, 1)] == [False]


async def test_pages_lead_on_where_a_second_has_more_entries_than_one_call_reads(
    journal: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is slow, so a call reads a page of each partition. What lies within a second of the end of
    what was read can't be told, and would be read again by each call."""
    monkeypatch.setattr(histories, "PAGE", 2)
    monkeypatch.setattr(histories, "MOST_SECONDS", 0.0)
    entries = {0: lines("n", "n", "a", "n", "n", "n"), 1: lines("a", "n", "n", "n", "n")}

    async def look(self: TopicJournal) -> None:
        self.layout = Layout(journal.topic, epoch=1, count=2)
        self._names = self.layout.partitions

    async def page_before(self: TopicJournal, number: int, start: str, count: int = 2) -> dict[str, bytes]:
        names = [name for name in entries[number] if start == "+" or name[:4] <= start[:4]]
        return {name: entries[number][name] for name in names[::-1][:2]}

    monkeypatch.setattr(TopicJournal, "look", look)
    monkeypatch.setattr(TopicJournal, "page_before", page_before)
    found, cursor = list[TimerEvent](), ""
    for _ in range(20):
        page = await RedisHistories(journal.redis).read(journal.topic, "a", limit=1, cursor=cursor)
        found += page.events
        if not (cursor := page.cursor):
            break
    assert [event.partition for event in found] == [0, 1]
    assert not cursor


async def test_an_entry_that_cannot_be_read(journal: Bench) -> None:
    """It stops no history. If it has the timer's id, something may be missing."""
    await lived(journal, 1)
    journal.raw.xadd(journal.journal, {"x": "y"})
    await lived(journal, 1)
    journal.raw.xadd(journal.journal, {"b": b"\xff a"})
    (page,) = await pages(journal, 500)
    assert len(page.events) == 2
    assert page.has_gaps


@pytest.mark.parametrize(
    "cursor", ["x", "0:1", "7:5-0", "0:5-0,", "0:+", "0:5-0,7:1-1", "0:5-18446744073709551616"]
)
async def test_a_cursor_that_no_page_gave(journal: Bench, cursor: str) -> None:
    with pytest.raises(InvalidField, match="page_token"):
        await RedisHistories(journal.redis).read(journal.topic, "a", limit=1, cursor=cursor)
