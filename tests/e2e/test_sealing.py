"""Sealed topics: what lies in Redis shows nothing of payloads and headers, and nothing is lost for a key."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from redis import Redis

from relay.client import FailedPrecondition, NewTimer, SyncRelayClient
from tests.worlds.relay.processes import Relay, command, put_file
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import PATIENCE, eventually

TOPIC = "orders"
MARK = "confidential-0x5ea1ed"
KEYS = {"k1": bytes(range(32)), "k2": bytes(range(1, 33))}
QUICK = {
    "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "2",
    "RELAY_DEFAULTS__RETRY__INITIAL": "0.05",
    "RELAY_DEFAULTS__RETRY__MAX": "0.05",
}


def keyring(stage: Stage, writes: str, *others: str, name: str = "keyring") -> Path:
    """Write a keyring's file in one step, as a mounted Secret changes."""
    keys = {each: {"base64": base64.b64encode(KEYS[each]).decode()} for each in (writes, *others)}
    file = stage.directory / f"{name}.yaml"
    put_file(file, json.dumps({"write": writes, "keys": keys}))
    return file


def sealing(file: Path, **more: str) -> Mapping[str, str]:
    return {"RELAY_DEFAULTS__SEALING": "true", "RELAY_SEALING__KEYRING": str(file), **QUICK, **more}


def in_redis(client: Redis, text: str) -> int:
    """How often a text stands in all that Redis would write to its disk, uncompressed."""
    client.save()
    settings = cast("dict[str, str]", {**client.config_get("dir"), **client.config_get("dbfilename")})
    whole = (Path(settings["dir"]) / settings["dbfilename"]).read_bytes()
    return len(re.findall(re.escape(text.encode()), whole)) + whole.count(base64.b64encode(text.encode()))


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.usefixtures("one_try")
def test_redis_shows_nothing_of_contents(stage: Stage, sealed: bool) -> None:
    """Timers that wait, are tried again, are rescheduled or dead, and recurrences: none has a word of its
    payload and headers in Redis, and applications get them as they were. Without sealing the same search
    finds them."""
    stage.redis(config={"rdbcompression": "no"})
    relay = stage.relay(settings=sealing(keyring(stage, "k1")) if sealed else QUICK)
    producer, gate = stage.producer(relay), stage.gate()
    secret: dict[str, Any] = {"note": MARK}
    batch = json.dumps(secret).encode()
    many = [NewTimer(topic=TOPIC, payload=batch, delay=3600, headers={"h": MARK}) for _ in range(150)]
    producer.schedule(TOPIC, "waits", secret, delay=3600, headers={"h": MARK})
    producer.schedule(TOPIC, "works", {**secret, "gate": str(gate)}, headers={"h": MARK})
    producer.schedule(TOPIC, "dies", {**secret, "nack_until": 9}, headers={"h": MARK})
    producer.schedule(TOPIC, "again", {**secret, "every": 3600, "until": str(gate)}, headers={"h": MARK})
    put = [
        "recur",
        "put",
        TOPIC,
        "daily",
        "--every",
        "1d",
        "--payload",
        json.dumps(secret),
        "-H",
        f"h={MARK}",
    ]
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        client.schedule_batch(many)
        assert command(*put, "--target", relay.target).code == 0
        run = client.recurrences.trigger(TOPIC, "daily")
        stage.application(relay, TOPIC)
        eventually(lambda: stage.client.xlen(f"timers_dead:{TOPIC}") == 1, "one is dead")
        eventually(lambda: stage.journal.starts("works"), "one is at work")
        eventually(lambda: stage.journal.ended().keys() >= {"again", run}, "others have run")
        assert (in_redis(stage.client, MARK) == 0) == sealed
        assert stage.journal.starts("works")[0].headers == {"h": MARK}
        assert len(stage.journal.starts("dies")) == 2
        assert (stage.journal.starts(run)[0].headers or {})["h"] == MARK
        found = client.get(TOPIC, "waits")
        assert found is not None
        assert (json.loads(found.payload), found.headers) == (secret, {"h": MARK})
        eventually(lambda: period(client, "again") == 1, "it is rescheduled with another payload")
        (listed,) = client.topics.dead_letters(TOPIC)
        letter = client.topics.dead_letter(TOPIC, listed.dead_id)
        assert letter is not None
        assert (json.loads(letter.payload)["note"], letter.headers) == (MARK, {"h": MARK})
        kept = client.recurrences.get(TOPIC, "daily")
        assert kept is not None
        assert (json.loads(kept.payload), kept.headers) == (secret, {"h": MARK})
        assert "as it is" in command(*put, "--target", relay.target).out
    gate.touch()
    eventually(lambda: "works" in stage.journal.ended(), "all is done")


