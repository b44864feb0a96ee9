"""Operating a real relay with the real command line: poison, dead letters, redrive, pause, run, watch."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.worlds.relay.forked import Forked
from tests.worlds.relay.processes import ROOT, Ran, Relay, command, environment
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import always, eventually

TOPIC = "orders"
QUICK = {
    "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "3",
    "RELAY_DEFAULTS__RETRY__INITIAL": "0.05",
    "RELAY_DEFAULTS__RETRY__MAX": "0.05",
}


def ask(relay: Relay, *arguments: str, timeout: float = 120.0) -> Ran:
    return command(*arguments, "--target", relay.target, timeout=timeout)


def standing(relay: Relay, topic: str = TOPIC) -> dict[str, object]:
    (found,) = ask(relay, "stats", topic, "--json").documents
    return found


@pytest.mark.slow
def test_a_poison_timer_dies_and_comes_back(stage: Stage) -> None:
    """After exactly `max_attempts` deliveries it is a dead letter; redriven, it begins with attempt 1."""
    relay = stage.relay(settings=QUICK)
    stage.application(relay, TOPIC)
    producer = stage.producer(relay)
    producer.schedule(TOPIC, "poison", {"nack_until": 99, "retry_after": 0.0})
    producer.schedule(TOPIC, "well")
    eventually(lambda: stage.client.xlen(f"timers_dead:{TOPIC}") == 1, "the poison timer is dead")
    assert [event.attempt for event in stage.journal.starts("poison")] == [1, 2, 3]

    (row,) = [line for line in ask(relay, "topics").out.splitlines() if line.split()[:1] == [TOPIC]]
    assert row.split() == [TOPIC, "0", "0", "1"]
    (letter,) = ask(relay, "dead", "list", TOPIC, "--json").documents
    assert (letter["timer_id"], letter["reason"], letter["attempts"]) == ("poison", "attempts", 3)
    assert letter["last_error"] == "as asked"
    (got,) = ask(relay, "dead", "get", TOPIC, letter["dead_id"], "--json").documents
    assert '"nack_until": 99' in got["payload"]

    done = ask(relay, "dead", "redrive", TOPIC, letter["dead_id"], "--json")
    assert (done.code, done.documents[0]["result"]) == (0, "redriven"), done.err
    eventually(lambda: len(stage.journal.starts("poison")) == 6, "it came three times more")
    assert [event.attempt for event in stage.journal.starts("poison")] == [1, 2, 3] * 2
    assert len({event.occurrence for event in stage.journal.starts("poison")}) == 1

    eventually(lambda: stage.client.xlen(f"timers_dead:{TOPIC}") == 1, "it is dead again")
    assert ask(relay, "dead", "purge", TOPIC, "--timer-id", "poison", "--yes").code == 0
    stage.wait_empty(TOPIC)
    stage.judged(TOPIC, ["poison"])


def test_a_conflict_is_left_alone(stage: Stage) -> None:
    """A timer that was scheduled anew since its death is not replaced by its dead self."""
    relay = stage.relay(settings=QUICK)
    stage.application(relay, TOPIC)
    producer = stage.producer(relay)
    producer.schedule(TOPIC, "x", {"reject": True})
    eventually(lambda: stage.client.xlen(f"timers_dead:{TOPIC}") == 1, "it is dead")
    producer.schedule(TOPIC, "x", b"new", delay=3600.0)
    done = ask(relay, "dead", "redrive", TOPIC, "--all")
    assert (done.code, done.out) == (1, f"redrove 0 dead letters of {TOPIC}\n")
    assert f"timer {TOPIC}/x exists again" in done.err
    assert standing(relay)["dead"] == 1
    assert ask(relay, "cancel", TOPIC, "x").code == 0
    assert ask(relay, "dead", "redrive", TOPIC, "--all").code == 0


@pytest.mark.slow
def test_five_thousand_at_a_rate(stage: Stage) -> None:
    """2,500 a second take two seconds at least; all come back, whatever the first run left."""
    relay = stage.relay(settings={**QUICK, "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "1"})
    application = stage.application(relay, TOPIC, "--concurrency", "1000")
    producer = stage.producer(relay)
    producer.schedule_many(TOPIC, [f"t{n}" for n in range(5000)], {"reject": True})
    eventually(lambda: stage.client.xlen(f"timers_dead:{TOPIC}") == 5000, "all are dead", 240.0)
    assert application.terminate() == 0

    start = time.monotonic()
    cut = stage.process("redrive", *redriving(relay, "--rate", "200/s"))
    eventually(lambda: stage.client.zcard(f"timers_timeline:{TOPIC}") >= 200, "the first are back")
    cut.signal(signal.SIGINT)
    assert cut.wait() == 1
    assert re.search(r"cut off: redrove \d+ dead letters", cut.output())
    back = stage.client.zcard(f"timers_timeline:{TOPIC}")
    assert 200 <= back <= 200 * (time.monotonic() - start) + 100, "it kept to its rate"

    start = time.monotonic()
    done = ask(relay, "dead", "redrive", TOPIC, "--all", "--rate", "2500/s")
    took = time.monotonic() - start
    assert done.code == 0, done.err
    redrove = int(done.out.split()[1])  # a call of the one that was cut off may have ended behind `back`
    assert done.out == f"redrove {redrove} dead letters of {TOPIC}\n"
    assert redrove <= 5000 - back
    assert took >= (redrove - 500) / 2500, "it kept to its rate"
    assert standing(relay)["dead"] == 0
    assert standing(relay)["due"] == 5000


def redriving(relay: Relay, *options: str) -> list[str]:
    return ["relay.cli", "dead", "redrive", TOPIC, "--all", "--target", relay.target, *options]


@pytest.mark.slow
def test_pause_is_seen_by_every_relay_at_once(stage: Stage) -> None:
    """Paused through one relay, two deliver nothing more; resumed, both do so soon, asleep or not."""
    sleepy = {"RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "600"}
    relays = [stage.relay(name, sleepy) for name in ("one", "two")]
    for relay in relays:
        stage.application(relay, TOPIC, "--concurrency", "4", "--prefetch", "0", name=f"at {relay.name}")
    producer = stage.producer(relays[0])
    producer.schedule(TOPIC, "before")
    eventually(lambda: stage.journal.ended()["before"] == 1, "timers are delivered")

    assert ask(relays[0], "pause", TOPIC).out == f"paused {TOPIC} until it is resumed\n"
    producer.schedule_many(TOPIC, [f"held-{n}" for n in range(40)], {"gate": str(stage.gate())})
    always(lambda: len(stage.journal.events("start")) == 1, "nothing is delivered", 1.0)
    assert standing(relays[1])["paused"] is True

    assert ask(relays[1], "resume", TOPIC).code == 0
    eventually(lambda: len(stage.journal.events("start")) == 1 + 2 * 4, "both relays take up their work")
    stage.gate().touch()
    eventually(lambda: len(stage.journal.ended()) == 41, "all are delivered")


@pytest.mark.slow
def test_a_pause_ends_by_itself(stage: Stage) -> None:
    relay = stage.relay()
    stage.application(relay, TOPIC)
    asked = time.time()
    assert ask(relay, "pause", TOPIC, "--for", "3s").code == 0
    stage.producer(relay).schedule(TOPIC, "held")
    eventually(lambda: stage.journal.starts("held"), "it is delivered after the pause")
    assert stage.journal.starts("held")[0].at >= asked + 3.0
    assert standing(relay)["paused"] is False


def test_run(stage: Stage) -> None:
    """A timer of tomorrow is delivered now."""
    relay = stage.relay()
    stage.application(relay, TOPIC)
    stage.producer(relay).schedule(TOPIC, "tomorrow", delay=86_400.0)
    assert ask(relay, "run", TOPIC, "tomorrow").code == 0
    eventually(lambda: stage.journal.ended()["tomorrow"] == 1, "it was delivered")
    assert ask(relay, "run", TOPIC, "tomorrow").code == 3


@pytest.mark.slow
def test_create_only_and_expiry(stage: Stage) -> None:
    relay = stage.relay()
    made = ask(relay, "schedule", TOPIC, "--id", "x", "--in", "1h", "--create-only", "--json")
    again = ask(relay, "schedule", TOPIC, "--id", "x", "--in", "2h", "--create-only", "--json")
    assert [made.documents[0]["result"], again.documents[0]["result"]] == ["created", "unchanged"]
    assert made.documents[0]["due_time"] == again.documents[0]["due_time"]

    assert ask(relay, "pause", TOPIC).code == 0
    assert ask(relay, "schedule", TOPIC, "--id", "stale", "--in", "0", "--expire-after", "100ms").code == 0
    stage.application(relay, TOPIC)
    always(lambda: not stage.journal.events("start"), "it is held", 0.3)
    assert ask(relay, "resume", TOPIC).code == 0
    eventually(lambda: standing(relay)["timers"] == 1, "the expired one is gone")
    assert stage.journal.events("start") == []


def test_watch_on_a_terminal(stage: Stage) -> None:
    """It shows the figures as they change, and Ctrl-C leaves an exit code of 0 and a whole terminal."""
    relay = stage.relay()
    producer = stage.producer(relay)
    producer.schedule(TOPIC, "one", delay=3600.0)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "relay.cli", "topics", "--watch", "--interval", "200ms"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=ROOT,
        env=environment({"RELAY_TARGET": relay.target, "TERM": "xterm"}),
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""

    def read_until(pattern: bytes) -> None:
        nonlocal shown
        deadline = time.monotonic() + 60
        while not re.search(pattern, shown):
            assert time.monotonic() < deadline, shown
            shown += os.read(ours, 65_536)

    try:
        read_until(rb"orders +1 +0 ")
        producer.schedule(TOPIC, "two", delay=3600.0)
        read_until(rb"orders +2 +0 ")
        process.send_signal(signal.SIGINT)
        read_until(rb"\x1b\[\?25h")  # the cursor is shown again
        assert process.wait(60) == 0
        assert b"Traceback" not in shown
        assert b"Aborted" not in shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.slow
def test_progress_on_a_terminal(stage: Stage) -> None:
    """A bulk redrive shows a bar on a terminal, and its result on standard output alone."""
    relay = stage.relay(settings={**QUICK, "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "1"})
    application = stage.application(relay, TOPIC)
    stage.producer(relay).schedule_many(TOPIC, [f"t{n}" for n in range(50)], {"reject": True})
    eventually(lambda: stage.client.xlen(f"timers_dead:{TOPIC}") == 50, "all are dead")
    assert application.terminate() == 0
    ours, theirs = pty.openpty()
    out = stage.directory / "redrive.out"
    with out.open("wb") as file:
        redrive = Forked(
            redriving(relay, "--rate", "200/s"),
            cwd=ROOT,
            env=environment({"TERM": "xterm"}),
            files={1: file.fileno(), 2: theirs},
            one_try=True,  # which finds all of them there
        )
        try:
            code = redrive.wait(60)
        finally:
            redrive.kill()
    assert (code, out.read_text()) == (0, "redrove 50 dead letters of orders\n")
    bar = b""
    while b"50/50" not in bar:
        assert select.select([ours], [], [], 0)[0], bar
        bar += os.read(ours, 1 << 20)
    os.close(theirs)
    os.close(ours)


def test_doctor_sees_what_nobody_takes(stage: Stage, tmp_path: Path) -> None:
    """The same words as the README's: a topic with a backlog and no application is wrong."""
    relay = stage.relay()
    stage.producer(relay).schedule(TOPIC, "waits")
    eventually(lambda: stage.client.sismember("timers_topics", TOPIC), "the topic is known")
    stage.client.zadd(f"timers_timeline:{TOPIC}", {"waits": time.time() - 3600})
    url = {"RELAY_REDIS__URL": stage.server.url}
    seen = command("doctor", "--json", settings=url)
    wrong = [line for line in seen.documents if line["result"] == "wrong"]
    assert (seen.code, [line["check"] for line in wrong]) == (1, ["overdue"])
    assert "no application takes them" in wrong[0]["message"]


