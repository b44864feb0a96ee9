"""Calendars through every way in, against real relays on a real Valkey."""

from __future__ import annotations

import http.client
import inspect
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from relay.client import Calendar, InvalidArgument, PutResult, RelayClient, SyncRelayClient
from relay.client.calls.calendars import Calendars, SyncCalendars
from tests.web.described import Reply, reply
from tests.worlds.relay.processes import Ran, Relay, command
from tests.worlds.relay.stage import Stage, one_relay
from tests.worlds.waiting import PATIENCE, eventually

CHRISTMAS = ("2026-12-25", "2026-12-26")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Relay]:
    with one_relay() as relay:
        yield relay


# ---------------------------------------------------------------------------- two relays


@pytest.mark.slow
@pytest.mark.usefixtures("one_try")
def test_two_relays_go_by_a_calendar_that_changes(stage: Stage) -> None:
    """It is put, and taken back, through one relay; both tick; no occurrence comes from a second later on,
    and then they come again. Each instant in between is counted."""
    one, other = stage.relay("one"), stage.relay("other")
    with (
        SyncRelayClient(one.target, timeout=PATIENCE) as left,
        SyncRelayClient(other.target, timeout=PATIENCE) as right,
    ):
        left.calendars.put("closed", [])
        options: dict[str, Any] = {"every": 1, "overlap": "allow", "catch_up": "all"}
        left.recur("r", topic="t", calendars=["closed"], **options)
        right.recur("r", topic="t", calendars=["closed"], **options)  # so that it ticks as well

        def found() -> Any:
            recurrence = right.recurrences.get("t", "r")
            assert recurrence is not None
            return recurrence

        def later() -> datetime:
            """A second after now, by the clock of Redis."""
            seconds, micros = stage.client.time()
            return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micros, seconds=1)

        eventually(lambda: found().runs >= 2, "it ticks")
        today = later().date()
        closing = [today, today + timedelta(days=1)]
        assert left.calendars.put("closed", closing) is PutResult.REPLACED
        closed = later()
        eventually(lambda: found().last_time < closed and found().left_out.get("calendar", 0) >= 3, "closed")
        past = [each for each in right.recurrences.history("t", "r") if each.time > closed]
        assert {(each.timer_id, each.left_out) for each in past} <= {("", "calendar")}
        assert left.calendars.put("closed", []) is PutResult.REPLACED
        opened = later()
        eventually(lambda: found().last_time > opened, "open")
        past = [each for each in right.recurrences.history("t", "r") if each.time > opened]
        assert all(each.timer_id for each in past)
        left.recurrences.pause("t", "r")
        stood = found()
        times = [each.time for each in right.recurrences.history("t", "r")]
        assert times == [times[0] + timedelta(seconds=n) for n in range(len(times))]
        assert stood.left_out["calendar"] >= 3


# -------------------------------------------------------------------------- the clients


@pytest.mark.usefixtures("one_try")
def test_the_life_of_a_calendar(daemon: Relay) -> None:
    """Put, read, list, delete, in the calling thread; dates come in their order, each once."""
    with SyncRelayClient(daemon.target, timeout=PATIENCE) as client:
        given: list[date | str] = [date(2026, 12, 26), "2026-12-25", datetime(2026, 12, 26, 9, tzinfo=UTC)]
        assert client.calendars.put("de-holidays", given) is PutResult.CREATED
        assert client.calendars.put("de-holidays", CHRISTMAS) is PutResult.UNCHANGED
        found = client.calendars.get("de-holidays")
        assert found == Calendar(name="de-holidays", dates=(date(2026, 12, 25), date(2026, 12, 26)))
        assert client.calendars.put("a", []) is PutResult.CREATED
        assert [each.name for each in client.calendars.list()] == ["a", "de-holidays"]
        assert client.calendars.put("a", CHRISTMAS) is PutResult.REPLACED
        made = client.recur("r", topic="t", cron="0 3 * * *", calendars=["a", "de-holidays"])
        assert made.calendars == ("a", "de-holidays")
        since = datetime(2026, 12, 24, 12, tzinfo=UTC)
        shown = client.recurrences.preview(
            count=3, after_time=since, cron="0 3 * * *", calendars=["de-holidays"]
        )
        assert [each.left_out for each in shown] == ["calendar", "calendar", ""]
        assert client.calendars.delete("de-holidays")
        assert not client.calendars.delete("de-holidays")
        assert client.calendars.get("de-holidays") is None
        kept = client.recurrences.get("t", "r")
        assert kept is not None
        assert kept.missing_calendars == ("de-holidays",)
        assert [each.missing_calendars for each in client.recurrences.list("t")] == [("de-holidays",)]
        client.recurrences.delete("t", "r")
        client.calendars.delete("a")


