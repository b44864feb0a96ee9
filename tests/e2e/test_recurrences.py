"""Recurrences through every way in, against a real relay on a real Valkey."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from relay.client import (
    Delivery,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PutResult,
    RelayClient,
    SyncRelayClient,
    UsageError,
)
from relay.client.calls.recurrence_values import length_of
from relay.client.calls.recurrences import Recurrences, SyncRecurrences
from tests.worlds.relay.processes import Ran, Relay, command
from tests.worlds.relay.stage import Stage, one_relay
from tests.worlds.waiting import PATIENCE, eventually

BERLIN: dict[str, Any] = {"cron": "0 3 * * *", "zone": "Europe/Berlin"}
QUICK = {
    "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "2",
    "RELAY_DEFAULTS__RETRY__INITIAL": "0.05",
    "RELAY_DEFAULTS__RETRY__MAX": "0.05",
}
"""With these a timer whose handler always fails is dead within its second."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[Relay]:
    with one_relay() as relay:
        yield relay


# ------------------------------------------------------------------------ handlers


@pytest.mark.slow
def test_a_handler_that_always_fails_ends_nothing(stage: Stage) -> None:
    """Each occurrence dies, and the next one comes all the same."""
    relay = stage.relay(settings=QUICK)
    _replica(stage, relay, "one")
    eventually(lambda: stage.client.xlen("timers_dead:failing") >= 4, "four occurrences have died")
    runs = {event.timer_id: event.headers or {} for event in stage.journal.events("start")}
    assert all(name.startswith("failing@") for name in runs)
    numbers = [int(headers["relay-run"]) for headers in runs.values()]
    assert numbers == sorted(set(numbers)), "no run comes twice"


@pytest.mark.slow
def test_replicas_with_the_same_handlers_make_one_recurrence(stage: Stage) -> None:
    """Whoever comes first creates it, the others leave it as it is, and each instant has one occurrence."""
    relays = [stage.relay(name, settings=QUICK) for name in ("left", "right")]
    replicas = [_replica(stage, relay, f"replica of {relay.name}") for relay in relays]
    eventually(lambda: stage.journal.count("ready") == 2, "both are ready")
    said = "".join(replica.output() for replica in replicas)
    for name in ("failing", "weekdays"):
        told = f"recurrence is declared: topic=failing recurrence={name}"
        assert (said.count(f"{told} created, version 1"), said.count(f"{told} unchanged, version 1")) == (
            1,
            1,
        )
    with SyncRelayClient(relays[0].target, timeout=PATIENCE) as client:
        found = {each.recurrence_id: each for each in client.recurrences.list("failing")}
        assert (found["weekdays"].cron, found["weekdays"].zone) == ("0 3 * * MON-FRI", "Europe/Berlin")
        assert (found["failing"].every, found["failing"].version) == (timedelta(seconds=1), 1)
    eventually(lambda: stage.client.xlen("timers_dead:failing") >= 3, "three occurrences have died")
    letters = cast("list[Any]", stage.client.xrange("timers_dead:failing"))
    deaths = [letter[b"timer_id"] for _, letter in letters]
    assert len(deaths) == len(set(deaths)), "each instant has one occurrence"


def _replica(stage: Stage, relay: Relay, name: str) -> Any:
    module = "tests.worlds.relay.recurring"
    return stage.process(
        name, module, "--target", relay.target, "--events", str(stage.directory / "events.jsonl")
    )


@pytest.mark.usefixtures("one_try")
async def test_a_recurrence_is_replaced_when_its_handler_says_otherwise(daemon: Relay) -> None:
    """The next version of an application declares another rule: it is replaced once."""
    for length, version in (("10 minutes", 1), ("10 minutes", 1), ("5 minutes", 2)):
        client = RelayClient(daemon.target, timeout=PATIENCE)

        @client.every(length, topic="rolling", recurrence_id="r")
        async def handler(delivery: Delivery) -> None: ...

        async with client:
            await client.wait_ready(PATIENCE)
            found = await client.recurrences.get("rolling", "r")
            assert found is not None
            assert (found.version, found.every) == (version, length_of(length))


