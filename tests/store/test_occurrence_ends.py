"""How occurrences have ended, by the journals of their topic: each is found where it is, what is read is
bounded, and what is not known is said.

Each of these breaks was seen to fail here:
- The whole journal is read instead of leaping from one occurrence to the next.
- There is no bound for what is read of one occurrence.
- A gap is not noticed.
- Only the partition of today is read; what has left is not followed.
- What was found before the time was over is lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from relay.core.journal import RecordKind
from relay.core.partitions import Layout, partition_number
from relay.core.recurring.ends import Became, OccurrenceOutcome
from relay.core.recurring.rule import occurrence_name
from relay.journal.v1 import journal_pb2
from relay.store.keys import KeyNames
from relay.store.partitions import ends
from relay.store.partitions.journals import PAGE, TopicJournal
from relay.store.server.server import Server

if TYPE_CHECKING:
    from redis import Redis

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

K, OUTCOME = RecordKind, OccurrenceOutcome
MS = 1_000
START = 1_767_225_600_000
"""Milliseconds at which the first occurrence is made."""
DAY = 86_400_000
NAME = "r"
FILLER = b"x" * 20_000
ACKED = Became(OUTCOME.ACKED, "", 1)


def name(number: int = 0) -> str:
    return occurrence_name(NAME, (START + number * DAY) * MS)


class Books:
    """The journals of a topic, written by hand: entry by entry, at any millisecond."""

    def __init__(self, raw: Redis, server: Server, topic: str) -> None:
        self.raw, self.server, self.layout = raw, server, Layout(topic)
        self._last: dict[int, int] = {}

    def lay_out(self, text: str) -> None:
        self.layout = Layout.parse(self.layout.topic, text)
        self.raw.set(KeyNames().key("layout", self.layout.topic), text)
        for partition in self.layout.partitions[1:]:
            self.raw.set(KeyNames().key("layout", partition), text)

    def key(self, number: int = 0) -> str:
        partition = self.layout.partitions[number] if self.layout.epoch else self.layout.topic
        return KeyNames().key("journal", partition)

    def write(
        self,
        at: int,
        kind: RecordKind,
        timer_id: str,
        *,
        partition: int = 0,
        hand_over: str = "",
        **fields: Any,
    ) -> str:
        """An entry of one record; return its id."""
        number = self._last[partition] = self._last.get(partition, 0) + 1
        change = journal_pb2.Change(kind=int(kind), timer_id=timer_id.encode(), **fields)  # type: ignore[arg-type]
        batch = journal_pb2.Batch(
            version=1, time=at * MS, first=number, last=number, hand_over=hand_over, changes=[change]
        )
        found: Any = self.raw.xadd(self.key(partition), {b"b": batch.SerializeToString()}, id=f"{at}-*")
        return str(found.decode())

    def made(self, at: int, timer_id: str, partition: int = 0) -> None:
        """An occurrence that is made and claimed."""
        self.write(at, K.SCHEDULED, timer_id, partition=partition)
        self.write(at + 1, K.CLAIMED, timer_id, partition=partition, claims=1)

    def others(self, since: int, count: int, *, apart: int = 10, partition: int = 0, size: int = 0) -> None:
        """Records of other timers."""
        for n in range(count):
            self.write(
                since + n * apart,
                K.SCHEDULED,
                f"other-{n}",
                partition=partition,
                dead_id=FILLER[:size].decode(),
            )

    def bury(self, at: int, timer_id: str, *, partition: int = 0, **fields: str) -> str:
        """A dead letter; return its id."""
        named = self.layout.partitions[partition] if self.layout.epoch else self.layout.topic
        letter: dict[Any, Any] = {
            "timer_id": timer_id,
            "died": at * MS,
            "attempts": 3,
            "claims": 3,
            "due": 5.0,
            "occurrence": b"n" * 16,
            "error": "why",
            **fields,
        }
        self.raw.xadd(KeyNames().key("dead", named), letter, id=f"{at}-0")
        return f"{at}-0"

    async def ended(self, *numbers: int) -> Mapping[str, Became]:
        made = {name(n): (START + n * DAY) * MS for n in numbers}
        return await ends.ended(self.server, self.layout, NAME, made, journaled=True)

    async def end(self) -> Became:
        return (await self.ended(0))[name()]


@pytest.fixture
async def books(valkey: RunningServer, keyspace: Keyspace) -> AsyncIterator[Books]:
    topic = keyspace.topic()
    keyspace.allow(f"*{topic}*")
    async with Server(valkey.url, connections=4, timeout=60.0) as server:
        with valkey.client() as raw:
            yield Books(raw, server, topic)


class Reads:
    """What was read of journals."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop_after: float = float("inf")) -> None:
        self.pages, self.size = 0, 0
        page = TopicJournal.page

        async def read(journal: TopicJournal, number: int, start: str, count: int = PAGE) -> dict[str, bytes]:
            if self.pages >= stop_after:
                await anyio.sleep_forever()
            found = await page(journal, number, start, count)
            self.pages += 1
            self.size += sum(map(len, found.values()))
            return found

        monkeypatch.setattr(TopicJournal, "page", read)