def period(client: SyncRelayClient, timer_id: str) -> int:
    found = client.get(TOPIC, timer_id)
    return 0 if found is None else json.loads(found.payload).get("period", 0)


def test_envelopes_that_were_moved_are_never_delivered(stage: Stage) -> None:
    """Somebody with access to Redis swaps the contents of two timers, copies one into another topic, and
    changes one: all of them die unread, and the others are delivered."""
    relay = stage.relay(settings=sealing(keyring(stage, "k1")))
    producer = stage.producer(relay)
    for timer_id in ("a", "b", "changed", "whole"):
        producer.schedule(TOPIC, timer_id, {}, delay=3600)
    producer.schedule("other", "a", {}, delay=3600)
    key, other = f"timers_payloads:{TOPIC}", "timers_payloads:other"
    a, b, changed = cast("list[bytes]", stage.client.hmget(key, ["a", "b", "changed"]))
    stage.client.hset(key, mapping={"a": b, "b": a, "changed": changed[:-1] + bytes([changed[-1] ^ 1])})
    stage.client.hset(other, "a", a)
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        with pytest.raises(FailedPrecondition, match="'a' is sealed with key 'k1', and not for this timer"):
            client.get(TOPIC, "a")
        for topic, names in ((TOPIC, ("a", "b", "changed", "whole")), ("other", ("a",))):
            for timer_id in names:
                client.run_timer(topic, timer_id)
        stage.application(relay, [TOPIC, "other"])
        eventually(lambda: "whole" in stage.journal.ended(), "the whole one is delivered")
        eventually(lambda: stage.client.xlen("timers_dead:other") == 1, "the copy is dead")
        eventually(lambda: stage.client.xlen(f"timers_dead:{TOPIC}") == 3, "three are dead")
        letters = list(client.topics.dead_letters(TOPIC))
        assert {each.timer_id for each in letters} == {"a", "b", "changed"}
        assert {each.reason for each in letters} == {"unreadable"}
        with pytest.raises(FailedPrecondition, match="and not for this timer"):
            client.topics.dead_letter(TOPIC, letters[0].dead_id)
    _, fields = cast("list[tuple[bytes, dict[bytes, bytes]]]", stage.client.xrange(f"timers_dead:{TOPIC}"))[0]
    assert fields[b"error"].startswith(b"the content is sealed with key 'k1', and not for this timer")
    assert {event.timer_id for event in stage.journal.events("start")} == {"whole"}
    undeliverable = 'relay_timers_undeliverable_total{topic="orders"} 3.0'
    eventually(lambda: undeliverable in relay.metrics(), "they are counted once Redis has answered")


