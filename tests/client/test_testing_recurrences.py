"""Recurrences in `relay.client.testing`: what only a clock in the test's hand can show.

What a real relay shows, too, is in `test_testing_contract.py`.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relay.client import (
    AckPolicy,
    Delivery,
    DeliveryLost,
    InvalidArgument,
    Nack,
    PushHandlers,
    PutResult,
    RelayClient,
    SyncRelayClient,
    UsageError,
)
from relay.client.calls.channel import RECURRENCE_METHODS
from relay.client.testing import Delivered, InMemoryRelay, Outcome, RetryPolicy, SyncInMemoryRelay, timers

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
BERLIN: dict[str, Any] = {"cron": "30 2 * * *", "zone": "Europe/Berlin"}


def after(delivered: list[Delivered]) -> list[timedelta]:
    """When each was delivered, since the year began."""
    return [each.at - NEW_YEAR for each in delivered]


async def ack(_: Delivery) -> None:
    """Returns."""


class Application:
    """A handler of the topic `t`, and a recurrence `r`, in a relay whose clock begins with the year."""

    def __init__(self, **policy: Any) -> None:
        self.client = RelayClient()
        self.relay = InMemoryRelay(self.client, now=NEW_YEAR, **policy)
        self.deliveries: list[Delivery] = []
        self.calls = self.client.recurrences

    def held(self) -> None:
        """Hold each delivery until the test settles it."""

        async def hold(delivery: Delivery) -> None:
            self.deliveries.append(delivery)

        self.client.on("t", ack_policy=AckPolicy.MANUAL)(hold)

    async def recur(self, **options: Any) -> None:
        await self.client.recur("r", topic="t", **options)

    async def left_out(self) -> dict[str, int]:
        found = await self.calls.get("t", "r")
        assert found is not None
        return dict(found.left_out)


@pytest.fixture
def app() -> Application:
    """Whose deliveries may be held for months."""
    return Application(lease_ttl=3_000, delivery_timeout=1e7)


# ------------------------------------------------------------------------------ the clock


async def test_each_instant_on_the_way_has_its_run_at_its_time(app: Application) -> None:
    """To the microsecond, however far the clock is moved at once, among other timers; none is late."""
    app.client.on("t")(ack)
    async with app.relay as relay:
        await app.recur(every="10 minutes")
        await app.client.schedule("t", b"", delay=15 * MINUTE, timer_id="other")
        assert await relay.advance(10 * MINUTE - timedelta(microseconds=1)) == []
        delivered = await relay.advance(microseconds(1))
        delivered += await relay.advance(DAY - 10 * MINUTE)
        history = await app.calls.history("t", "r")
        assert await app.left_out() == {}
    assert after(delivered) == sorted([15 * MINUTE, *(n * 10 * MINUTE for n in range(1, 145))])
    assert delivered[0].timer_id == "r@2026-01-01T00:10:00Z"
    assert {each.outcome for each in delivered} == {Outcome.ACK}
    assert {each.lateness for each in history} == {timedelta(0)}


def microseconds(number: int) -> timedelta:
    return timedelta(microseconds=number)


async def test_a_year_goes_by_the_clocks_of_its_zone(app: Application) -> None:
    """In the night without half past two it comes an hour later."""
    app.client.on("t")(ack)
    async with app.relay as relay:
        await app.recur(**BERLIN, leave_out=["2026-12-24"])
        delivered = await relay.advance(days=365)
        assert await app.left_out() == {"calendar": 1}
    assert len(delivered) == 364
    assert [each.at for each in delivered if each.at.month == 3][-4:] == [
        datetime(2026, 3, 28, 1, 30, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
        datetime(2026, 3, 30, 0, 30, tzinfo=UTC),
        datetime(2026, 3, 31, 0, 30, tzinfo=UTC),
    ]


@pytest.mark.parametrize(
    ("options", "hours", "left"),
    [
        ({}, [24], {"catch_up": 23}),
        ({"catch_up": "all", "overlap": "allow"}, [24] * 24, {}),
        ({"catch_up": "all", "overlap": "allow", "catch_up_window": 3 * HOUR}, [24] * 3, {"catch_up": 21}),
        ({"catch_up": "all"}, [24], {"overlap": 23}),
        ({"catch_up": "none"}, [], {"catch_up": 24}),
        ({"catch_up": "none", "catch_up_window": 31 * MINUTE}, [24], {"catch_up": 23}),
    ],
)
async def test_after_an_outage_catch_up_decides(
    app: Application, options: dict[str, Any], hours: list[int], left: dict[str, int]
) -> None:
    """What comes, comes late, and at once; then all is as before."""
    app.client.on("t")(ack)
    async with app.relay as relay:
        await app.recur(every=HOUR, **options)
        relay.outage(hours=24, minutes=30)
        delivered = await relay.run_due()
        assert await app.left_out() == left
        assert len(await relay.advance(hours=2)) == 2
        assert await app.left_out() == left
    assert after(delivered) == [hour * HOUR + 30 * MINUTE for hour in hours]


async def test_an_outage_delivers_nothing_and_lets_leases_run_out() -> None:
    """As when a relay dies: the delivery comes again, and its outcome from before is lost."""
    app = Application(lease_ttl=30)
    app.held()
    async with app.relay as relay:
        await app.client.schedule("t", b"", delay=0, timer_id="a")
        await app.client.schedule("t", b"", delay=60, timer_id="b")
        await relay.run_due()
        relay.outage(seconds=20)
        assert relay.now == NEW_YEAR + timedelta(seconds=20)
        assert app.deliveries[0].lost
        with pytest.raises(DeliveryLost):
            await app.deliveries[0].ack()
        assert await relay.run_due() == []
        relay.outage(timedelta(seconds=100))
        delivered = await relay.run_due()
        assert [(each.timer_id, each.attempt) for each in delivered] == [("a", 2), ("b", 1)]
        with pytest.raises(UsageError, match="only goes forward"):
            relay.outage(seconds=-1)


async def test_no_handler_makes_an_outage(app: Application) -> None:
    said: list[str] = []

    @app.client.on("t")
    async def handle(_: Delivery) -> None:
        with pytest.raises(UsageError) as caught:
            app.relay.outage(seconds=1)
        said.append(str(caught.value))

    async with app.relay as relay:
        await app.client.schedule("t", b"", delay=0)
        await relay.run_due()
    assert said == ["a handler can't move the clock that it was called by"]


async def test_what_recurs_without_end_is_an_error(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliveries are bounded, and so are ticks of what nobody handles; the next step goes on from there."""
    monkeypatch.setattr(timers, "MAX_TICKS", 100)
    monkeypatch.setattr(timers, "MAX_DELIVERIES", 50)
    async with app.relay as relay:
        await app.recur(every=1)
        with pytest.raises(UsageError, match="100 ticks of recurrences in one go: move the clock in smaller"):
            await relay.advance(hours=1)
        await relay.advance(seconds=99)
        assert await app.left_out() == {"overlap": 199}
        await app.client.cancel("t", "r@2026-01-01T00:00:01Z")
        app.client.on("t")(ack)
        with pytest.raises(UsageError, match="Where a recurrence makes as many, move the clock in smaller"):
            await relay.advance(minutes=1)