def at(became: Became, ended: int) -> Became:
    """It ended at this millisecond."""
    return Became(became.outcome, became.reason, became.attempts, ended * MS)


async def test_what_lies_between_two_is_not_read(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """Occurrences of every night, and a journal that is busy by day."""
    for n in range(5):
        books.made(START + n * DAY, name(n))
        books.write(START + n * DAY + 5, K.ACKED, name(n))
        books.others(START + n * DAY + 1_000, 3 * PAGE)
    reads = Reads(monkeypatch)
    assert await books.ended(*range(5)) == {name(n): at(ACKED, START + n * DAY + 5) for n in range(5)}
    assert reads.pages == 5 + 2, "and a look at the beginning, before and behind"


async def test_those_that_run_at_the_same_time_are_read_once(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes longer than the time between two."""
    for n in range(3):
        books.made(START + n * DAY, name(n))
    books.others(START + 2 * DAY + 10, 2 * PAGE)
    for n in range(3):
        books.write(START + 3 * DAY + n, K.ACKED, name(n))
    reads = Reads(monkeypatch)
    assert await books.ended(0, 1, 2) == {name(n): at(ACKED, START + 3 * DAY + n) for n in range(3)}
    assert reads.pages == 3 + 2


async def test_an_end_that_is_too_far(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes part in a busy topic for long: so much is read, and no more. The next one is told all the
    same."""
    books.made(START, name())
    books.others(START + 10, ends.MOST_BYTES // len(FILLER) + 2 * PAGE, size=len(FILLER))
    books.write(START + DAY - 1, K.ACKED, name())
    books.made(START + DAY, name(1))
    books.write(START + DAY + 5, K.ACKED, name(1))
    reads = Reads(monkeypatch)
    assert await books.ended(0, 1) == {name(): Became.unknown("too_far"), name(1): at(ACKED, START + DAY + 5)}
    assert reads.size < ends.MOST_BYTES + 2 * PAGE * 1.1 * len(FILLER)


async def test_an_end_behind_too_many_entries(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are small, and each costs the relay something."""
    monkeypatch.setattr(ends, "MOST_ENTRIES", 2 * PAGE)
    books.made(START, name())
    books.others(START + 10, 4 * PAGE)
    reads = Reads(monkeypatch)
    assert await books.end() == Became.unknown("too_far")
    assert reads.pages == 3 + 2


@pytest.mark.parametrize("time", ["made", "later"])
async def test_a_journal_that_was_trimmed(books: Books, time: str) -> None:
    """Where its end is still there, that is told."""
    books.made(START, name())
    end = START + 3 * ends.BEGINS_WITHIN
    books.write(end, K.CLAIMED, name(), attempts=1)
    books.write(end + 1, K.ACKED, name())
    books.others(end + 5, 3)
    books.raw.xtrim(books.key(), minid=f"{START + 1 if time == 'made' else end + 2}", approximate=False)
    told = at(Became(OUTCOME.ACKED, "", 2), end + 1) if time == "made" else Became.unknown("trimmed")
    assert await books.end() == told


async def test_a_journal_that_is_trimmed_as_it_is_read(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes behind a gap may be another end than its first."""
    books.made(START, name())
    books.others(START + 10, PAGE)
    books.write(START + 2_000, K.ACKED, name())
    books.others(START + 2_001, PAGE)
    page = TopicJournal.page

    async def read(journal: TopicJournal, number: int, start: str, count: int = PAGE) -> dict[str, bytes]:
        found = await page(journal, number, start, count)
        if count == PAGE:
            books.raw.xtrim(books.key(), minid=f"{START + 2_001}", approximate=False)
        return found

    monkeypatch.setattr(TopicJournal, "page", read)
    assert await books.end() == Became.unknown("trimmed")


async def test_a_journal_that_is_gone_before_it_is_read(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reached back to the occurrence when it was looked at, and does not any more."""
    books.made(START, name())
    books.write(START + 5, K.ACKED, name())
    books.others(START + 10, 3)
    page, reads = TopicJournal.page, []

    async def read(journal: TopicJournal, number: int, start: str, count: int = PAGE) -> dict[str, bytes]:
        reads.append(count)
        if count == PAGE:
            books.raw.xtrim(books.key(), minid=f"{START + 10}", approximate=False)
        return await page(journal, number, start, count)

    monkeypatch.setattr(TopicJournal, "page", read)
    assert await books.end() == Became.unknown("trimmed")
    assert reads == [1, PAGE, 1]


async def test_what_a_journal_does_not_have(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was switched on later, or a relay without it has made the occurrence: it is not looked for in all
    that follows."""
    assert await books.end() == Became.unknown("not_recorded"), "there is nothing"
    books.others(START - 10_000, 3)
    books.others(START, 10 * PAGE, apart=100)
    reads = Reads(monkeypatch)
    assert await books.end() == Became.unknown("not_recorded")
    assert reads.pages == 1 + 2


async def test_a_clock_that_was_set_back(books: Books) -> None:
    """Between the tick and what it wrote."""
    books.made(START - 50, name())
    books.write(START - 40, K.ACKED, name())
    assert await books.end() == at(ACKED, START - 40)


async def test_what_the_journal_believes_to_live(books: Books) -> None:
    """It has no end: whoever asks looks again whether it lives."""
    books.made(START, name())
    assert await books.end() == Became(OUTCOME.WAITING)


async def test_a_dead_letter_that_is_kept_no_more(books: Books) -> None:
    """Nobody has redriven it by the end of the journal, so it is dead."""
    books.made(START, name())
    books.write(START + 5, K.DEAD, name(), reason="attempts", attempts=3, dead_id="7-0")
    books.others(START + 10, 2 * PAGE)
    assert await books.end() == at(Became(OUTCOME.DEAD, "attempts", 3), START + 5)
    books.write(START + DAY, K.REDRIVEN, name(), dead_id="7-0")
    books.write(START + DAY + 1, K.CANCELLED, name())
    assert await books.end() == at(Became(OUTCOME.CANCELLED), START + DAY + 1)


# ----------------------------------------------------------------------------- partitions


HOME = partition_number(NAME, 4)
THERE = f"2:0>{HOME}:1767225600000000"


@pytest.mark.parametrize("skew", [-900, 0, 900])
async def test_one_that_has_moved(books: Books, skew: int) -> None:
    """From the topic's only partition into one of four, on a node whose clock is another."""
    books.lay_out("3 4")
    for number in range(4):
        books.others(START - 5_000, 20, partition=number)
    books.made(START, name())
    left = START + 10_000
    books.write(left, K.LEFT, name(), hand_over=THERE)
    books.write(left + skew, K.ARRIVED, name(), hand_over=THERE, partition=HOME)
    books.write(left + skew + 1, K.ACKED, name(), partition=HOME)
    assert await books.end() == at(ACKED, left + skew + 1)


async def test_one_that_has_moved_at_once(books: Books) -> None:
    """It is seen where it arrived before it is looked for where it began; what was counted there, counts."""
    books.lay_out("3 4")
    books.made(START, name())
    books.write(START + 2, K.LEFT, name(), hand_over=THERE)
    books.write(START + 3, K.ARRIVED, name(), hand_over=THERE, partition=HOME)
    books.write(START + 4, K.ACKED, name(), partition=HOME)
    assert await books.end() == at(ACKED, START + 4)


async def test_one_that_came_back(books: Books) -> None:
    """There was no room for it where it was to go."""
    books.lay_out("3 4")
    books.made(START, name())
    books.write(START + 2, K.LEFT, name(), hand_over=THERE)
    books.write(START + 3, K.RETURNED, name(), hand_over=THERE)
    books.write(START + 4, K.ACKED, name())
    assert await books.end() == at(ACKED, START + 4)


async def test_one_that_has_ended_where_its_topic_was(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions that never had its recurrence are not read."""
    books.lay_out("3 4")
    books.made(START, name())
    books.write(START + 2, K.ACKED, name())
    read: list[int] = []
    page = TopicJournal.page

    async def note(journal: TopicJournal, number: int, start: str, count: int = PAGE) -> dict[str, bytes]:
        read.append(number)
        return await page(journal, number, start, count)

    monkeypatch.setattr(TopicJournal, "page", note)
    assert await books.end() == at(ACKED, START + 2)
    assert set(read) == {partition_number(NAME, count) for count in (1, 2, 4)} != set(range(4))


async def test_one_that_is_lost_on_its_way(books: Books) -> None:
    """It is not known to have arrived: whoever asks looks again whether it lives."""
    books.lay_out("3 4")
    books.made(START, name())
    books.write(START + 2, K.LEFT, name(), hand_over=THERE)
    assert await books.end() == Became(OUTCOME.WAITING)


# ------------------------------------------------------------------------------ time, letters


async def test_what_was_found_in_time_is_told(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis does not answer any more."""
    books.made(START, name())
    books.write(START + 5, K.ACKED, name())
    books.others(START + 10, PAGE)
    books.made(START + DAY, name(1))
    monkeypatch.setattr(ends, "MOST_SECONDS", 0.5)
    Reads(monkeypatch, stop_after=2)
    assert await books.ended(0, 1) == {name(): at(ACKED, START + 5), name(1): Became.unknown("too_far")}


async def test_letters(books: Books) -> None:
    """They need no journal; those of a stream's group say nothing of the other groups."""
    books.bury(START + 1, name(), reason="attempts")
    books.bury(START + 2, name(), reason="rejected")
    books.bury(START + DAY + 1, name(1), reason="expired")
    books.bury(START + 2 * DAY + 1, name(2), reason="attempts", group="billing")
    made = {name(n): (START + n * DAY) * MS for n in range(4)}
    told = await ends.ended(books.server, books.layout, NAME, made, journaled=False)
    assert told == {
        name(0): at(Became(OUTCOME.DEAD, "rejected", 3), START + 2),
        name(1): at(Became(OUTCOME.EXPIRED, "", 3), START + DAY + 1),
        name(2): Became.unknown("no_journal"),
        name(3): Became.unknown("no_journal"),
    }


async def test_not_all_letters_are_read(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "MOST_PAGES", 2)
    monkeypatch.setattr(ends, "MAX_PER_CALL", 3)
    for n in range(6):
        books.bury(START + n, f"other-{n}", reason="attempts")
    books.bury(START + 9, name(), reason="attempts")
    made = {name(): START * MS}
    asked = (books.server, books.layout, NAME, made)
    assert await ends.ended(*asked, journaled=False) == {name(): Became.unknown("no_journal")}
    monkeypatch.setattr(ends, "MOST_PAGES", 3)
    assert (await ends.ended(*asked, journaled=False))[name()].outcome is OUTCOME.DEAD


async def test_whose_letter_is_kept_is_dead(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is not read on for a redrive."""
    books.made(START, name())
    letter = books.bury(START + 5, name(), reason="attempts")
    books.write(START + 5, K.DEAD, name(), reason="attempts", attempts=3, dead_id=letter)
    books.others(START + 10, 3 * PAGE)
    reads = Reads(monkeypatch)
    assert await books.end() == at(Became(OUTCOME.DEAD, "attempts", 3), START + 5)
    assert reads.pages == 1 + 2


async def test_another_timer_has_the_name_of_a_dead_one(books: Books) -> None:
    """Whether its records are read together with the death or not."""
    for n, apart in enumerate((10, PAGE)):
        start = START + n * DAY
        books.made(start, name(n))
        letter = books.bury(start + 5, name(n), reason="attempts")
        books.write(start + 5, K.DEAD, name(n), reason="attempts", attempts=3, dead_id=letter)
        books.others(start + 10, apart)
        books.made(start + 5_000, name(n))
        books.write(start + 5_010, K.ACKED, name(n))
    dead = Became(OUTCOME.DEAD, "attempts", 3)
    assert await books.ended(0, 1) == {name(n): at(dead, START + n * DAY + 5) for n in (0, 1)}


async def test_a_letter_that_has_moved(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has another name where it came."""
    books.lay_out("3 4")
    books.made(START, name())
    books.write(START + 5, K.DEAD, name(), reason="attempts", attempts=3, dead_id="7-0")
    books.write(START + 10_000, K.LEFT, name(), hand_over=THERE, dead_id="7-0")
    letter = books.bury(START + 10_001, name(), partition=HOME, reason="attempts")
    came = {"dead_id": letter, "previous_dead_id": "7-0"}
    books.write(START + 10_001, K.ARRIVED, name(), partition=HOME, hand_over=THERE, **came)
    books.others(START + 10_005, 3 * PAGE, partition=HOME)
    reads = Reads(monkeypatch)
    assert await books.end() == at(Became(OUTCOME.DEAD, "attempts", 3), START + 5)
    assert reads.size < 4 * PAGE * 60


async def test_a_letter_of_which_the_journal_has_nothing_left(books: Books) -> None:
    books.write(START - 5, K.SCHEDULED, "other")
    books.write(START + 9, K.SCHEDULED, "other")
    books.raw.xtrim(books.key(), maxlen=1, approximate=False)
    assert await books.end() == Became.unknown("trimmed")
    books.bury(START + 5, name(), reason="rejected")
    assert await books.end() == at(Became(OUTCOME.DEAD, "rejected", 3), START + 5)


@pytest.mark.parametrize("time", [-1_000, 3, 9])
async def test_entries_that_this_version_cannot_read(books: Books, time: int) -> None:
    """Wherever a foreign one stands, what the others say is told."""
    if time < 0:
        books.raw.xadd(books.key(), {"x": "y"}, id=f"{START + time}-0")
    books.made(START, name())
    if time == 3:
        books.raw.xadd(books.key(), {"x": "y"}, id=f"{START + time}-0")
    books.write(START + 5, K.ACKED, name())
    if time == 9:
        books.raw.xadd(books.key(), {"x": "y"}, id=f"{START + time}-0")
    assert await books.end() == at(ACKED, START + 5)


async def test_an_entry_of_a_newer_version_that_names_it(books: Books) -> None:
    """It may have told of the end."""
    books.made(START, name())
    books.raw.xadd(books.key(), {"b": name()}, id=f"{START + 5}-0")
    assert await books.end() == Became.unknown("trimmed")