@pytest.mark.slow
def test_a_missing_key_puts_timers_aside_until_it_is_there(stage: Stage) -> None:
    """The relay's keyring loses the key of what waits, and gets it back: nothing is delivered meanwhile,
    nothing dies, no attempt counts, and what is sealed with the other key goes on."""
    file = keyring(stage, "k1")
    relay = stage.relay(settings=sealing(file, RELAY_DEFAULTS__MAX_CLAIMS="2"))
    producer = stage.producer(relay)
    producer.schedule_many(TOPIC, [f"old-{n}" for n in range(20)], {})
    keyring(stage, "k2")
    eventually(lambda: relay.said("the keyring has changed") == 1, "the new key is there")
    application = stage.application(relay, TOPIC)
    producer.schedule(TOPIC, "new", {})
    eventually(lambda: "new" in stage.journal.ended(), "others go on")
    eventually(lambda: put_aside(relay) >= 80, "each was tried a few times")
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        with pytest.raises(FailedPrecondition, match="'k1', which the keyring lacks"):
            client.get(TOPIC, "old-0")
        assert list(client.topics.dead_letters(TOPIC)) == []
        assert {each.attempts for each in client.list(TOPIC)} == {0}
    keyring(stage, "k2", "k1")
    stage.wait_empty(TOPIC)
    assert {event.attempt for event in stage.journal.events("start")} == {1}
    assert len(stage.journal.ended()) == 21
    assert relay.said("timers are put aside") == 1
    assert application.running
    prompt = in_time(relay)
    names = (f"again-{n}" for n in count())

    def comes_in_time() -> bool:
        producer.schedule(TOPIC, next(names), {})
        return in_time(relay) > prompt

    eventually(comes_in_time, "the relay leaves no timers to others any more, for a second each", 30.0)


def in_time(relay: Relay) -> int:
    """How many timers came less than half a second late."""
    found = re.search(r'relay_lateness_seconds_bucket\{le="0.5",topic="orders"\} (\d+)', relay.metrics())
    return int(found[1]) if found else 0


def test_a_bad_keyring_keeps_the_old_one_and_refuses_a_start(stage: Stage) -> None:
    """Loudly in both cases, and no key is shown."""
    file = keyring(stage, "k1")
    relay = stage.relay(settings=sealing(file))
    put_file(file, "write: k9\nkeys: {}")
    eventually(lambda: relay.said("changed files can't be used; those before stay in use") == 1, "it says so")
    refusals = 'relay_files_refused_total{setting="sealing.keyring"} 1.0'
    eventually(lambda: refusals in relay.metrics(), "and counts it")
    stage.producer(relay).schedule(TOPIC, "a", {})
    stage.application(relay, TOPIC)
    eventually(lambda: "a" in stage.journal.ended(), "it still seals and opens")
    refused = command("serve", settings=sealing(file))
    assert refused.code != 0
    assert "sealing.keyring" in refused.err
    assert "keys: must map ids to keys" in refused.err


@pytest.mark.slow
def test_plain_timers_of_a_topic_that_became_sealed_are_delivered(stage: Stage) -> None:
    """And so are sealed ones of a topic that became plain."""
    plain = stage.relay("plain", QUICK)
    stage.producer(plain).schedule(TOPIC, "from before", {})
    plain.terminate()
    file = keyring(stage, "k1")
    relay = stage.relay("sealing", sealing(file))
    stage.producer(relay).schedule("other", "sealed", {})
    stage.application(relay, TOPIC)
    eventually(lambda: "from before" in stage.journal.ended(), "it is delivered")
    opening = stage.relay("opening", {**QUICK, "RELAY_SEALING__KEYRING": str(file)})
    stage.application(opening, "other")
    eventually(lambda: "sealed" in stage.journal.ended(), "it is delivered")


@pytest.mark.slow
def test_a_relay_without_the_key_leaves_timers_to_one_that_has_it(stage: Stage) -> None:
    """Of two relays one lacks the key, and claims first: it has put all timers aside before the other one
    runs. From then on both wake for the same timers, and all of them come soon, though half of the partitions
    were the lacking one's to poll first."""
    more = {"RELAY_DEFAULTS__PARTITIONS": "4"}
    able = stage.relay("able", sealing(keyring(stage, "k1"), **more))
    lacking = stage.relay("lacking", sealing(keyring(stage, "k2", name="other"), **more))
    stage.application(able, TOPIC, name="first")
    stage.application(lacking, TOPIC, name="second")
    stage.producer(able).schedule_many(TOPIC, [f"t-{n}" for n in range(50)], {}, delay=8.0)
    with able.frozen():  # before they are due, on a busy machine, too
        eventually(lambda: put_aside(lacking) >= 50, "all were put aside")
        assert not stage.journal.ended()
    eventually(lambda: len(stage.journal.ended()) == 50, "all are delivered", 40.0)
    assert {event.attempt for event in stage.journal.events("start")} == {1}


