"""list, as `TimerStore` states it."""

from __future__ import annotations

import pytest

from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.core.outcomes import Verb
from relay.core.partitions import Layout
from relay.core.timers import NewTimer, StoredTimer, TimerState
from tests.contract.subject import Subject
from tests.worlds.scripts.asking import LEASE, N1, NOW

SAME = [f"t{n:03}" for n in range(50)]


async def put_same(subject: Subject) -> None:
    """Fifty timers that share a due time."""
    await subject.store.schedule(subject.topic, [NewTimer(timer_id, b"", NOW) for timer_id in SAME])


async def test_in_the_order_of_next_claim(subject: Subject) -> None:
    """Pending by due time, leased by deadline, backed off by the end of the back-off; without content."""
    headers = {"k": "v"}
    await subject.store.schedule(subject.topic, [NewTimer("leased", b"x", NOW, None, headers, "t")])
    await subject.claim(N1)
    await subject.schedule("later", NOW + 2 * LEASE)
    await subject.schedule("soon", NOW + 1)
    page = await subject.store.list(Layout(subject.topic), state=None, limit=10, cursor="")
    assert page.timers == [
        StoredTimer("soon", TimerState.PENDING, NOW + 1, NOW + 1, 0),
        StoredTimer("leased", TimerState.LEASED, NOW, NOW + LEASE, 0),
        StoredTimer("later", TimerState.PENDING, NOW + 2 * LEASE, NOW + 2 * LEASE, 0),
    ]
    assert page.cursor == ""


async def test_an_empty_topic(subject: Subject) -> None:
    """One empty page."""
    assert await subject.pages(5) == [[]]


@pytest.mark.parametrize("limit", [1, 7, 25, 49, 50, 51])
async def test_many_equal_scores(subject: Subject, limit: int) -> None:
    """Pages hold every timer once, in the order of ids, and the last page is never empty."""
    await put_same(subject)
    found = await subject.pages(limit)
    assert [timer_id for page in found for timer_id in page] == SAME
    assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)
    assert found[-1]


async def test_ids_are_ordered_by_bytes(subject: Subject) -> None:
    """Equal scores follow the bytes of UTF-8, not an alphabet."""
    for timer_id in ("é", "b", "B", "a b", "a", "🔑"):
        await subject.schedule(timer_id)
    assert await subject.pages(1) == [["B"], ["a"], ["a b"], ["b"], ["é"], ["🔑"]]


async def test_timers_that_move_between_pages(subject: Subject) -> None:
    """What stays in place is seen exactly once, while others are claimed, cancelled and added."""
    await put_same(subject)

    async def move() -> None:
        await subject.store.cancel(subject.topic, ["t009", "t010", "t030"])  # also the cursor's own
        await subject.schedule("t005", NOW + SECOND)
        await subject.schedule("t000a", NOW - SECOND)
        await subject.schedule("t040a", NOW)

    found = await subject.pages(10, between=[move])
    flat = [timer_id for page in found for timer_id in page]
    gone = {"t005", "t009", "t010", "t030"}
    assert [timer_id for timer_id in flat if timer_id in SAME and timer_id not in gone] == [
        timer_id for timer_id in SAME if timer_id not in gone
    ]
    assert "t040a" in flat
    assert "t000a" not in flat
    assert flat.count("t005") == 2, "it was on page one, and has moved behind the cursor"


async def test_timers_that_are_claimed_between_pages(subject: Subject) -> None:
    """They move to the end and are seen there; none is skipped."""
    await put_same(subject)
    found = await subject.pages(20, between=[lambda: subject.claim(N1, limit=30)])
    assert {timer_id for page in found for timer_id in page} == set(SAME)


async def test_one_state(subject: Subject) -> None:
    """A page looks at `limit` timers and shows those of the state; all pages together show all."""
    await put_same(subject)
    held = set(await subject.claimed(N1, limit=20))
    await subject.settle("t000", N1, Verb.NACK)
    held.remove("t000")
    for limit in (3, 50):
        leased = await subject.pages(limit, TimerState.LEASED)
        pending = await subject.pages(limit, TimerState.PENDING)
        assert {timer_id for page in leased for timer_id in page} == held
        assert {timer_id for page in pending for timer_id in page} == set(SAME) - held


@pytest.mark.parametrize("cursor", ["!", "abc", "bm9uc2Vuc2U=", "bmFuIGE=", "²", "é", "x y", "="])
async def test_a_cursor_that_no_page_gave(subject: Subject, cursor: str) -> None:
    """It is refused by the field's name."""
    await subject.schedule("a")
    with pytest.raises(InvalidField, match=r"^page_token: "):
        await subject.store.list(Layout(subject.topic), state=None, limit=5, cursor=cursor)


async def test_a_page_with_contents_is_bounded_by_bytes(subject: Subject) -> None:
    """It has as many timers as fit, or one; and the next one goes on behind them."""
    for number in range(5):
        timer = NewTimer(f"t{number}", b"x" * 400, NOW + number, headers={"n": str(number)})
        await subject.store.schedule(subject.topic, [timer])
    cursor, pages = "", []
    while True:
        page = await subject.store.list(
            Layout(subject.topic), state=None, limit=4, cursor=cursor, max_bytes=1_000
        )
        pages.append([(each.timer_id, each.headers, len(each.payload)) for each in page.timers])
        cursor = page.cursor
        if not cursor:
            break
    found = [each for page in pages for each in page]
    assert found == [(f"t{number}", {"n": str(number)}, 400) for number in range(5)]
    assert [len(page) for page in pages] == [2, 2, 1]
    one = await subject.store.list(Layout(subject.topic), state=None, limit=4, cursor="", max_bytes=1)
    assert ([each.timer_id for each in one.timers], one.closed) == (["t0"], 0)