async def test_a_refused_recurrence_ends_the_client(daemon: Relay) -> None:
    """As a refused stream does: by its error, with the recurrence's name."""
    client = RelayClient(daemon.target, timeout=PATIENCE)

    @client.cron("61 * * * *")
    async def wrong(delivery: Delivery) -> None: ...

    with pytest.raises(InvalidArgument, match=r'cron: minute 61 in "61 \* \* \* \*": 0 to 59') as caught:
        async with client:
            await client.run()
    assert caught.value.field == "cron"
    assert caught.value.__notes__ == ["(recurrence 'wrong' of topic 'wrong')"]
    with pytest.raises(InvalidArgument):
        async with client:
            await client.wait_ready(PATIENCE)


async def test_what_can_not_be_declared() -> None:
    client = RelayClient("127.0.0.1:1")

    async def first(delivery: Delivery) -> None: ...

    async def second(delivery: Delivery) -> None: ...

    client.every("1 h", topic="t", recurrence_id="a")(first)
    with pytest.raises(UsageError, match="topic 't' has a recurrence 'a' already"):
        client.cron("@daily", topic="t", recurrence_id="a")(first)
    with pytest.raises(UsageError, match="topic 't' has a handler already"):
        client.cron("@daily", topic="t", recurrence_id="b")(second)
    with pytest.raises(InvalidArgument, match="every must be a length of time such as '10 minutes'"):
        client.every("often")(second)
    async with client:
        with pytest.raises(UsageError, match="before deliveries begin"):
            client.every("1 h", topic="t", recurrence_id="c")(first)


# ------------------------------------------------------------------------- both clients


def test_both_clients_have_the_same_calls() -> None:
    """Names, kinds, defaults and types of the arguments."""
    there, here = (
        {name: member for name, member in vars(owner).items() if name[0] != "_"}
        for owner in (Recurrences, SyncRecurrences)
    )
    assert there.keys() == here.keys()
    for name in there:
        assert inspect.signature(there[name]).parameters == inspect.signature(here[name]).parameters


@pytest.mark.usefixtures("one_try")
def test_the_life_of_a_recurrence(daemon: Relay) -> None:
    """Put, read, pause, resume, trigger, fill in, delete, in the calling thread."""
    with SyncRelayClient(daemon.target, timeout=PATIENCE) as client:
        made = client.recur("r", topic="life", payload=b"\x00", headers={"k": "ö"}, jitter=5, **BERLIN)
        assert (made.result, made.version, made.cron, made.jitter) == (
            PutResult.CREATED,
            1,
            "0 3 * * *",
            timedelta(seconds=5),
        )
        again = client.recur("r", topic="life", payload=b"\x00", headers={"k": "ö"}, jitter=5, **BERLIN)
        assert again.result is PutResult.UNCHANGED
        with pytest.raises(FailedPrecondition):
            client.recur("r", topic="life", every=60, if_version=0)
        found = client.recurrences.get("life", "r")
        assert found is not None
        assert (found.payload, found.headers, found.paused) == (b"\x00", {"k": "ö"}, False)
        assert client.recurrences.pause("life", "r", "why").pause_note == "why"
        assert [each.paused for each in client.recurrences.list("life", paused=True)] == [True]
        assert not list(client.recurrences.list("life", paused=False))
        assert not client.recurrences.resume("life", "r").paused
        first = client.recurrences.trigger("life", "r")
        assert first.startswith("r@20")
        assert client.recurrences.trigger("life", "r") == "", "the first one has not ended"
        start = datetime(2026, 11, 20, tzinfo=UTC)
        end = start + timedelta(days=3)
        filled = client.recurrences.backfill("life", "r", start, end, interval=60, overlap="allow")
        assert filled == (3, start + timedelta(hours=2), start + timedelta(days=2, hours=2), 0)
        names = {each.timer_id for each in client.list("life")}
        assert names == {first, *(f"r@2026-11-{day}T02:00:00Z~3" for day in (20, 21, 22))}
        past = client.recurrences.history("life", "r")
        assert [each.timer_id for each in past] == [first, *sorted(names - {first})]
        gone = client.recurrences.delete("life", "r", cancel_waiting=True)
        assert (bool(gone), gone.cancelled) == (True, 4)
        assert not client.recurrences.delete("life", "r")
        assert client.recurrences.get("life", "r") is None
        assert not list(client.list("life"))


