"""Erasure: what was scheduled for a subject is unreadable for good once the subject is forgotten."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from relay.client import InvalidArgument, NewTimer, NotFound, SyncRelayClient
from relay.core.trust.sealing import DoesNotOpen, subject_id
from relay.store.codec.contents import Contents
from relay.store.codec.subjects import SubjectKeys, subjects_in
from relay.trust.keyring import FileKeyring
from tests.e2e.test_sealing import QUICK, TOPIC, keyring, sealing
from tests.worlds.relay.processes import Relay, command
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import PATIENCE, eventually

ANN, BEN = "ann@example.org", "ben@example.org"


def post(relay: Relay, path: str, body: Any, method: str = "POST") -> Any:
    request = urllib.request.Request(
        f"http://{relay.api}{path}",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read())


@pytest.mark.slow
@pytest.mark.usefixtures("one_try")
def test_one_subject_is_forgotten_and_the_other_is_not(stage: Stage) -> None:
    """Timers of two subjects, scheduled through all ways there are: one by one, in a batch, by columns, over
    HTTP and by a command. One dead letter of each is there, and the keyring's key is changed meanwhile. Once
    the first is forgotten, each of its timers dies without an attempt, and all of the other's are delivered.
    What is left of the first opens with no key of the keyring, beside all that a snapshot would have."""
    file = keyring(stage, "k1")
    relay = stage.relay(settings=sealing(file))
    late = stage.relay("late", settings=sealing(file))
    producer, http = stage.producer(relay), f"/v1/topics/{TOPIC}"
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        for who, name in ((ANN, "ann"), (BEN, "ben")):
            body = json.dumps({"nack_until": 9}).encode()
            client.schedule(TOPIC, body, delay=0.0, timer_id=f"{name}-dies", seal_with=who)
            client.schedule(TOPIC, b"{}", delay=3600, timer_id=f"{name}-one", seal_with=who)
            columns = [
                NewTimer(
                    topic=TOPIC, payload=b"{}", delay=3600, timer_id=f"{name}-columns-{n}", seal_with=who
                )
                for n in range(3)
            ]
            spec = NewTimer(
                topic=TOPIC,
                payload=b"{}",
                delay=3600,
                expire_after=9999,
                timer_id=f"{name}-batch",
                seal_with=who,
            )
            told = client.schedule_batch([*columns, spec])
            assert [each.error for each in told] == [None] * 4
            timer = {"delay_sec": 3600, "timer_id": f"{name}-http", "message": {}, "seal_with": who}
            assert post(relay, f"{http}/timers", timer)["sealed_with_subject"] is True
            typed = ("schedule", TOPIC, "--in", "1h", "--id", f"{name}-typed", "--seal-with", who)
            assert command(*typed, "--payload", "{}", "--target", relay.target).code == 0
        producer.schedule(TOPIC, "nobody's", {}, delay=3600)
        mixed = [{"delay_sec": 3600, "timer_id": "gone", "seal_with": who} for who in ("", BEN, "")]
        told = post(relay, f"{http}/timers:batch", {"timers": mixed})["results"]
        assert [each["scheduled"].get("sealed_with_subject") for each in told] == [None, True, None]
        client.cancel(TOPIC, "gone")
        stage.application(relay, TOPIC)
        eventually(lambda: stage.client.xlen(f"timers_dead:{TOPIC}") == 2, "both are dead")
        keyring(stage, "k2", "k1")
        eventually(lambda: relay.said("the keyring has changed") == 1, "there is another key")
        settings = {**sealing(file), "RELAY_REDIS__URL": stage.server.url}
        assert "subjects: 2 with key 'k1'" in command("seal", "status", TOPIC, settings=settings).out
        assert command("seal", "rotate", TOPIC, settings=settings).code == 0
        status = command("seal", "status", TOPIC, settings=settings).out
        assert "subjects: 2 with key 'k2'" in status
        assert "timers: 1 with key 'k2', 14 with subjects' keys" in status

        held = stage.client.hgetall(f"timers_payloads:{TOPIC}")
        letters = {each.timer_id: each.dead_id for each in client.topics.dead_letters(TOPIC)}
        with pytest.raises(NotFound, match="knows of no such subject"):
            client.topics.forget_subject(TOPIC, "somebody else")
        refused = command("seal", "forget", TOPIC, ANN, "--target", relay.target)
        assert (refused.code, "--yes" in refused.err) == (2, True)
        forgotten = command(
            "seal", "forget", TOPIC, ANN, "--yes", "--note", "asked", "--target", relay.target
        )
        assert (forgotten.code, ANN in forgotten.out) == (0, False)
        again = post(late, f"{http}:forget-subject", {"subject": ANN})
        assert again["forget_time"][:19] in forgotten.out.replace("+00:00", "Z")
        assert client.topics.forget_subject(TOPIC, ANN).isoformat()[:19] == again["forget_time"][:19]

        with pytest.raises(InvalidArgument, match=r"seal_with.*was forgotten, for good") as at_seal:
            client.schedule(TOPIC, b"{}", delay=3600, seal_with=ANN)
        assert ANN not in str(at_seal.value)
        for name in [each for each in letters if each.startswith("ben")]:
            assert client.topics.dead_letter(TOPIC, letters[name]) is not None
        kinds = ("one", "columns-0", "columns-1", "columns-2", "batch", "http", "typed")
        for kind in kinds:
            client.run_timer(TOPIC, f"ann-{kind}")
            client.run_timer(TOPIC, f"ben-{kind}")
        client.run_timer(TOPIC, "nobody's")
        come = {"nobody's", *(f"ben-{kind}" for kind in kinds)}
        eventually(lambda: stage.journal.ended().keys() >= come, "ben's are delivered")
        eventually(lambda: stage.client.xlen(f"timers_dead:{TOPIC}") == 9, "ann's die")
        began = {event.timer_id for event in stage.journal.events("start")}
        assert began == {*come, "ann-dies", "ben-dies"}
        dead = [each for each in client.topics.dead_letters(TOPIC) if each.reason == "forgotten"]
        assert {each.timer_id[:4] for each in dead} == {"ann-"}
        assert {each.attempts for each in dead} <= {0, 1}
        died = 'relay_timers_dead_total{reason="forgotten",topic="orders"} 7'
        eventually(lambda: died in relay.metrics(), "they are counted once Redis has answered")
        assert relay.said("timer can't be delivered") == 0
    unreadable_with_all_keys(stage, file, held)
    people = command("journal", "tail", "--people", "--json", settings=settings).documents
    said = [each for each in people if each["method"] == "ForgetSubject"]
    things = [f"subject {subject_id(TOPIC, name)}" for name in ("somebody else", ANN)]
    assert {(each["verb"], each["thing"]) for each in said} == {("admin", each) for each in things}
    assert ANN not in json.dumps(people)
    assert ANN not in json.dumps([*relay.lines(), *late.lines()])
    assert "subjects: 1 forgotten, 1 with key 'k2'" in command("seal", "status", TOPIC, settings=settings).out


def test_subjects_of_a_topic_that_moves(stage: Stage) -> None:
    """Keys of subjects stay where they are while the topic gets four partitions, and one again. What was
    sealed before, between and behind the moves is delivered, but for the subject that was forgotten."""
    relay = stage.relay(settings=sealing(keyring(stage, "k1")))
    kinds = ("before", "between", "behind")
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:

        def schedule(kind: str, *who: str) -> None:
            for subject in who:
                client.schedule(TOPIC, b"{}", delay=3600, timer_id=f"{subject[:3]}-{kind}", seal_with=subject)

        schedule("before", ANN, BEN)
        client.topics.reshard(TOPIC, 4)
        schedule("between", ANN, BEN)
        assert len(stage.client.hgetall(f"timers_leases:{TOPIC}#subjects")) == 2
        client.topics.forget_subject(TOPIC, ANN)
        client.topics.reshard(TOPIC, 1)
        schedule("behind", BEN)
        with pytest.raises(InvalidArgument, match="was forgotten"):
            schedule("behind", ANN)
        stage.application(relay, TOPIC)
        for kind in kinds:
            client.run_timer(TOPIC, f"ben-{kind}")
        for kind in kinds[:2]:
            client.run_timer(TOPIC, f"ann-{kind}")
        eventually(lambda: len(stage.journal.ended()) == 3, "ben's are delivered")
        eventually(lambda: stage.client.xlen(f"timers_dead:{TOPIC}") == 2, "ann's die")
        assert set(stage.journal.ended()) == {f"ben-{kind}" for kind in kinds}
        assert {each.reason for each in client.topics.dead_letters(TOPIC)} == {"forgotten"}


def unreadable_with_all_keys(stage: Stage, file: Path, held: Any) -> None:
    """Somebody has the whole keyring, what Redis has now, and the contents that a snapshot kept."""
    contents = Contents(FileKeyring(file))
    keys = contents.subjects
    assert isinstance(keys, SubjectKeys)
    hashed: Any = stage.client.hgetall(f"timers_leases:{TOPIC}#subjects")
    keys.learn(TOPIC, [each.decode() for each in hashed], list(hashed.values()))
    found: dict[str, set[str]] = {}
    for name, each in held.items():
        if subjects_in([each]):
            found.setdefault(name[:3].decode(), set()).add(why_closed(contents, name.decode(), each))
    assert found == {"ann": {"sealed for a subject that was forgotten"}, "ben": {""}}


def why_closed(contents: Contents, timer_id: str, stored: bytes) -> str:
    try:
        contents.opened(TOPIC, timer_id, stored)
    except DoesNotOpen as failure:
        return str(failure)
    return ""


def test_a_subject_needs_a_sealed_topic(stage: Stage) -> None:
    """Elsewhere every way refuses it by the field's name and stores nothing; a batch's others are stored."""
    relay = stage.relay(settings=QUICK)
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        with pytest.raises(InvalidArgument, match="set sealing for the topic") as refused:
            client.schedule(TOPIC, b"", delay=3600, seal_with=ANN)
        assert refused.value.field == "seal_with"
        few = [NewTimer(topic=TOPIC, payload=b"", delay=3600, seal_with=who) for who in (ANN, "")]
        for batch in (few, [*few, NewTimer(topic="other", payload=b"", delay=3600)]):
            told = [each.error for each in client.schedule_batch(batch)]
            assert isinstance(told[0], InvalidArgument)
            assert (told[0].field, *told[1:]) == ("seal_with", *[None] * (len(batch) - 1))
