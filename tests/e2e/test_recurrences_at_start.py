"""The recurrences of `recurrences.file`, which a relay puts as it starts."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import anyio
import pytest

from relay.api.recurring.calendars import CalendarCalls
from relay.api.recurring.calls import RecurrenceCalls
from relay.app import open_server, put_together
from relay.client import SyncRelayClient
from relay.core.errors import StoreUnavailable
from relay.declared.applying import apply
from relay.declared.reading import read_declared
from relay.settings import Settings
from relay.store.partitions.layouts import RedisLayouts
from relay.store.server.hints import RedisHints
from relay.telemetry.metrics.provider import Metrics
from relay.telemetry.traces.tracing import Tracing
from relay.v1 import recurrence_service_pb2 as pb
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import PATIENCE, eventually, until

FILE = """\
- {topic: t, recurrence_id: nightly, rule: {cron: 0 3 * * *, zone: Europe/Berlin}, message: hello}
- {topic: t, recurrence_id: often, rule: {every_sec: 3600}}
"""
TOLD = "recurrences are as their file says"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "recurrences.yaml"
    file.write_text(FILE, encoding="utf-8")
    return file


def versions(stage: Stage, target: str) -> dict[str, int]:
    with SyncRelayClient(target, timeout=PATIENCE) as client:
        return {each.recurrence_id: each.version for each in client.recurrences.list("t")}


@pytest.mark.slow
def test_they_are_there_once_it_serves(stage: Stage, file: Path) -> None:
    """A restart changes nothing; what has changed in the file is replaced, and what is gone from it stays."""
    settings = {"RELAY_RECURRENCES__FILE": str(file)}
    relay = stage.relay(settings=settings)
    assert versions(stage, relay.target) == {"nightly": 1, "often": 1}
    relay.terminate()
    relay.start()
    assert versions(stage, relay.target) == {"nightly": 1, "often": 1}
    relay.terminate()
    file.write_text(FILE.splitlines()[0].replace("0 3", "0 4"), encoding="utf-8")
    relay.start()
    assert versions(stage, relay.target) == {"nightly": 2, "often": 1}
    counts = [
        {name: line.get(name, 0) for name in ("new", "replaced", "unchanged")}
        for line in relay.lines()
        if line["message"] == TOLD
    ]
    assert counts == [
        {"new": 2, "replaced": 0, "unchanged": 0},
        {"new": 0, "replaced": 0, "unchanged": 2},
        {"new": 0, "replaced": 1, "unchanged": 0},
    ]


CLOSED = """\
- {topic: t, recurrence_id: nightly, rule: {cron: 0 3 * * *, calendars: [closed]}}
- {calendar: closed, dates: [2026-12-26, 2026-12-25]}
"""


@pytest.mark.slow
@pytest.mark.usefixtures("one_try")
def test_calendars_are_there_before_rules_that_name_them(stage: Stage, file: Path) -> None:
    """Wherever they stand in the file. A relay that starts again puts one back that was deleted; without it
    in the file it starts all the same, since the recurrence is like this already."""
    file.write_text(CLOSED, encoding="utf-8")
    settings = {"RELAY_RECURRENCES__FILE": str(file)}
    relay = stage.relay(settings=settings)
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        found = client.calendars.get("closed")
        assert found is not None
        assert list(map(str, found.dates)) == ["2026-12-25", "2026-12-26"]
        assert client.calendars.delete("closed")
    relay.terminate()
    relay.start()
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        assert client.calendars.get("closed") == found
        assert client.calendars.delete("closed")
    relay.terminate()
    file.write_text(CLOSED.splitlines()[0], encoding="utf-8")
    relay.start()
    assert versions(stage, relay.target) == {"nightly": 1}
    told = [line for line in relay.lines() if line["message"] == "calendars are as their file says"]
    assert [line["new"] for line in told] == [1, 1]


def test_relays_that_start_together_make_them_once(stage: Stage, file: Path) -> None:
    settings = {"RELAY_RECURRENCES__FILE": str(file)}
    relays = [stage.relay(f"relay-{number}", settings=settings, start=False) for number in range(3)]
    for relay in relays:
        relay.spawn()
    for relay in relays:
        eventually(partial(relay.said, "relay is serving"), f"{relay.name} serves")
    assert versions(stage, relays[0].target) == {"nightly": 1, "often": 1}
    told = [line for relay in relays for line in relay.lines() if line["message"] == TOLD]
    assert (sum(line.get("new", 0) for line in told), sum(line.get("unchanged", 0) for line in told)) == (
        2,
        4,
    )


@pytest.mark.parametrize(
    ("text", "settings", "problem"),
    [
        (
            "- {topic: t, recurrence_id: r, rule: {cron: 61 * * * *}}",
            {},
            'entry 1 (t/r): rule.cron: minute 61 in "61 * * * *": 0 to 59',
        ),
        (
            "- {topic: t, recurrence_id: r, rule: {every: 0.5s}}",
            {},
            "entry 1 (t/r): rule.every: fires at ",
        ),
        (
            "- {topic: t, recurrence_id: r, rule: {every: 59s}}",
            {"RELAY_TOPICS__t__MIN_RECURRENCE_INTERVAL": "60"},
            "entry 1 (t/r): rule.every: fires at ",
        ),
        (
            "- {topic: u, recurrence_id: r, rule: {every: 60s}}",
            {"RELAY_TOPICS_CLOSED": "true", "RELAY_TOPICS__t__LEASE_TTL": "30"},
            "entry 1 (u/r): topic: ",
        ),
        (
            "- {topic: t, recurrence_id: r, rule: {every: 60s}}",
            {"RELAY_TOPICS__t__DISPATCH": "list"},
            "entry 1 (t/r): overlap: is skip, and the topic's due timers go to a list",
        ),
        (
            "- {topic: t, recurrence_id: r, rule: {every: 60s, calendars: [closed]}}",
            {},
            "entry 1 (t/r): rule.calendars[0]: there is no calendar 'closed'; put it first, or leave it out",
        ),
        (
            "- {calendar: closed, dates: [2026-12-32]}",
            {},
            "entry 1 (closed): dates[0]: '2026-12-32' is not a date such as 2026-12-24",
        ),
    ],
)
def test_what_is_wrong_refuses_the_start(
    stage: Stage, file: Path, text: str, settings: dict[str, str], problem: str
) -> None:
    """By file, entry and field, in the log's last line."""
    file.write_text(f"{text}\n", encoding="utf-8")
    relay = stage.relay(settings={"RELAY_RECURRENCES__FILE": str(file), **settings}, start=False)
    relay.spawn()
    assert relay.wait() == 1
    last = relay.lines()[-1]
    assert (last["level"], last["message"].startswith(f"{file}: {problem}")) == ("critical", True), last