@pytest.mark.usefixtures("one_try")
async def test_the_same_on_asyncio(daemon: Relay) -> None:
    async with RelayClient(daemon.target, timeout=PATIENCE) as client:
        for number in range(7):
            made = await client.recur(f"r-{number}", topic="many", every=timedelta(days=1))
            assert made.result is PutResult.CREATED
        paged = [each.recurrence_id async for each in client.recurrences.list("many", page_size=2)]
        assert paged == [f"r-{number}" for number in range(7)]
        with pytest.raises(NotFound):
            await client.recurrences.pause("many", "absent")
        timer_id = await client.recurrences.trigger("many", "r-0")
        assert await client.get("many", timer_id) is not None
        history = await client.recurrences.history("many", "r-0")
        assert [each.timer_id for each in history] == [timer_id]
        for limit in (0, 17):
            with pytest.raises(InvalidArgument) as wrong:
                await client.recurrences.history("many", "r-0", limit=limit)
            assert wrong.value.field == "limit"
        paused = await client.recurrences.pause("many", "r-0", "why")
        assert (paused.pause_note, (await client.recurrences.resume("many", "r-0")).paused) == ("why", False)
        yesterday = datetime.now(UTC) - timedelta(days=1)
        filled = await client.recurrences.backfill("many", "r-0", yesterday, datetime.now(UTC))
        assert filled.occurrences == 1
        assert await client.recurrences.delete("many", "r-0") == (True, 0)
        assert await client.recurrences.get("many", "r-0") is None


def test_a_preview_shows_what_the_clocks_show(daemon: Relay) -> None:
    """Shifted out of a gap, left out in one, and left out by a date."""
    since = datetime(2026, 3, 28, tzinfo=UTC)
    rule: dict[str, Any] = {"cron": "30 2 * * *", "zone": "Europe/Berlin", "leave_out": [since.date()]}
    with SyncRelayClient(daemon.target, timeout=PATIENCE) as client:
        closed, shifted, plain = client.recurrences.preview(count=3, after_time=since, **rule)
        assert (closed.left_out, closed.local_time.isoformat()) == ("calendar", "2026-03-28T02:30:00+01:00")
        assert (shifted.shifted, shifted.local_time.isoformat()) == (
            timedelta(hours=1),
            "2026-03-29T03:30:00+02:00",
        )
        assert (plain.time, plain.local_time.isoformat()) == (
            datetime(2026, 3, 30, 0, 30, tzinfo=UTC),
            "2026-03-30T02:30:00+02:00",
        )
        skipped = client.recurrences.preview(count=2, after_time=since, gap="skip", **rule)[1]
        assert skipped.left_out == "gap"


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("topic", {"topic": ""}, "must not be empty"),
    ("recurrence_id", {"recurrence_id": "x" * 201}, "recurrence_id has 201 bytes; at most 200 are allowed"),
    ("cron", {"cron": None}, "exactly one of cron, rrule and every must be given, not none"),
    ("every", {"every": 5}, "exactly one of cron, rrule and every must be given, not cron and every"),
    ("every", {"cron": None, "every": -1}, "every must be a finite number of seconds and not negative"),
    ("every", {"cron": None, "every": "10"}, "must be a length of time such as '10 minutes'"),
    ("cron", {"cron": 5}, "cron must be a str, not int"),
    ("zone", {"zone": 5}, "zone must be a str, not int"),
    ("zone", {"zone": "Europe/Berlim"}, "zone: 'Europe/Berlim' is not a time zone"),
    ("gap", {"gap": "jump"}, "gap must be shift or skip, not 'jump'"),
    ("fold", {"fold": "third"}, "fold must be first or second or both, not 'third'"),
    ("start_time", {"start_time": datetime(2030, 1, 1)}, "start_time is a naive datetime"),  # noqa: DTZ001
    ("leave_out[0]", {"leave_out": ["24.12."]}, "leave_out[0]: '24.12.' is not a date such as 2026-12-24"),
    ("payload", {"payload": "text"}, "payload must be bytes, not str"),
    ("headers", {"headers": {"relay-run": "1"}}, "headers: have 'relay-run'"),
    ("overlap", {"overlap": "queue"}, "overlap must be skip or buffer or allow or cancel, not 'queue'"),
    ("catch_up", {"catch_up": 5}, "catch_up must be latest or all or none, not 5"),
    ("catch_up_window", {"catch_up_window": 5}, "catch_up_window: is set with LATEST"),
    ("jitter", {"jitter": timedelta(days=2)}, "jitter: is longer than a day"),
    ("expire_after", {"expire_after": 0}, "expire_after: is 0; give more, or leave it out"),
    ("max_runs", {"max_runs": 1.5}, "max_runs must be a whole number"),
    ("if_version", {"if_version": -1}, "if_version must be a whole number from 0"),
]