# --------------------------------------------------------------------------- its policies


async def test_what_is_kept_back_comes_as_soon_as_the_one_before_has_ended(app: Application) -> None:
    """Without the clock; one further instant was left out."""
    app.held()
    async with app.relay as relay:
        await app.recur(every=HOUR, overlap="buffer")
        assert after(await relay.advance(hours=3)) == [HOUR]
        assert await app.left_out() == {"overlap": 1}
        assert await relay.run_due() == []
        await app.deliveries[0].ack()
        (second,) = await relay.run_due()
        assert (second.timer_id, after([second])) == ("r@2026-01-01T02:00:00Z", [3 * HOUR])
        await app.calls.pause("t", "r")
        await relay.advance(hours=1)  # which a pause leaves out, and not what is kept back
        await app.deliveries[1].ack()
        assert await relay.run_due() == []
        assert await app.left_out() == {"overlap": 1, "paused": 1}


async def test_a_pause_keeps_back_what_was_kept_back(app: Application) -> None:
    """It comes with the resume."""
    app.held()
    async with app.relay as relay:
        await app.recur(every=HOUR, overlap="buffer")
        await relay.advance(hours=2)
        await app.calls.pause("t", "r")
        await app.deliveries[0].ack()
        assert await relay.advance(minutes=59) == []
        await app.calls.resume("t", "r")
        assert [each.timer_id for each in await relay.run_due()] == ["r@2026-01-01T02:00:00Z"]