@pytest.mark.usefixtures("one_try")
async def test_the_same_on_asyncio(daemon: Relay) -> None:
    async with RelayClient(daemon.target, timeout=PATIENCE) as client:
        assert await client.calendars.put("fr", CHRISTMAS) is PutResult.CREATED
        assert (await client.calendars.put("fr", iter(CHRISTMAS))) is PutResult.UNCHANGED
        assert [each.name for each in await client.calendars.list()] == ["fr"]
        assert await client.calendars.get("fr") is not None
        assert await client.calendars.delete("fr")
        assert await client.calendars.get("fr") is None


def test_both_clients_have_the_same_calls() -> None:
    calls = [
        {
            name: list(inspect.signature(call).parameters)
            for name, call in vars(kind).items()
            if name[0] != "_"
        }
        for kind in (Calendars, SyncCalendars)
    ]
    assert calls[0] == calls[1]


@pytest.mark.parametrize(
    ("name", "dates", "field", "problem"),
    [
        ("", [], "name", "name must not be empty"),
        ("a b", [], "name", "name: 'a b' is not the name of a calendar"),
        ("a", "2026-12-25", "dates", "dates must be a list of dates, not one text"),
        ("a", ["2026-12-25", 5], "dates[1]", "dates[1] must be a str, not int"),
        ("a", ["24.12.2026"], "dates[0]", "dates[0]: '24.12.2026' is not a date such as 2026-12-24"),
        ("a", ["2026-12-25"] * 1_001, "dates", "dates: has 1,001 dates; give at most 1,000"),
    ],
)
def test_a_wrong_argument_is_named(daemon: Relay, name: str, dates: Any, field: str, problem: str) -> None:
    with (
        SyncRelayClient(daemon.target, timeout=PATIENCE) as client,
        pytest.raises(InvalidArgument) as caught,
    ):
        client.calendars.put(name, dates)
    assert (caught.value.field, caught.value.message.startswith(problem)) == (field, True), caught.value


@pytest.mark.parametrize(
    ("calendars", "field", "problem"),
    [
        ("a", "calendars", "calendars must be a list of names, not one text"),
        ([5], "calendars[0]", "calendars[0] must be a str, not int"),
        (["absent"], "calendars[0]", "calendars[0]: there is no calendar 'absent'"),
    ],
)
def test_a_rule_that_names_what_is_none(daemon: Relay, calendars: Any, field: str, problem: str) -> None:
    with (
        SyncRelayClient(daemon.target, timeout=PATIENCE) as client,
        pytest.raises(InvalidArgument) as caught,
    ):
        client.recur("r", topic="t", every=60, calendars=calendars)
    assert (caught.value.field, caught.value.message.startswith(problem)) == (field, True), caught.value


# ------------------------------------------------------------------------------- HTTP