@pytest.mark.parametrize(("field", "wrong", "problem"), WRONG)
def test_a_wrong_argument_is_named(daemon: Relay, field: str, wrong: dict[str, Any], problem: str) -> None:
    """By the client for what is plainly wrong, otherwise by the relay; by the same names."""
    given = {"recurrence_id": "r", "topic": "t", "cron": "@daily", **wrong}
    with (
        SyncRelayClient(daemon.target, timeout=PATIENCE) as client,
        pytest.raises(InvalidArgument) as caught,
    ):
        client.recur(**given)
    assert caught.value.field == field
    assert problem in caught.value.message


def test_an_argument_that_is_not_known(daemon: Relay) -> None:
    with SyncRelayClient(daemon.target) as client, pytest.raises(TypeError, match="no argument 'crn'"):
        client.recur("r", topic="t", crn="@daily")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10 minutes", 600),
        ("90s", 90),
        ("1h30m", 5_400),
        ("1.5 Hours", 5_400),
        ("250ms", 0.25),
        ("2 days", 172_800),
    ],
)
def test_lengths_of_time_as_words(text: str, seconds: float) -> None:
    assert length_of(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "10", "minutes", "10 minutos", "1h x", "ss", "-1s"])
def test_words_that_are_no_length_of_time(text: str) -> None:
    with pytest.raises(InvalidArgument, match="every must be a length of time"):
        length_of(text)


# ---------------------------------------------------------------------- the command line


def ask(relay: Relay, *arguments: str) -> Ran:
    return command("recur", *arguments, "--target", relay.target)


def test_from_the_command_line(daemon: Relay) -> None:
    """Put, get, list; to put the same again changes nothing."""
    nightly = ("reports", "nightly")
    rule = ("--cron", "0 3 * * *", "--zone", "Europe/Berlin")
    done = ask(daemon, "put", *nightly, *rule, "--payload", "hi", "--json")
    assert done.code == 0, done.err
    (made,) = done.documents
    assert (made["version"], made["result"], made["rule"]) == (
        1,
        "created",
        {"cron": "0 3 * * *", "zone": "Europe/Berlin"},
    )
    again = ask(daemon, "put", *nightly, *rule, "--payload", "hi")
    assert again.out.startswith("left reports/nightly as it is: version 1, next at 20"), again
    (got,) = ask(daemon, "get", *nightly, "--json").documents
    assert got == {name: value for name, value in made.items() if name != "result"}
    (listed,) = ask(daemon, "list", "reports", "--json").documents
    assert listed == {name: value for name, value in got.items() if name != "payload"}


