"""What became of a recurrence's occurrences, as a relay tells it: with a journal and without, before and
after its topic has got more partitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import pytest

from relay.client import Delivery, Nack, PastInstant, RecurrenceHistory, Reject, RelayClient, Reschedule
from tests.worlds.relay.processes import Relay, command
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import until

pytestmark = pytest.mark.usefixtures("one_try")

TOPIC, NAME = "reports", "nightly"
QUICK = {
    "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "3",
    "RELAY_DEFAULTS__RETRY__INITIAL": "0.05",
    "RELAY_DEFAULTS__RETRY__MAX": "0.05",
}
WITHOUT = {"RELAY_DEFAULTS__JOURNAL": "false"}
RARELY = timedelta(days=36_500)
"""Counted from 1970: no instant falls due while a test runs, whatever the time of day."""

Told: TypeAlias = tuple[str, str, int, bool]
"""The outcome of an occurrence, its reason, the attempts, and whether its end has an instant."""


class Application:
    """An application that does with each occurrence what a test has said, and a person who triggers them."""

    def __init__(self, client: RelayClient) -> None:
        self.client = client
        self.started: list[str] = []
        self.gate = asyncio.Event()
        self._plan: list[str] = []
        self._given: dict[str, str] = {}

    async def handle(self, delivery: Delivery) -> None:
        if delivery.timer_id not in self._given:
            self._given[delivery.timer_id] = self._plan.pop(0)
        self.started.append(delivery.timer_id)
        match self._given[delivery.timer_id]:
            case "second" if delivery.attempt == 1:
                raise Nack(reason="not yet")
            case "never":
                raise RuntimeError("as always")
            case "reject":
                raise Reject("no good")
            case "later" if delivery.timer_id not in self.started[:-1]:
                raise Reschedule(delay=0.05)
            case "work":
                await self.gate.wait()

    async def trigger(self, what: str) -> str:
        """Make an occurrence that is handled like this, and wait until it is told what became of it."""
        self._plan.append(what)
        timer_id = await self.client.recurrences.trigger(TOPIC, NAME)
        await until(lambda: timer_id in self.started, f"{timer_id} is delivered")
        if what != "work":
            await until(lambda: self._is_over(timer_id), f"{timer_id} is over")
        return timer_id

    async def _is_over(self, timer_id: str) -> bool:
        return await self.client.get(TOPIC, timer_id) is None

    async def trigger_and_cancel(self) -> str:
        await self.client.topics.pause(TOPIC)
        timer_id = await self.client.recurrences.trigger(TOPIC, NAME)
        await self.client.cancel(TOPIC, timer_id)
        await self.client.topics.resume(TOPIC)
        return timer_id

    async def told(self) -> dict[str, Told]:
        return told(await self.client.recurrences.history(TOPIC, NAME))


def told(history: RecurrenceHistory) -> dict[str, Told]:
    return {each.timer_id: as_told(each) for each in history}


def as_told(each: PastInstant) -> Told:
    if each.end_time is not None:
        made = each.time + each.lateness
        assert made <= each.end_time <= datetime.now(UTC)
    return each.outcome, each.reason, each.attempts, each.end_time is not None


@asynccontextmanager
async def application(relay: Relay) -> AsyncIterator[Application]:
    client = RelayClient(relay.target, timeout=60.0)
    made = Application(client)
    client.on(TOPIC, concurrency=10)(made.handle)
    async with client:
        await client.recur(NAME, topic=TOPIC, every=RARELY, overlap="allow")
        running = asyncio.create_task(client.run())
        await client.wait_ready(60.0)
        yield made
        running.cancel()


async def everything(app: Application) -> dict[str, Told]:
    """All that can become of occurrences, and what a history with a journal says of it."""
    return {
        await app.trigger("at once"): ("acked", "", 1, True),
        await app.trigger("second"): ("acked", "", 2, True),
        await app.trigger("never"): ("dead", "attempts", 3, True),
        await app.trigger("reject"): ("dead", "rejected", 1, True),
        await app.trigger("later"): ("acked", "", 1, True),
        await app.trigger_and_cancel(): ("cancelled", "", 0, True),
        await app.trigger("work"): ("leased", "", 0, False),
    }


async def test_what_became_of_them(stage: Stage) -> None:
    """With a journal, all is known."""
    relay = stage.relay(settings=QUICK)
    async with application(relay) as app:
        expected = await everything(app)
        assert await app.told() == expected
        history = await app.client.recurrences.history(TOPIC, NAME, limit=2)
        assert [each.timer_id for each in history] == list(expected)[-2:]
        assert history.outcomes_missing == ""
        app.gate.set()
        last = list(expected)[-1]
        await until(lambda: app._is_over(last), "it has done its work")
        assert (await app.told())[last] == ("acked", "", 1, True)


async def test_without_a_journal(stage: Stage) -> None:
    """What waits, is at work or is dead is known, and the answer says what to do about the rest."""
    relay = stage.relay(settings={**QUICK, **WITHOUT})
    async with application(relay) as app:
        expected = {
            name: became if became[0] in ("dead", "leased") else ("unknown", "no_journal", 0, False)
            for name, became in (await everything(app)).items()
        }
        await app.client.topics.pause(TOPIC)
        waiting = await app.client.recurrences.trigger(TOPIC, NAME)
        expected[waiting] = ("waiting", "", 0, False)
        assert await app.told() == expected
        history = await app.client.recurrences.history(TOPIC, NAME)
        assert "set journal: true for the topic" in history.outcomes_missing
        app.gate.set()


@pytest.mark.slow
async def test_through_a_reshard(stage: Stage) -> None:
    """Occurrences are followed into the partitions that they have moved to, and found where they were."""
    relay = stage.relay(settings=QUICK)
    async with application(relay) as app:
        expected = await everything(app)
        working = list(expected)[-1]
        await reshard(relay, 4)
        assert stage.client.zcard(f"timers_timeline:{TOPIC}") == 0, "what is at work has moved"
        assert await app.told() == expected
        expected |= await everything(app)
        assert await app.told() == expected
        app.gate.set()
        for name in (working, list(expected)[-1]):
            await until(lambda name=name: app._is_over(name), "it has done its work")  # type: ignore[misc]
            expected[name] = ("acked", "", 1, True)
        assert await app.told() == expected
        await reshard(relay, 1)
        assert await app.told() == expected


async def reshard(relay: Relay, partitions: int) -> None:
    arguments = ("topics", "reshard", TOPIC, "--partitions", str(partitions), "--target", relay.target)
    ran = await asyncio.to_thread(command, *arguments, timeout=300.0)
    assert ran.code == 0, ran.err


async def test_a_dead_one_that_was_redriven(stage: Stage) -> None:
    """It lives again, and its next end counts; one that was purged stays dead."""
    relay = stage.relay(settings=QUICK)
    async with application(relay) as app:
        redriven, purged = await app.trigger("reject"), await app.trigger("reject")
        app._given[redriven] = "work"
        letters = {each.timer_id: each.dead_id async for each in app.client.topics.dead_letters(TOPIC)}
        await app.client.topics.redrive(TOPIC, [letters[redriven]])
        await app.client.topics.purge(TOPIC, [letters[purged]])
        await until(lambda: app.started.count(redriven) == 2, "it is delivered again")
        expected = {redriven: ("leased", "", 0, False), purged: ("dead", "rejected", 1, True)}
        assert await app.told() == expected
        app.gate.set()
        await until(lambda: app._is_over(redriven), "it has done its work")
        expected[redriven] = ("acked", "", 1, True)
        assert await app.told() == expected


async def test_one_that_expires(stage: Stage) -> None:
    """Its topic is paused for longer than it is good for."""
    relay = stage.relay(settings=QUICK)
    async with application(relay) as app:
        await app.client.recur(NAME, topic=TOPIC, every=RARELY, overlap="allow", expire_after=0.05)
        await app.client.topics.pause(TOPIC)
        timer_id = await app.client.recurrences.trigger(TOPIC, NAME)
        found = await app.client.get(TOPIC, timer_id)
        assert found is not None
        expired = found.due_time + timedelta(seconds=0.1)
        await until(lambda: datetime.now(UTC) > expired, "it is good for nothing any more")
        await app.client.topics.resume(TOPIC)
        await until(lambda: app._is_over(timer_id), "it has expired")
        assert await app.told() == {timer_id: ("expired", "", 0, True)}


async def test_one_that_goes_to_a_list(stage: Stage) -> None:
    """Whoever works there tells nobody."""
    relay = stage.relay(settings={f"RELAY_TOPICS__{TOPIC}__DISPATCH": "list", **QUICK})
    async with RelayClient(relay.target, timeout=60.0) as client:
        await client.recur(NAME, topic=TOPIC, every=RARELY, overlap="allow")
        timer_id = await client.recurrences.trigger(TOPIC, NAME)

        async def is_gone() -> bool:
            return await client.get(TOPIC, timer_id) is None

        await until(is_gone, "it is in the list")
        history = await client.recurrences.history(TOPIC, NAME)
        assert told(history) == {timer_id: ("promoted", "", 0, True)}


@pytest.mark.parametrize("as_json", [False, True])
async def test_the_command(stage: Stage, as_json: bool) -> None:
    relay = stage.relay(settings={**QUICK, **WITHOUT})
    async with application(relay) as app:
        dead, acked = await app.trigger("never"), await app.trigger("at once")
    options = ("--limit", "2", *(["--json"] if as_json else []))
    arguments = ("recur", "history", TOPIC, NAME, *options, "--target", relay.target)
    ran = await asyncio.to_thread(command, *arguments)
    assert (ran.code, "topic 'reports' has no journal" in ran.err) == (0, True)
    if as_json:
        first, second = ran.documents
        told = first["timer_id"], first["outcome"], first["reason"], first["attempts"]
        assert told == (dead, "dead", "attempts", 3)
        assert first["end_time"] > first["time"]
        assert (second["outcome"], second["reason"], second["end_time"]) == ("unknown", "no_journal", None)
    else:
        rows = [line.split() for line in ran.out.splitlines() if "@" in line]
        assert [row[4:7] for row in rows] == [["dead:", "attempts", "3"], ["unknown:", "no_journal"]]
        assert [row[1] for row in rows] == [dead, acked]
