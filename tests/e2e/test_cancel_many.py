"""Many timers are cancelled by one command: those that are meant, counted honestly, and after a question."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from datetime import UTC, datetime, timedelta

import pytest

from relay.cli.timers.cancelling import CancelOptions, CancelTally, TimerSelection, cancel_page
from relay.client import ChangeResult, NewTimer, RelayClient, TimerState
from tests.worlds.relay.processes import command
from tests.worlds.relay.stage import Stage

TOPIC = "orders"
BASE = datetime(2040, 1, 1, tzinfo=UTC)
PLAIN = CancelOptions(dry_run=False, sure=True, durability="", as_json=False)


async def scheduled(client: RelayClient, prefix: str, count: int, every: float = 0.0) -> None:
    dues = [BASE + timedelta(seconds=n * every) for n in range(count)]
    made = [
        NewTimer(topic=TOPIC, payload=b"", timer_id=f"{prefix}{n}", due_time=due)
        for n, due in enumerate(dues)
    ]
    assert all(result.ok for result in await client.schedule_batch(made))


async def left(client: RelayClient) -> set[str]:
    return {timer.timer_id async for timer in client.list(TOPIC, page_size=500)}


def counts(told: str) -> list[int]:
    """How many were cancelled, and how many were gone: where a call has no answer within its time, those that
    it has cancelled are gone at the next try."""
    return [
        int(count.replace(",", ""))
        for count in re.findall(r"^(?:cancelled )?([\d,]+) (?:timers of|were gone)", told, re.MULTILINE)
    ]


@pytest.mark.slow
async def test_by_prefix_and_window(stage: Stage) -> None:
    """A dry run shows how many, nothing goes without a yes, and then all that is meant goes, once."""
    relay = stage.relay()
    target = ("--target", relay.target)
    async with RelayClient(relay.target, timeout=60.0) as client:
        await scheduled(client, "a-", 1_200)
        await scheduled(client, "b-", 30, every=1.0)
        asked = ("cancel", TOPIC, "--prefix", "a-")
        ran = await asyncio.to_thread(command, *asked, "--dry-run", *target)
        assert ran.code == 0
        assert ran.out.startswith("would cancel 1,200 timers of orders\n  a-")
        assert "and 1,190 more" in ran.out
        ran = await asyncio.to_thread(command, *asked, *target)
        assert (ran.code, "--yes: is needed without a terminal" in ran.err) == (2, True)
        assert len(await left(client)) == 1_230
        ran = await asyncio.to_thread(command, *asked, "--yes", *target)
        assert ran.code == 0
        assert sum(counts(ran.out)) == 1_200, ran.out
        assert await left(client) == {f"b-{n}" for n in range(30)}
        ran = await asyncio.to_thread(command, *asked, "--yes", *target)
        assert (ran.code, ran.out) == (0, "cancelled 0 timers of orders\n")

        window = ("--due-between", "2040-01-01T00:00:10Z", "2040-01-01T00:00:20Z", "--state", "pending")
        ran = await asyncio.to_thread(command, "cancel", TOPIC, *window, "--yes", "--json", *target)
        assert {each["timer_id"] for each in ran.documents} == {f"b-{n}" for n in range(10, 20)}
        assert {each["result"] for each in ran.documents} == {"cancelled"}
        assert await left(client) == {f"b-{n}" for n in (*range(10), *range(20, 30))}
        ran = await asyncio.to_thread(command, "cancel", "ordesr", "--prefix", "x", "--dry-run", *target)
        assert (ran.code, "did you mean orders?" in ran.err) == (3, True)


@pytest.mark.usefixtures("one_try")
async def test_what_moves_out_of_the_window_is_left_alone(stage: Stage) -> None:
    """It was listed, and then somebody moved it: the newest intent wins."""
    relay = stage.relay()
    selection = TimerSelection("", (BASE, BASE + timedelta(seconds=10)), None)
    async with RelayClient(relay.target, timeout=60.0) as client:
        await scheduled(client, "a-", 3)
        (page,) = [page async for page in selection.pages(client, TOPIC)]
        await client.schedule(TOPIC, b"", timer_id="a-1", due_time=BASE + timedelta(days=1))
        await client.cancel(TOPIC, "a-2")
        tally = CancelTally()
        await cancel_page(client, TOPIC, page, selection, PLAIN, tally)
        assert await left(client) == {"a-1"}
        assert tally.counts == {
            ChangeResult.CANCELLED: 1,
            ChangeResult.UNCHANGED: 1,
            ChangeResult.NOT_FOUND: 1,
        }
        assert [line.split(" ")[0] for line in tally.lines(TOPIC)] == ["cancelled", "1", "left"]

        leased = TimerSelection("", None, TimerState.LEASED)
        await cancel_page(client, TOPIC, page, leased, PLAIN, tally)
        assert await left(client) == {"a-1"}, "it has ended, and this is another timer of its id"


@pytest.mark.slow
async def test_it_may_be_killed_and_given_again(stage: Stage) -> None:
    """What it has named is gone, and the rest goes with the same command."""
    relay = stage.relay()
    async with RelayClient(relay.target, timeout=60.0) as client:
        await scheduled(client, "a-", 3_000)
        asked = ("cancel", TOPIC, "--prefix", "a-", "--yes", "--json", "--target", relay.target)
        killed = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "relay.cli", *asked, stdout=asyncio.subprocess.PIPE
        )
        assert killed.stdout is not None
        named = [json.loads(await killed.stdout.readline()) for _ in range(200)]
        killed.kill()
        await killed.communicate()
        gone = {"cancelled", "not_found"}  # by a call that had no answer in time, and was made again
        assert {each["result"] for each in named} <= gone
        rest = await left(client)
        assert not {each["timer_id"] for each in named} & rest
        assert 0 < len(rest) <= 2_800
        ran = await asyncio.to_thread(command, *asked)
        assert ran.code == 0
        assert {each["timer_id"] for each in ran.documents} <= rest, "its last call may come later"
        assert await left(client) == set()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "give a timer's ID, or --prefix"),
        (("a", "--prefix", "b"), "an ID can't be given with --prefix"),
        (("--prefix", ""), "--prefix: is empty"),
        (("--due-between", "2040-01-02T00:00Z", "2040-01-01T00:00Z"), "--due-between: the second instant"),
        (("--due-between", "x", "y"), "--due-between: must be an ISO 8601 time"),
    ],
)
def test_what_cannot_be_meant(options: tuple[str, ...], told: str) -> None:
    ran = command("cancel", TOPIC, *options)
    assert (ran.code, told in ran.err) == (2, True)
