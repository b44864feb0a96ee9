"""people/redrive.lua, people/purge.lua and people/trim.lua: what becomes of dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from relay.core.errors import StoreRefused
from relay.core.instants import SECOND
from relay.core.outcomes import Limits
from relay.core.timers import Change
from relay.store.codec.lease_record import LEASED, PENDING
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, ENVELOPE, Letter, alone, own, record, score

DUE = score(NOW - SECOND)
DEADLINE = own(NOW + LEASE)
HELD = record(LEASED, DEADLINE, due=DUE, nonce=N1)


# --------------------------------------------------------------------------------- pages


async def test_a_page_leaves_the_content_out(bench: Bench) -> None:
    """However large it is, it does not cross the wire; a page of much content ends sooner, and goes on."""
    letters = [Letter(f"t{n:02}", "rejected", 1, 1, DUE, NOW, N1, envelope=bytes(100_000)) for n in range(35)]
    names = [bench.put_letter(letter) for letter in letters]
    reply = await bench.run("people/letters", 500, "", 4 << 20, 10)
    assert (reply[0], [name.decode() for name in reply[1::2]]) == (b"", names)
    assert all(b"envelope" not in fields[::2] and len(fields) == 16 for fields in reply[2::2])
    found, cursor = [], ""
    while True:
        more, *flat = await bench.run("people/letters", 20, cursor, 550_000, 10)
        assert len(flat) == 2 * 6 or not more, "about as much as asked for"
        found += [name.decode() for name in flat[::2]]
        cursor = found[-1]
        if not more:
            break
    assert found == names


async def test_a_letter_larger_than_a_page(bench: Bench) -> None:
    """It makes a page of its own, so that nothing is in the way of what follows."""
    names = [
        bench.put_letter(Letter("a", "rejected", 1, 1, DUE, NOW, N1, envelope=bytes(5 << 20)))
        for _ in range(3)
    ]
    page = await bench.topics.dead_page(bench.topic, limit=5, cursor="")
    assert ([letter.dead_id for letter in page.letters], page.cursor) == (names[:1], names[0])
    page = await bench.topics.dead_page(bench.topic, limit=1, cursor=names[1])
    assert ([letter.dead_id for letter in page.letters], page.cursor) == (names[2:], "")


@pytest.mark.parametrize("limit", [1, 9, 10, 11, 29, 30, 31])
async def test_pages_of_any_length(bench: Bench, limit: int) -> None:
    """Each letter once, and the last page is never an empty one."""
    names = [bench.put_letter(Letter("a", "rejected", 1, 1, DUE, NOW, N1)) for _ in range(30)]
    found, cursor = [], ""
    while True:
        page = await bench.topics.dead_page(bench.topic, limit=limit, cursor=cursor)
        assert len(page.letters) == limit or not page.cursor
        found += [letter.dead_id for letter in page.letters]
        cursor = page.cursor
        if not cursor:
            break
    assert page.letters
    assert found == names


# ----------------------------------------------------------------------- trim and purge


async def test_trim_by_count(bench: Bench) -> None:
    """The oldest go, and the answer counts them."""
    names = [bench.put_letter(Letter(f"t{n}", "rejected", 1, 1, DUE, NOW, N1)) for n in range(5)]
    assert await bench.topics.trim(bench.topic, max_count=5, max_age=0) == 0
    assert await bench.topics.trim(bench.topic, max_count=2, max_age=0) == 3
    assert bench.dead_ids() == names[3:]
    assert await bench.topics.trim(bench.topic, max_count=0, max_age=0) == 0


async def test_trim_by_age(bench: Bench) -> None:
    """To the millisecond by the age of the entry; nothing of the stream is left behind."""
    for n in (1, 2, 3):
        bench.put_letter(Letter("a", "rejected", 1, 1, DUE, NOW, N1), f"{NOW // 1000 + n}-0")
    assert await bench.topics.trim(bench.topic, max_count=0, max_age=10 * SECOND) == 0
    bench.now = NOW + 10 * SECOND + 2000
    assert await bench.topics.trim(bench.topic, max_count=0, max_age=10 * SECOND) == 1
    assert len(bench.dead_ids()) == 2
    bench.now = NOW + 20 * SECOND
    assert await bench.topics.trim(bench.topic, max_count=9, max_age=10 * SECOND) == 2
    assert bench.state() == EMPTY
    assert await bench.topics.trim(bench.topic, max_count=1, max_age=1) == 0


async def test_trim_before_the_first_second(bench: Bench) -> None:
    """A clock that stands near 1970 removes nothing, instead of failing."""
    bench.put_letter(Letter("a", "rejected", 1, 1, DUE, NOW, N1))
    bench.now = SECOND
    assert await bench.topics.trim(bench.topic, max_count=0, max_age=2 * SECOND) == 0
    assert len(bench.dead_ids()) == 1


async def test_purge(bench: Bench) -> None:
    """What is named goes, once; with the last one goes the stream."""
    first, second = (bench.put_letter(Letter("a", "rejected", 1, 1, DUE, NOW, N1)) for _ in range(2))
    assert await bench.topics.purge(bench.topic, ["5-5", first, first]) == 1
    assert bench.dead_ids() == [second]
    assert await bench.topics.purge(bench.topic, [second]) == 1
    assert bench.state() == EMPTY
    assert await bench.topics.purge(bench.topic, [second]) == 0


# ------------------------------------------------------------------------------ redrive

LETTER = Letter("a", "attempts", 9, 11, DUE, NOW - SECOND, N2, b"no")


async def test_a_redriven_timer(bench: Bench) -> None:
    """Due now, with a new life and the occurrence that it had; the letter is gone, and its stream."""
    name = bench.put_letter(LETTER)
    assert await bench.run("people/redrive", "channel", name) == [b"OK", b"a"]
    kept = record(PENDING, own(NOW), due=score(NOW), claims=0, occurrence=N2)
    assert bench.state() == alone("a", own(NOW), kept)
    bench.now += 1
    (timer,) = (await bench.claim(N1, limits=Limits(max_attempts=1, max_claims=1, max_age=1))).timers
    assert (timer.attempt, timer.due, timer.occurrence_id) == (1, NOW, f"a/{N2.hex()}")


async def test_a_redrive_of_nothing(bench: Bench) -> None:
    """An entry that is not there, in a topic with others and in an empty one."""
    assert await bench.run("people/redrive", "channel", "5-5") == [b"GONE", b""]
    bench.put_letter(LETTER)
    before = bench.state()
    assert await bench.run("people/redrive", "channel", "5-5", "7-0") == [b"GONE", b"", b"GONE", b""]
    assert bench.state() == before


@pytest.mark.parametrize("lease", [None, HELD, record(PENDING, DEADLINE, due=DUE)])
async def test_a_redrive_of_an_id_that_lives(bench: Bench, lease: object) -> None:
    """The living timer stays as it is, in any state, and so does the letter."""
    bench.put("a", DEADLINE, lease, stored=b"new")  # type: ignore[arg-type]
    name = bench.put_letter(LETTER)
    before = bench.state()
    assert await bench.run("people/redrive", "channel", name) == [b"CONFLICT", b"a"]
    assert bench.state() == before


async def test_two_deaths_redriven_in_one_call(bench: Bench) -> None:
    """The first one lives, and is in the way of the second; so is an entry that comes twice."""
    first = bench.put_letter(LETTER)
    second = bench.put_letter(LETTER._replace(envelope=b"second"))
    answer = await bench.run("people/redrive", "channel", first, second, first)
    assert answer == [b"OK", b"a", b"CONFLICT", b"a", b"CONFLICT", b"a"]
    assert (bench.dead_ids(), bench.state().payloads) == ([second], {"a": ENVELOPE})


async def test_a_redrive_over_what_lies_around(bench: Bench) -> None:
    """A record and a payload that a foreign worker's commit left behind are overwritten."""
    bench.put_payload("a", b"old")
    bench.put_record("a", bytes(69))
    name = bench.put_letter(LETTER)
    await bench.topics.redrive(bench.topic, [name])
    kept = record(PENDING, own(NOW), due=score(NOW), claims=0, occurrence=N2)
    assert bench.state() == alone("a", own(NOW), kept)