@pytest.mark.slow
def test_what_people_do_to_a_recurrence(daemon: Relay) -> None:
    """Pause, resume, trigger, fill in, look, delete; each says what it has done."""
    one = ("people", "r")
    assert ask(daemon, "put", *one, "--every", "1d", "--jitter", "5s", "--payload", "hi").code == 0
    assert ask(daemon, "pause", *one, "--note", "a move").out == "paused people/r until it is resumed\n"
    rows = dict(line.split("  ", 1) for line in ask(daemon, "get", *one).out.splitlines())
    assert rows["every"].strip() == "86400s"
    assert rows["payload"].strip() == "hi"
    assert rows["paused"].strip().endswith(": a move")
    assert ask(daemon, "list", "people", "--paused", "--json").documents[0]["paused"]
    assert ask(daemon, "list", "people", "--not-paused").err == "no recurrences in people\n"
    assert ask(daemon, "resume", *one).out.startswith("resumed people/r: next at 20")
    made = ask(daemon, "trigger", *one)
    assert made.out.startswith("made people/r@20")
    assert ask(daemon, "trigger", *one).out.startswith("made none: the last occurrence of people/r has not")
    since = ("--from", "2026-11-20T00:00:00Z", "--to", "2026-11-22T00:00:00Z")
    filled = ask(daemon, "backfill", *one, *since, "--overlap", "allow")
    days = "2026-11-20T00:00:00.000000Z to 2026-11-21T00:00:00.000000Z"
    assert filled.out == f"made 2 occurrences, of the instants from {days}\n"
    past = ask(daemon, "history", *one, "--json").documents
    assert [each["time"][:10] for each in past[1:]] == ["2026-11-20", "2026-11-21"]
    filled = ask(daemon, "backfill", *one, *since)
    assert filled.out == (
        f"made 0 of 2 occurrences, of the instants from {days}; the others come one after another\n"
    )
    assert ask(daemon, "get", *one, "--json").documents[0]["to_fill"] == 2
    assert "to fill in" in ask(daemon, "get", *one).out
    gone = ask(daemon, "delete", *one, "--cancel-waiting")
    assert gone.out == "deleted people/r, and cancelled 3 occurrences\n"
    assert ask(daemon, "put", *one, "--every", "1d").code == 0
    many = ("--from", "2026-10-01T00:00:00Z", "--to", "2026-11-10T00:00:00Z")
    assert ask(daemon, "backfill", *one, *many, "--overlap", "allow").out.startswith("made 40 occurrences")
    assert ask(daemon, "delete", *one).out == "deleted people/r\n"
    gone = ask(daemon, "delete", *one, "--cancel-waiting")
    assert (gone.code, gone.out) == (0, "cancelled 40 occurrences of people/r, which was gone\n")
    assert ask(daemon, "delete", *one, "--cancel-waiting").code == 3


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("put", "t", "r"), 2, "give one of --cron, --rrule and --every"),
        (("put", "t", "r", "--cron", "61 * * * *"), 2, 'cron: minute 61 in "61 * * * *": 0 to 59'),
        (("put", "t", "r", "--every", "often"), 2, "--every: must be a length of time"),
        (("put", "t", "r", "--cron", "@daily", "--start", "soon"), 2, "--start: must be an ISO 8601 time"),
        (("put", "t", "r", "--cron", "@daily", "--if-version", "7"), 1, "has version 0, not 7"),
        (("put", "t", "r", "--cron", "@daily", "--header", "a"), 2, "--header: must be NAME=VALUE"),
        (("preview", "t"), 2, "give one of --cron, --rrule and --every"),
        (
            ("preview", "t", "--every", "0.5s"),
            2,
            "0.5 s apart; the topic allows 1 s and more: see its min_recurrence_interval",
        ),
        (("preview", "t", "r", "--zone", "UTC"), 2, "the options say another rule"),
        (("preview", "t", "absent"), 3, "there is no recurrence t/absent"),
        (("get", "t", "absent"), 3, "there is no recurrence t/absent"),
        (("pause", "t", "absent"), 3, "topic 't' has no recurrence 'absent'"),
        (("history", "t", "absent"), 3, "topic 't' has no recurrence 'absent'"),
        (("delete", "t", "absent"), 3, "there is no recurrence t/absent"),
        (("backfill", "t", "r", "--from", "1h", "--to", "2h"), 2, "end_time: is not after start_time"),
    ],
)
def test_what_a_command_refuses(daemon: Relay, arguments: tuple[str, ...], code: int, problem: str) -> None:
    done = ask(daemon, *arguments)
    assert done.code == code, done
    assert problem in done.err


def test_a_preview_on_the_command_line(daemon: Relay) -> None:
    rule = ("--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--after", "2026-03-28T12:00:00Z", "-n", "2")
    assert "shifted by 3600s" in ask(daemon, "preview", *rule).out
    assert [
        each["left_out"] for each in ask(daemon, "preview", *rule, "--gap", "skip", "--json").documents
    ] == [
        "gap",
        "",
    ]
    ask(daemon, "put", "shown", "r", *rule[:4])
    kept = ask(
        daemon, "preview", "shown", "r", "--after", "2026-03-28T12:00:00Z", "-n", "1", "--json"
    ).documents
    assert kept[0]["local_time"] == "2026-03-29T03:30:00+02:00"