async def test_the_one_before_is_cancelled(app: Application) -> None:
    app.held()
    async with app.relay as relay:
        await app.recur(every=HOUR, overlap="cancel")
        assert after(await relay.advance(hours=3)) == [HOUR, 2 * HOUR, 3 * HOUR]
        assert [each.timer_id async for each in app.client.list("t")] == ["r@2026-01-01T03:00:00Z"]
        assert await app.left_out() == {}


async def test_jitter_expiry_and_the_last_run(app: Application) -> None:
    """The third occurrence waits for an attempt that never comes, since it is of no use by then."""

    @app.client.on("t")
    async def handle(delivery: Delivery) -> None:
        if delivery.headers["relay-run"] == "3":
            raise Nack(retry_after=11)

    async with app.relay as relay:
        await app.recur(every=HOUR, jitter=MINUTE, expire_after=10, max_runs=3)
        delivered = await relay.advance(days=1)
        found = await app.calls.get("t", "r")
    assert found is not None
    late = [each - hour * HOUR for each, hour in zip(after(delivered), (1, 2, 3), strict=True)]
    assert set(late) == {late[0]}
    assert timedelta(0) < late[0] < MINUTE
    assert (found.runs, found.next_time, found.last_waits, found.left_out) == (3, None, False, {})
    assert [(each.timer_id, each.reason) for each in relay.dead] == [("r@2026-01-01T03:00:00Z", "expired")]


async def test_runs_that_die_stop_nothing() -> None:
    """By the default retries one that always fails takes its time, and others are left out meanwhile."""
    app = Application(retry=RetryPolicy(max_attempts=3, initial=45))

    @app.client.on("t")
    async def handle(_: Delivery) -> None:
        raise ValueError

    async with app.relay as relay:
        await app.recur(every=MINUTE)
        delivered = await relay.advance(minutes=7)
        assert await app.left_out() == {"overlap": 4}
    assert [(each.timer_id[-9:], each.attempt) for each in delivered] == [
        *(("00:01:00Z", 1), ("00:01:00Z", 2), ("00:01:00Z", 3)),
        *(("00:04:00Z", 1), ("00:04:00Z", 2), ("00:04:00Z", 3)),
        ("00:07:00Z", 1),
    ]


async def test_a_full_topic_catches_up_when_there_is_room() -> None:
    """A second after that at the latest, and with all that its window still allows."""
    app = Application(max_waiting=2)
    async with app.relay as relay:
        await app.recur(every=MINUTE, overlap="allow", catch_up="all", catch_up_window=5 * MINUTE)
        await relay.advance(minutes=4)
        assert [each.timer_id[-9:] async for each in app.client.list("t")] == ["00:01:00Z", "00:02:00Z"]
        app.client.on("t")(ack)
        delivered = await relay.advance(seconds=2)
        assert await app.left_out() == {}
    assert [each.timer_id[-9:] for each in delivered] == [f"00:0{n}:00Z" for n in (1, 2, 3, 4)]


async def test_a_change_settles_what_has_passed_by_the_old_rule(app: Application) -> None:
    """Also where that was in an outage."""
    async with app.relay as relay:
        await app.recur(every=HOUR, payload=b"old", overlap="allow", catch_up="all")
        relay.outage(hours=2)
        await app.recur(every=30 * MINUTE, payload=b"new", overlap="allow")
        await relay.advance(hours=1)
        found = [await app.client.get("t", each.timer_id) async for each in app.client.list("t")]
    assert [(each.timer_id[-9:], each.payload) for each in found if each is not None] == [
        ("01:00:00Z", b"old"),
        ("02:00:00Z", b"old"),
        ("02:30:00Z", b"new"),
        ("03:00:00Z", b"new"),
    ]


async def test_a_handler_may_change_its_own_recurrence(app: Application) -> None:
    @app.client.on("t")
    async def handle(delivery: Delivery) -> None:
        if delivery.headers["relay-run"] == "3":
            await app.calls.delete("t", "r")

    async with app.relay as relay:
        await app.recur(every=HOUR)
        assert after(await relay.advance(days=1)) == [HOUR, 2 * HOUR, 3 * HOUR]


async def test_a_preview_begins_at_the_clock(app: Application) -> None:
    async with app.relay as relay:
        await relay.advance(days=31)
        (first,) = await app.calls.preview(**BERLIN, count=1)
    assert first.time == datetime(2026, 2, 1, 1, 30, tzinfo=UTC)


# ------------------------------------------------------------------- above handlers, both clients


