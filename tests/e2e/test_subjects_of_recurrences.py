"""Erasure of what comes again and again: a recurrence ends with its subject, and what waits of it dies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay.client import FailedPrecondition, InvalidArgument, SyncRelayClient
from tests.e2e.test_sealing import TOPIC, in_redis, keyring, sealing
from tests.e2e.test_subjects import ANN, BEN, post
from tests.worlds.relay.processes import command
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import PATIENCE, eventually

SECRET = "confidential-0xd15c105e"


@pytest.mark.slow
@pytest.mark.usefixtures("one_try")
def test_a_recurrence_of_a_forgotten_subject(stage: Stage, tmp_path: Path) -> None:
    """Four of one subject, by all ways to put one, and one of another. Each has an occurrence. Once the first
    subject is forgotten, its recurrences end with their next instant, counted as `forgotten`; an occurrence
    that waits dies; nothing can be made of them but another recurrence or none; and a relay starts beside
    a file that still names the subject."""
    stage.redis(config={"rdbcompression": "no"})
    file = tmp_path / "recurrences.yaml"
    entry = {"topic": TOPIC, "recurrence_id": "filed", "rule": {"every_sec": 3600}}
    said = {**entry, "message": {"note": SECRET}, "seal_with": ANN}
    file.write_text(json.dumps([said]), encoding="utf-8")
    settings = sealing(keyring(stage, "k1"), RELAY_RECURRENCES__FILE=str(file))
    relay = stage.relay(settings=settings)
    payload = json.dumps({"note": SECRET})
    typed = ("recur", "put", TOPIC, "typed", "--every", "1h", "--payload", payload)
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        for name, who in (("called", ANN), ("ben's", BEN)):
            client.recur(
                name, topic=TOPIC, every=1.0, overlap="allow", payload=payload.encode(), seal_with=who
            )
        assert command(*typed, "--seal-with", ANN, "--target", relay.target).code == 0
        body = {"rule": {"every_sec": 3600}, "message": {"note": SECRET}, "seal_with": ANN}
        path = f"/v1/topics/{TOPIC}/recurrences/posted"
        assert post(relay, path, body, "PUT")["recurrence"]["spec"]["seal_with"] == ANN
        stage.application(relay, TOPIC)
        names = ["called", "ben's", "typed", "posted", "filed"]
        runs = {each: client.recurrences.trigger(TOPIC, each) for each in names}
        eventually(lambda: stage.journal.ended().keys() >= set(runs.values()), "each has come")
        whole = client.recurrences.get(TOPIC, "typed")
        assert whole is not None
        assert (whole.seal_with, whole.payload) == (ANN, payload.encode())
        assert "as it is" in command(*typed, "--seal-with", ANN, "--target", relay.target).out
        (shown,) = command("recur", "get", TOPIC, "typed", "--json", "--target", relay.target).documents
        assert shown["seal_with"] == ANN
        assert [in_redis(stage.client, each) for each in (SECRET, ANN, BEN)] == [0, 0, 0]
        client.topics.pause(TOPIC)
        waits = client.recurrences.trigger(TOPIC, "typed")
        client.topics.forget_subject(TOPIC, ANN)
        client.topics.resume(TOPIC)
        eventually(lambda: has_ended(client, "called"), "it has ended")
        ended = client.recurrences.get(TOPIC, "called")
        assert ended is not None
        assert (ended.forgotten, ended.payload, ended.seal_with) == (True, b"", "")
        assert ended.left_out["forgotten"] >= 1
        eventually(lambda: dead(client).get(waits) == "forgotten", "what waited is dead")
        for act in (client.recurrences.pause, client.recurrences.trigger):
            with pytest.raises(FailedPrecondition, match=r"was forgotten, and it ends; delete it"):
                act(TOPIC, "typed")
        stands = {each.recurrence_id: each.forgotten for each in client.recurrences.list(TOPIC)}
        assert stands == {each: each != "ben's" for each in names}
        refused = command(*typed, "--seal-with", ANN, "--target", relay.target)
        assert (refused.code, "was forgotten, for good" in refused.err) == (2, True)
        assert ANN not in refused.err
        empty = client.recur("posted", topic=TOPIC, every=3600.0)  # as the other one reads now
        assert (empty.result.value, empty.forgotten, empty.next_time is not None) == ("replaced", False, True)
        assert client.recurrences.delete(TOPIC, "typed").deleted
        before = len(stage.journal.ended())
        eventually(lambda: len(stage.journal.ended()) > before, "the other subject's goes on")
    assert 'left_out_total{reason="forgotten",topic="orders"}' in relay.metrics()
    relay.terminate()
    relay.start()
    told = "a recurrence is not put, since its subject was forgotten: remove it from the file"
    assert relay.said(told) == 1
    assert ANN not in json.dumps(relay.lines())


def has_ended(client: SyncRelayClient, name: str) -> bool:
    found = client.recurrences.get(TOPIC, name)
    return found is not None and found.next_time is None


def dead(client: SyncRelayClient) -> dict[str, str]:
    return {each.timer_id: each.reason for each in client.topics.dead_letters(TOPIC)}


def test_a_recurrence_with_a_subject_needs_a_sealed_topic(stage: Stage) -> None:
    """It is refused by the field's name."""
    relay = stage.relay()
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        with pytest.raises(InvalidArgument, match="set sealing for the topic") as refused:
            client.recur("r", topic=TOPIC, every=3600.0, seal_with=ANN)
        assert refused.value.field == "seal_with"
        assert client.recurrences.get(TOPIC, "r") is None
