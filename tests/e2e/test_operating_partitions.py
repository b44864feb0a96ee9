"""Operating a topic of four partitions with a real relay and the real command line."""

from __future__ import annotations

import re

import pytest

from tests.worlds.relay.processes import Ran, Relay, command
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import always, eventually

pytestmark = pytest.mark.slow

TOPIC = "orders"
PARTS = [TOPIC, *(f"{TOPIC}#{n}" for n in range(1, 4))]
SETTINGS = {"RELAY_TOPICS__orders__PARTITIONS": "4", "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "1"}
IDS = [f"t{n}" for n in range(40)]


def ask(relay: Relay, *arguments: str) -> Ran:
    return command(*arguments, "--target", relay.target, timeout=120.0)


def standing(relay: Relay) -> dict[str, object]:
    (found,) = ask(relay, "stats", TOPIC, "--json").documents
    return found


def dead(stage: Stage) -> list[int]:
    return [stage.client.xlen(f"timers_dead:{part}") for part in PARTS]


def in_order(dead_id: str) -> list[int]:
    """By millisecond, number in it, and partition: within a millisecond the partitions' deaths have no
    order."""
    return [int(part) for part in re.split("[-#]", dead_id)]


def test_dead_letters_of_all_partitions(stage: Stage) -> None:
    """Forty timers die, are listed, come back, die once more and are purged; the audit finds no promise
    broken."""
    relay = stage.relay(settings=SETTINGS)
    application = stage.application(relay, TOPIC)
    producer = stage.producer(relay)
    producer.schedule_many(TOPIC, IDS, {"reject": True})
    eventually(lambda: sum(dead(stage)) == 40, "all are dead")
    assert min(dead(stage)) > 0, "in all partitions"
    found = standing(relay)
    assert (found["partitions"], found["timers"], found["dead"]) == (4, 0, 40)

    letters = ask(relay, "dead", "list", TOPIC, "--limit", "100", "--json").documents
    assert sorted(letter["timer_id"] for letter in letters) == sorted(IDS)
    names = [letter["dead_id"] for letter in letters]
    assert names == sorted(names, key=in_order)
    assert {letter["dead_id"].partition("#")[2] for letter in letters} == {"0", "1", "2", "3"}
    (got,) = ask(relay, "dead", "get", TOPIC, letters[7]["dead_id"], "--json").documents
    assert (got["timer_id"], "reject" in got["payload"]) == (letters[7]["timer_id"], True)
    wrong = ask(relay, "dead", "get", TOPIC, "5-0#9")
    assert (wrong.code, "dead_id" in wrong.err) == (2, True), wrong.err

    assert application.terminate() == 0
    named = [letter["dead_id"] for letter in letters[:3]]
    done = ask(relay, "dead", "redrive", TOPIC, *named, "--json")
    assert [line["dead_id"] for line in done.documents if "dead_id" in line] == named, done.err
    assert ask(relay, "dead", "purge", TOPIC, letters[3]["dead_id"], "--yes").code == 0
    assert ask(relay, "dead", "redrive", TOPIC, "--all").out == f"redrove 36 dead letters of {TOPIC}\n"
    assert (standing(relay)["dead"], standing(relay)["due"]) == (0, 39)
    listed = ask(relay, "list", TOPIC, "--limit", "100", "--json").documents
    assert sorted(timer["timer_id"] for timer in listed) == sorted(set(IDS) - {letters[3]["timer_id"]})

    stage.application(relay, TOPIC, name="again")
    eventually(lambda: sum(dead(stage)) == 39, "all are dead again")
    assert ask(relay, "dead", "purge", TOPIC, "--all", "--yes").code == 0
    assert (standing(relay)["timers"], standing(relay)["dead"]) == (0, 0)
    settings = {"RELAY_REDIS__URL": stage.server.url}
    audit = command("audit", TOPIC, "--json", settings=settings, timeout=120.0)
    assert audit.documents[0]["verdict"] in ("proved", "can't be said"), audit.out
    assert audit.documents[0]["journal"]["gaps"] == 0


def test_a_pause_holds_in_all_partitions(stage: Stage) -> None:
    relay = stage.relay(settings=SETTINGS)
    stage.application(relay, TOPIC)
    producer = stage.producer(relay)
    assert ask(relay, "pause", TOPIC).code == 0
    producer.schedule_many(TOPIC, IDS, {})
    eventually(lambda: standing(relay)["due"] == 40, "all are due")
    always(lambda: not stage.journal.starts("t0"), "nothing is delivered", 1.0)
    assert (standing(relay)["paused"], standing(relay)["due"]) == (True, 40)
    assert ask(relay, "resume", TOPIC).code == 0
    eventually(lambda: standing(relay)["timers"] == 0, "all have come")
    assert all(len(stage.journal.starts(timer_id)) == 1 for timer_id in IDS)
