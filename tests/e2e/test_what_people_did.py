"""What people did: a real relay with a policy, principals by token, and the record of what they changed."""

from __future__ import annotations

import http.client
import json
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from relay.client import CallError, ChangeResult, Credentials, SyncRelayClient
from relay.store.server.scripts import Script
from relay.trust import tokens
from tests.e2e import test_sealing
from tests.ghosts.slow_line import SlowLine
from tests.worlds.relay.processes import Ran, Relay, command, put_file
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import PATIENCE, eventually

TOPIC = "orders"
QUICK = {"RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "1"}
POLICY = """\
rules:
  - {name: ops, principals: ["token:alice"], topics: ["*"], verbs: [schedule, read, operate]}
  - {name: shop, principals: ["token:shop"], topics: [orders], verbs: [schedule, read, deliver]}
  - {name: app, principals: [anonymous], topics: ["*"], verbs: [schedule, read, payload, deliver]}
"""


class House:
    """A relay, and the tokens of two who call it."""

    def __init__(self, stage: Stage, directory: Path) -> None:
        self.stage, self.policy = stage, directory / "policy.yaml"
        self.policy.write_text(POLICY)
        held = {name: tokens.new() for name in ("alice", "shop")}
        file = directory / "tokens"
        file.write_text("\n".join(tokens.line(*each) for each in held.items()))
        self.files = {name: directory / f"{name}.token" for name in held}
        for name, token in held.items():
            self.files[name].write_text(token)
        self.settings = {
            **QUICK,
            "RELAY_POLICY_FILE": str(self.policy),
            "RELAY_AUTHENTICATION__TOKENS_FILE": str(file),
        }
        self.relay = stage.relay(settings=self.settings)

    def client(self, name: str) -> SyncRelayClient:
        shown = Credentials(token_file=str(self.files[name]))
        return SyncRelayClient(self.relay.target, timeout=PATIENCE, credentials=shown)

    def ask(self, name: str, *arguments: str) -> Ran:
        token = {"RELAY_TOKEN_FILE": str(self.files[name])}
        return command(*arguments, "--target", self.relay.target, settings=token)

    def people(self, *arguments: str) -> list[dict[str, Any]]:
        return recorded(self.stage, *arguments)


def recorded(stage: Stage, *arguments: str) -> list[dict[str, Any]]:
    """What `relay journal tail --people` prints."""
    redis = {"RELAY_REDIS__URL": stage.server.url}
    ran = command("journal", "tail", *arguments, "--people", "--json", settings=redis)
    assert ran.code in (0, 3), ran.err
    return [dict(each) for each in ran.documents]


@pytest.fixture
def house(stage: Stage, tmp_path: Path) -> House:
    return House(stage, tmp_path)


def dead_letter(house: House, timer_id: str) -> str:
    """Let a timer die."""
    producer = house.stage.producer(house.relay)
    producer.schedule(TOPIC, timer_id, {"nack_until": 99, "retry_after": 0.0})
    key = f"timers_dead:{TOPIC}"

    def found() -> str:
        letters: Any = house.stage.client.xrange(key)
        return next((name.decode() for name, said in letters if said[b"timer_id"] == timer_id.encode()), "")

    return eventually(found, f"{timer_id} is dead")


def said(action: dict[str, Any]) -> tuple[str, ...]:
    names = ("principal", "verb", "method", "topic", "thing", "note", "before", "after", "outcome")
    return tuple(action[name] for name in names)


@pytest.mark.usefixtures("one_try")
def test_the_record_says_exactly_what_was_done(house: House) -> None:
    """What the policy denied changed nothing, and stands nowhere; what reads changed nothing either."""
    house.stage.application(house.relay, TOPIC)
    first, second = dead_letter(house, "first"), dead_letter(house, "second")
    with house.client("shop") as shop, house.client("alice") as alice:
        for denied in (
            lambda: shop.topics.pause(TOPIC, note="no"),
            lambda: shop.topics.redrive(TOPIC, [first], note="no"),
            lambda: shop.topics.purge(TOPIC, [first], note="no"),
            lambda: shop.run_timer(TOPIC, "x", note="no"),
            lambda: shop.recurrences.pause(TOPIC, "x", "no"),
            lambda: shop.calendars.put("de", [], note="no"),
        ):
            with pytest.raises(CallError, match="the policy does not give token:shop the verb operate"):
                denied()
        alice.topics.pause(TOPIC, note="bad deploy, “OPS-7”")
        alice.topics.redrive(TOPIC, [first], note="once more")
        alice.topics.purge(TOPIC, [second, "1-1"], note="not wanted")
        alice.schedule(TOPIC, b"", timer_id="late", delay=3600)
        alice.run_timer(TOPIC, "late", note="now")
        alice.topics.resume(TOPIC, note="mended")
        alice.recur("nightly", topic=TOPIC, cron="0 3 * * *", zone="Europe/Berlin", note="reports")
        alice.recur("nightly", topic=TOPIC, cron="0 3 * * *", zone="Europe/Berlin", note="the same again")
        alice.recurrences.pause(TOPIC, "nightly", "holidays")
        alice.topics.get(TOPIC)
    ran = house.ask("alice", "recur", "delete", TOPIC, "nightly", "--note", "gone")
    assert ran.code == 0, ran.err
    policy, *found = house.people()
    assert (policy["principal"], policy["kind"], policy["method"]) == ("relay", "relay", "TakeOverPolicy")
    due = found[3]["before"]
    assert due.startswith("due 20")
    operate = ("token:alice", "operate")
    rule = "0 3 * * * Europe/Berlin"
    assert [said(each) for each in found] == [
        (*operate, "PauseTopic", TOPIC, "", "bad deploy, “OPS-7”", "not paused", "paused", "OK"),
        (*operate, "RedriveDeadLetters", TOPIC, first, "once more", "2 dead letters", "1 redriven", "OK"),
        (
            *operate,
            "PurgeDeadLetters",
            TOPIC,
            f"{second}, 1-1",
            "not wanted",
            "1 dead letter",
            "1 purged",
            "OK",
        ),
        (*operate, "RunTimer", TOPIC, "late", "now", due, "due now", "OK"),
        (*operate, "ResumeTopic", TOPIC, "", "mended", "paused", "not paused", "OK"),
        (
            "token:alice",
            "schedule",
            "PutRecurrence",
            TOPIC,
            "nightly",
            "reports",
            "none",
            f"version 1, {rule}",
            "OK",
        ),
        (
            *operate,
            "PauseRecurrence",
            TOPIC,
            "nightly",
            "holidays",
            f"version 1, {rule}",
            f"version 2, {rule}, paused",
            "OK",
        ),
        (
            "token:alice",
            "schedule",
            "DeleteRecurrence",
            TOPIC,
            "nightly",
            "gone",
            f"version 2, {rule}, paused",
            "none",
            "OK",
        ),
    ]


def test_an_action_log_that_can_t_be_written_stops_nobody(house: House) -> None:
    """Whatever is in its place: the topic is paused, and the relay counts what is not recorded."""
    key = "timers_topics:actions"
    house.stage.client.rename(key, f"{key}:aside")
    house.stage.client.set(key, "x")
    with house.client("alice") as alice:
        alice.topics.pause(TOPIC)
        assert alice.topics.get(TOPIC).paused
    unwritten = [line for line in house.relay.metrics().splitlines() if "actions_unwritten" in line]
    assert float(unwritten[-1].split()[-1]) >= 2, unwritten
    house.stage.client.rename(f"{key}:aside", key)


@pytest.mark.slow
def test_a_policy_that_is_taken_over_is_recorded_once(house: House) -> None:
    """Two relays read one file: its digest before and after, and a file that can't be used is no policy."""
    other = house.stage.relay("other", settings=house.settings)
    (first,) = house.people()
    digest = f"sha256:{sha256(POLICY.encode()).hexdigest()}"
    assert (first["before"], first["after"], first["thing"]) == ("", digest, str(house.policy))
    put_file(house.policy, "rules: [")
    for relay in (house.relay, other):
        eventually(partial(counted, relay, "relay_files_refused_total"), "the bad file is counted")
    changed = POLICY.replace("token:shop", "token:store")
    put_file(house.policy, changed)
    for relay in (house.relay, other):
        eventually(partial(counted, relay, "relay_files_taken_over_total"), "the policy is taken over")
    found = eventually(lambda: house.people()[1:], "it is recorded")
    assert [(each["before"], each["after"]) for each in found] == [
        (digest, f"sha256:{sha256(changed.encode()).hexdigest()}")
    ]


def counted(relay: Relay, name: str) -> bool:
    return (
        re.search(rf'^{name}{{.*setting="policy_file".*}} 1\.0$', relay.metrics(), re.MULTILINE) is not None
    )


def test_what_a_file_declares_is_the_relay_s_doing(stage: Stage, tmp_path: Path) -> None:
    """Once: a relay that starts and finds it so has changed nothing."""
    file = tmp_path / "recurrences.yaml"
    file.write_text(
        "- {calendar: de, dates: [2026-12-25]}\n- {topic: t, recurrence_id: often, rule: {every_sec: 3600}}\n"
    )
    for name in ("first", "second"):
        stage.relay(name, settings={"RELAY_RECURRENCES__FILE": str(file)})
    assert [(each["principal"], each["method"], each["after"]) for each in recorded(stage)] == [
        ("relay", "PutCalendar", "1 date"),
        ("relay", "PutRecurrence", "version 1, every 1:00:00"),
    ]


def test_over_http(house: House) -> None:
    """The note stands beside the other fields, or in the query where there is no body."""
    relay, token = house.relay, house.files["alice"].read_text()

    def call(method: str, path: str, body: object = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection(relay.api, timeout=PATIENCE)
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        connection.request(method, f"/v1/{path}", json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    assert call("POST", f"topics/{TOPIC}:pause", {"note": "OPS-8"})[0] == 200
    assert call("PUT", "calendars/de", {"dates": ["2026-12-25"], "note": "holidays"})[0] == 201
    assert call("DELETE", "calendars/de?note=no%20more")[0] == 200
    status, said = call("POST", f"topics/{TOPIC}:pause", {"note": "x" * 1025})
    assert (status, "note: is 1025 bytes long" in said) == (422, True), said
    assert [(each["method"], each["note"]) for each in house.people("--principal", "token:*")] == [
        ("PauseTopic", "OPS-8"),
        ("PutCalendar", "holidays"),
        ("DeleteCalendar", "no more"),
    ]


@pytest.mark.usefixtures("one_try")
def test_the_audit_has_a_page_of_it(house: House) -> None:
    """What was done to the topic, and to all of them, from the journal's first record to its last. Its
    records say who asked."""
    with house.client("alice") as alice:
        alice.calendars.put("fr", [], note="before the first record")
        alice.schedule(TOPIC, b"", timer_id="first", delay=3600)
        alice.topics.pause(TOPIC, note="OPS-9")
        alice.topics.pause("bills", note="another topic")
        alice.calendars.put("de", ["2026-12-25"], note="of all topics")
        alice.topics.resume(TOPIC)
        alice.schedule(TOPIC, b"", timer_id="last", delay=3600)
        alice.topics.pause(TOPIC, duration=60, note="the last record")
        alice.topics.pause("bills", note="behind")
    redis = {"RELAY_REDIS__URL": house.stage.server.url}
    (told,) = command("audit", TOPIC, "--json", settings=redis).documents
    assert [(each["method"], each["note"], each["outcome"]) for each in told["people"]] == [
        ("PauseTopic", "OPS-9", "OK"),
        ("PutCalendar", "of all topics", "OK"),
        ("ResumeTopic", "", "OK"),
        ("PauseTopic", "the last record", "OK"),
    ]
    shown = command("audit", TOPIC, settings=redis).out
    assert 'token:alice  PauseTopic  orders  OK  before="not paused"  after="paused"' in shown
    records = command("journal", "tail", TOPIC, "--json", settings=redis).documents
    assert [(each["kind"], each.get("principal", "")) for each in records] == [
        ("SCHEDULED", "token:alice"),
        ("PAUSED", "token:alice"),
        ("RESUMED", "token:alice"),
        ("SCHEDULED", "token:alice"),
        ("PAUSED", "token:alice"),
    ]


def test_a_timer_that_does_not_open_is_run_all_the_same(stage: Stage) -> None:
    """The log wants to know when it was due, and never what is in it."""
    sealing = stage.relay("sealing", settings=test_sealing.sealing(test_sealing.keyring(stage, "k1")))
    other = stage.relay("other")
    with SyncRelayClient(sealing.target, timeout=PATIENCE) as client:
        client.schedule(TOPIC, b"secret", timer_id="late", delay=3600)
    with SyncRelayClient(other.target, timeout=PATIENCE) as client:
        assert client.run_timer(TOPIC, "late").result is ChangeResult.RUN
    *_, action = recorded(stage)  # a busy machine may have it run twice
    assert (action["before"], action["after"]) == ("sealed with a key that this relay lacks", "due now")


@pytest.mark.parametrize(("held", "happened"), [("pause", False), ("outcome", True)])
def test_a_relay_that_dies_in_between_leaves_an_open_action(stage: Stage, held: str, happened: bool) -> None:
    """It is killed while its effect is on its way to Redis, or the entry behind that: the first entry says
    what was about to happen, and nothing says that it did."""
    with SlowLine(stage.server.port) as line:
        relay = stage.relay(url=line.url)
        line.hold(Script("people/pause+journal").sha if held == "pause" else held)
        with SyncRelayClient(relay.target, timeout=PATIENCE) as client, ThreadPoolExecutor() as pool:
            call = pool.submit(client.topics.pause, TOPIC, note="OPS-10")
            eventually(lambda: line.holds, "it is on its way")
            relay.kill()
            line.drop()
            client.close()
            with pytest.raises(CallError):
                call.result(PATIENCE)
        found = recorded(stage)  # on a busy machine the client has tried again before the relay died
        said = {(each["method"], each["note"], each["outcome"]) for each in found}
        assert said == {("PauseTopic", "OPS-10", "open")}
        assert bool(stage.client.exists(f"timers_pause:{TOPIC}")) is happened