async def test_recurrences_above_handlers_need_no_open_client() -> None:
    """They are put once; those that come within the block, before the clock moves."""
    client = RelayClient()
    client.every("1 h", topic="hourly")(ack)
    async with InMemoryRelay(client, now=NEW_YEAR) as relay:

        @client.cron("30 0 * * *", payload=b"x")
        async def nightly(delivery: Delivery) -> None:
            assert delivery.payload == b"x"

        delivered = await relay.advance(hours=1)
        assert [(each.topic, each.timer_id, each.outcome) for each in delivered] == [
            ("nightly", "nightly@2026-01-01T00:30:00Z", Outcome.ACK),
            ("hourly", "ack@2026-01-01T01:00:00Z", Outcome.ACK),
        ]
        assert await client.recurrences.delete("hourly", "ack")
        assert await relay.advance(hours=2) == []


async def test_a_refused_declaration_leaves_the_client_as_it_was() -> None:
    client = RelayClient()
    client.cron("61 * * * *", topic="t")(ack)
    with pytest.raises(InvalidArgument, match="minute 61"):
        async with InMemoryRelay(client):
            raise AssertionError("it was taken")
    assert client.double is None


def test_without_a_loop() -> None:
    """The blocking client has the same calls; a plain handler runs in the calling thread."""

    def body() -> None:
        client, push, producer, where = RelayClient(), PushHandlers(), SyncRelayClient(), []
        client.every("1 h", topic="hourly", recurrence_id="r")(ack)

        @push.on("t")
        def handle(_: Delivery) -> None:
            where.append(threading.current_thread())

        with SyncInMemoryRelay(client, push, producer, now=NEW_YEAR) as relay:
            made = producer.recur("r", topic="t", every=HOUR)
            assert (made.result, made.next_time) == (PutResult.CREATED, NEW_YEAR + HOUR)
            assert [each.topic for each in relay.advance(hours=2)] == ["hourly", "t"] * 2
            assert [each.recurrence_id for each in producer.recurrences.list("hourly")] == ["r"]
            producer.recurrences.pause("t", "r", "why")
            relay.outage(hours=5)
            assert [each.topic for each in relay.run_due()] == ["hourly"]
            found = producer.recurrences.get("t", "r")
            assert found is not None
            assert (found.left_out, found.pause_note) == ({"paused": 5}, "why")
            assert producer.recurrences.trigger("t", "r") == "r@2026-01-01T07:00:00Z~2"
            assert producer.recurrences.history("t", "r")[-1].timer_id == "r@2026-01-01T07:00:00Z~2"
            assert producer.recurrences.delete("t", "r", cancel_waiting=True) == (True, 1)
        assert where == [threading.current_thread()] * 2

    with ThreadPoolExecutor(1) as pool:  # the package keeps a loop running in the main thread
        pool.submit(body).result()


async def test_every_call_is_answered() -> None:
    async with InMemoryRelay(now=NEW_YEAR) as relay:
        await relay.client.recur("r", topic="t", every=60)
        recurring = relay._application.timers._state.recurring
    assert recurring is not None
    assert recurring.answers.keys() == {method.name for method in RECURRENCE_METHODS}


async def test_two_applications_share_nothing() -> None:
    for _ in range(2):
        async with InMemoryRelay(now=NEW_YEAR) as relay:
            made = await relay.client.recur("r", topic="t", every=60)
            assert made.result is PutResult.CREATED


# ------------------------------------------------------------------------- the base install

WITHOUT_RULES = """
import asyncio, sys
for name in ("cronsim", "dateutil", "tzdata"):
    sys.modules[name] = None
from relay.client import RelayClient, UsageError
from relay.client.testing import InMemoryRelay

async def main():
    client = RelayClient()
    async with InMemoryRelay(client) as relay:
        await client.schedule("t", b"", delay=0)
        await relay.run_due()
        for call in (client.recur("r", topic="t", every=60), client.recurrences.get("t", "r")):
            try:
                await call
            except UsageError as error:
                print(error)
    client.every(60, topic="t")(print)
    try:
        async with InMemoryRelay(client):
            pass
    except UsageError as error:
        print(error)

asyncio.run(main())
"""


def test_what_rules_need_is_named_where_it_is_missing() -> None:
    """At the first call about a recurrence, or the declaration of one; whoever has none needs none."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_RULES],
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = "recurrences in memory need cronsim, python-dateutil and tzdata: pip install 'relay-timers[rules]'"
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"{said} (") for line in lines)