def put_aside(relay: Relay) -> int:
    """How many timers the relay has put aside, some of them several times."""
    found = re.search(r'relay_timers_parked_total\{topic="orders"\} (\d+)', relay.metrics())
    return int(found[1]) if found else 0


@pytest.mark.slow
def test_keys_are_rotated_while_relays_work(stage: Stage) -> None:
    """Timers, recurrences and dead letters get the new key, beside a relay that delivers and cancels the same
    timers. Then the old key may go: all that was left is delivered, once, and the rest can be read."""
    file = keyring(stage, "k1")
    settings = {**sealing(file), "RELAY_REDIS__URL": stage.server.url}
    relay = stage.relay(settings=sealing(file))
    producer = stage.producer(relay)
    gone = [f"gone-{n}" for n in range(50)]
    producer.schedule_many(TOPIC, gone, {}, delay=3600)
    producer.schedule_many(TOPIC, [f"now-{n}" for n in range(400)], {}, spread=3.0)
    producer.schedule_many(TOPIC, [f"later-{n}" for n in range(400)], {}, delay=3600)
    producer.schedule(TOPIC, "dies", {"nack_until": 9})
    put = ("recur", "put", TOPIC, "daily", "--every", "1d", "--payload", "{}", "--target", relay.target)
    assert command(*put).code == 0
    stage.application(relay, TOPIC)
    eventually(lambda: stage.client.xlen(f"timers_dead:{TOPIC}") == 1, "one is dead")
    keyring(stage, "k2", "k1")
    eventually(lambda: relay.said("the keyring has changed") == 1, "the relay seals with the new key")
    status = command("seal", "status", TOPIC, settings=settings)
    assert "recurrences: 1 with key 'k1'" in status.out
    assert "dead letters: 1 with key 'k1'" in status.out
    with ThreadPoolExecutor(1) as beside:
        cancelling = beside.submit(lambda: [producer.cancel(TOPIC, name) for name in gone])
        rotated = command("seal", "rotate", TOPIC, "--json", settings=settings)
        assert all(cancelling.result())
    assert (rotated.code, rotated.documents[0]["closed"]) == (0, {})
    assert rotated.documents[0]["sealed"]["timers"] >= 400
    assert rotated.documents[0]["sealed"]["dead_letters"] == 1
    keys = command("seal", "status", TOPIC, "--json", settings=settings).documents[0]["keys"]
    assert {each["key"] for kind in keys.values() for each in kind} == {"k2"}
    keyring(stage, "k2")
    eventually(lambda: relay.said("the keyring has changed") == 2, "the old key is gone")
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        for n in range(400):
            client.run_timer(TOPIC, f"later-{n}")
        (listed,) = client.topics.dead_letters(TOPIC)
        assert client.topics.dead_letter(TOPIC, listed.dead_id)
        assert client.recurrences.get(TOPIC, "daily")
    due = {f"{kind}-{n}" for kind in ("now", "later") for n in range(400)}
    eventually(lambda: stage.journal.ended().keys() >= due, "all are delivered")
    assert {stage.journal.ended()[name] for name in due} == {1}
    assert not set(gone) & {event.timer_id for event in stage.journal.events("start")}


def test_rotation_is_refused_where_it_makes_no_sense(stage: Stage) -> None:
    """A topic that the settings don't seal, and settings without a keyring."""
    settings = {"RELAY_REDIS__URL": stage.server.url}
    refused = command("seal", "rotate", TOPIC, settings=settings)
    assert (refused.code, "sealing.keyring: names no file" in refused.err) == (2, True)
    refused = command(
        "seal", "rotate", TOPIC, settings={**settings, "RELAY_SEALING__KEYRING": str(keyring(stage, "k1"))}
    )
    assert (refused.code, "'orders' is not sealed by the settings" in refused.err) == (2, True)
    assert command("seal", "status", TOPIC, settings=settings).out.count("none") == 4
