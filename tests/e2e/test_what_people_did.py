"""What people did: a real relay with a policy, principals by token, and the record of what they changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relay.client import CallError, Credentials, SyncRelayClient
from relay.trust import tokens
from tests.worlds.relay.processes import Ran, command
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
        letters = house.stage.client.xrange(key)
        return next((name.decode() for name, said in letters if said[b"timer_id"] == timer_id.encode()), "")

    return eventually(found, f"{timer_id} is dead")


def said(action: dict[str, Any]) -> tuple[str, ...]:
    names = ("principal", "verb", "method", "topic", "thing", "note", "before", "after", "outcome")
    return tuple(action[name] for name in names)


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