def test_what_is_over_is_passed_over(stage: Stage, file: Path) -> None:
    """A file may still have last year's rules; the others are put, and the log names those that are over."""
    over = (
        "{cron: 0 3 * * *, end_time: 2026-01-01T00:00:00Z}",
        '{rrule: "DTSTART:20200101T000000Z\\nRRULE:FREQ=DAILY;COUNT=3"}',
        '{rrule: "DTSTART:20200101T000000Z\\nRRULE:FREQ=DAILY;UNTIL=20200104T000000Z"}',
    )
    lines = [f"- {{topic: t, recurrence_id: o{n}, rule: {rule}}}" for n, rule in enumerate(over)]
    file.write_text("\n".join([*lines, FILE]), encoding="utf-8")
    relay = stage.relay(settings={"RELAY_RECURRENCES__FILE": str(file)})
    assert versions(stage, relay.target) == {"nightly": 1, "often": 1}
    told = [line for line in relay.lines() if line["message"].startswith("a recurrence is not put, since")]
    assert [line["level"] for line in told] == ["warning"] * 3
    assert f"{file}: entry 1 (t/o0): rule.cron: never fires from now on: rule.end_time is over" in str(
        told[0]
    )


async def test_they_wait_for_redis(stage: Stage, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is not put while Redis is away is tried again, and put once."""
    settings = Settings.model_validate({"redis": {"url": stage.server.url, "command_timeout": 1.0}})
    metrics = Metrics()
    async with open_server(settings, metrics) as server, anyio.create_task_group() as tasks:
        layouts = RedisLayouts(server, lambda _: 1)
        engine = put_together(settings, server, RedisHints(server), layouts, metrics.instruments, Tracing())
        await tasks.start(engine.run)
        calls = RecurrenceCalls(engine)
        stage.server.freeze()
        try:
            with caplog.at_level(logging.WARNING):
                tasks.start_soon(apply, read_declared(file), calls, CalendarCalls(engine))
                await until(lambda: "an entry is not put yet" in caplog.text, "it has failed")
        finally:
            stage.server.thaw()

        async def there() -> bool:
            try:
                found = await calls.list(pb.ListRecurrencesRequest(topic="t"))
            except StoreUnavailable:  # its timeout is short, and the machine may be busy
                return False
            return [each.spec.recurrence_id for each in found.recurrences] == ["nightly", "often"]

        await until(there, "both are there")
        tasks.cancel_scope.cancel()
    metrics.close()