@pytest.fixture
def api(daemon: Relay) -> Any:
    def call(method: str, path: str, body: Any = None) -> Reply:
        connection = http.client.HTTPConnection(daemon.api, timeout=PATIENCE)
        try:
            content = json.dumps(body).encode() if method == "PUT" else None
            connection.request(method, path, content, {"content-type": "application/json"} if content else {})
            answer = connection.getresponse()
            return reply(method, path, answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    return call


def test_over_http(api: Any) -> None:
    """Each operation once, and the statuses that tell something."""
    one = "/v1/calendars/at-holidays"
    made = api("PUT", one, {"dates": CHRISTMAS[::-1]})
    assert (made.status, made.headers["location"]) == (201, one)
    assert made.value == {
        "calendar": {"name": "at-holidays", "dates": list(CHRISTMAS)},
        "result": "PUT_RESULT_CREATED",
        "reached": "stored",
    }
    assert (api("PUT", one, {"dates": CHRISTMAS}).status, api("GET", one).value["calendar"]) == (
        200,
        made.value["calendar"],
    )
    assert api("GET", "/v1/calendars").value == {"calendars": [made.value["calendar"]]}
    assert api("PUT", one, {"dates": ["24.12."]}).field == "dates[0]"
    assert api("PUT", one, {"days": []}).field == "days"
    assert api("PUT", one, {"name": "other"}).field == "name"
    assert api("PUT", "/v1/calendars/a%20b", {}).field == "name"
    rule = {"rule": {"cron": "0 3 * * *", "calendars": ["at-holiday"]}}
    assert api("PUT", "/v1/topics/t/recurrences/r", rule).field == "rule.calendars[0]"
    deleted = [api("DELETE", one).value for _ in range(2)]
    assert deleted == [{"deleted": there, "reached": "stored"} for there in (True, False)]
    assert (api("GET", one).status, api("GET", "/v1/calendars").value) == (404, {"calendars": []})


# ------------------------------------------------------------------------ the command line


def ask(relay: Relay, *arguments: str) -> Ran:
    return command("recur", *arguments, "--target", relay.target)


@pytest.mark.slow
def test_from_the_command_line(daemon: Relay, tmp_path: Path) -> None:
    """Dates from arguments, or from a file; what `get` prints, `put` takes."""
    assert ask(daemon, "calendar", "list").err == "no calendars\n"
    assert ask(daemon, "calendar", "put", "uk", *CHRISTMAS).out == "created uk: 2 dates\n"
    assert ask(daemon, "calendar", "put", "uk", *CHRISTMAS).out == "left uk as it is: 2 dates\n"
    printed = ask(daemon, "calendar", "get", "uk").out
    assert printed.splitlines() == list(CHRISTMAS)
    file = tmp_path / "dates.txt"
    file.write_text(f"# Christmas\n{printed}\n2026-12-28  # instead of the 26th\n", encoding="utf-8")
    done = ask(daemon, "calendar", "put", "uk", "--file", str(file), "--json").documents
    assert done == [{"name": "uk", "dates": [*CHRISTMAS, "2026-12-28"], "result": "replaced"}]
    assert ask(daemon, "calendar", "list", "--json").documents == [
        {"name": "uk", "dates": [*CHRISTMAS, "2026-12-28"]}
    ]
    assert "2026-12-28" in ask(daemon, "calendar", "list").out
    rule = ("--cron", "0 3 * * *", "--calendar", "uk")
    shown = ask(daemon, "preview", *rule, "--after", "2026-12-24T12:00:00Z", "--count", "3", "--json")
    assert [each["left_out"] for each in shown.documents] == ["calendar", "calendar", ""]
    assert ask(daemon, "put", "t", "r", *rule).code == 0
    assert ask(daemon, "calendar", "put", "empty", "--file", "/dev/null").out == "created empty: 0 dates\n"
    assert ask(daemon, "calendar", "delete", "empty").code == 0
    assert ask(daemon, "calendar", "delete", "uk").out == "deleted uk\n"
    told = ask(daemon, "get", "t", "r").out
    assert "uk: no such calendar, so that nothing is left out for it" in told
    (got,) = ask(daemon, "get", "t", "r", "--json").documents
    assert (got["rule"]["calendars"], got["missing_calendars"]) == (["uk"], ["uk"])
    assert ask(daemon, "delete", "t", "r").code == 0


def test_what_is_wrong_on_the_command_line(daemon: Relay, tmp_path: Path) -> None:
    file = tmp_path / "dates.txt"
    file.write_text("2026-12-25\n\n25.12.2026\n", encoding="utf-8")
    for arguments, code, said in (
        (
            ("put", "a", "--file", str(file)),
            2,
            "dates.txt: line 3: '25.12.2026' is not a date such as 2026-12-24",
        ),
        (("put", "a", "--file", str(tmp_path / "none")), 2, "none can't be read: No such file"),
        (("put", "a", "2026-12-25", "--file", str(file)), 2, "give DATES or --file, not both"),
        (("put", "a"), 2, "give DATES or --file: without any the calendar would be empty"),
        (("put", "a", "tomorrow"), 2, "dates[0]: 'tomorrow' is not a date"),
        (("put", "a b", "2026-12-25"), 2, "name: 'a b' is not the name of a calendar"),
        (("get", "absent"), 3, "there is no calendar 'absent'"),
        (("delete", "absent"), 3, "there is no calendar 'absent'"),
    ):
        done = ask(daemon, "calendar", *arguments)
        assert (done.code, said in done.err) == (code, True), done