@pytest.mark.slow
def test_which_topics_are_known(stage: Stage) -> None:
    """Those of the settings, those that timers were stored in, and those that only another writer's keys tell
    of; a name that is near is told."""
    relay = stage.relay(settings={"RELAY_TOPICS__configured__LEASE_TTL": "60"})
    assert ask(relay, "schedule", "stored", "--in", "1h", "--id", "x").code == 0
    assert ask(relay, "cancel", "stored", "x").code == 0
    stage.client.zadd("timers_timeline:foreign", {"x": 4_000_000_000.0})
    stage.client.hset("timers_payloads:foreign", "x", b"")
    eventually(lambda: stage.client.sismember("timers_topics", "stored"), "it is registered")
    for topic in ("configured", "stored", "foreign"):
        assert (ask(relay, "stats", topic).code, topic) == (0, topic)
    unknown = ask(relay, "list", "storde")
    assert (unknown.code, unknown.err) == (3, "relay: no topic storde is known; did you mean stored?\n")
    assert [each["topic"] for each in ask(relay, "topics", "--json").documents] == ["configured", "stored"]
    assert ask(relay, "cancel", "foreign", "x").code == 0
    odd = ask(relay, "dead", "redrive", "stored", "nope")
    assert odd.code == 2
    wrong = "relay: dead_id: 'nope' is not one that a listing gave, such as 1767225600000-0"
    assert odd.err.startswith(wrong)
    assert odd.err.count("\n") == 1