async def test_a_redriven_timer_and_foreign_writers(bench: Bench) -> None:
    """A publisher's score is a new intent, also in the microsecond of the redrive; a worker's is a lease."""
    for at, due, occurrence, approximate in (
        (score(NOW), NOW, N1, False),
        (score(NOW) + 2**-22, NOW, N2, True),
        (score(NOW + 5 * SECOND), NOW + 5 * SECOND, N1, False),
    ):
        await bench.topics.redrive(bench.topic, [bench.put_letter(LETTER)])
        bench.put("a", at)
        bench.now = NOW + 6 * SECOND
        (timer,) = (await bench.claim(N1)).timers
        assert (timer.due, timer.approximate) == (due, approximate)
        assert timer.occurrence_id == f"a/{occurrence.hex()}"
        await bench.store.cancel(bench.topic, ["a"])
        bench.now = NOW


async def test_a_redrive_hints(bench: Bench) -> None:
    """It wakes whoever sleeps until a later timer, and nobody where an earlier one waits."""
    bench.put("later", score(NOW + SECOND))
    names = [bench.put_letter(LETTER._replace(timer_id=timer_id)) for timer_id in "ab"]
    with bench.listening() as ear:
        channel = f"timers_wake:{bench.topic}"
        await bench.run("people/redrive", channel, names[0])
        await bench.run("people/redrive", channel, names[1])
        assert ear.heard() == [own(NOW)]


async def test_a_name_that_is_no_entry(bench: Bench) -> None:
    """A script that meets one fails before it writes."""
    name = bench.put_letter(LETTER)
    before = bench.state()
    for verb in ("people/redrive", "people/purge"):
        head = ["channel"] if verb == "people/redrive" else []
        with pytest.raises(StoreRefused):
            await bench.run(verb, *head, name, "x")
    assert bench.state() == before


async def test_what_is_no_letter_is_not_redriven(bench: Bench) -> None:
    """Somebody else's entry stays where it is, whatever it lacks; nothing is written by halves."""
    key = bench.dead
    for missing in ("timer_id", "occurrence", "envelope"):
        fields: dict[Any, Any] = {"timer_id": "a", "occurrence": N1, "envelope": ENVELOPE}
        del fields[missing]
        name = "1-1"
        bench.raw.xadd(key, fields, id=name)
        assert await bench.topics.redrive(bench.topic, [name]) == [Change.GONE]
        assert bench.raw.zcard(bench.timeline) == 0
        assert bench.raw.xlen(key) == 1
        bench.raw.delete(key)


async def test_many_are_redriven_in_parts(bench: Bench) -> None:
    """None of them holds the server up for long, and each is answered for, in order."""
    names = [bench.put_letter(Letter(f"t{n}", "rejected", 1, 1, DUE, NOW, N1)) for n in range(60)]
    names.insert(30, "1-1")
    expected = [Change.GONE if name == "1-1" else Change.RUN for name in names]
    assert await bench.topics.redrive(bench.topic, names) == expected
    assert bench.raw.zcard(bench.timeline) == 60
