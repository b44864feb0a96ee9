"""A stream that is killed in mid-batch and goes on beside a relay that delivers: each timer comes once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from relay.store.keys import KeyNames
from tests.ghosts.slow_line import SlowLine
from tests.pipeline import doomed
from tests.pipeline.cold_world import LATE
from tests.pipeline.streams import FAR, SOON, Stream, ledger, live, row
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

TOPICS, COUNT = ("orders", "mails"), 3000
HALF = COUNT // 2
RATE = "1000"


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_a_stream_that_is_killed_and_started_again(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    """A batch has two files, a topic in each. Half of the timers are due as they arrive. The second half of
    each file does not come through to Redis, and meanwhile the stream is killed. The relay delivers those
    that have arrived; of the others some are cancelled and some moved. Started again from its checkpoint, the
    stream inserts the rest: none is delivered twice or missing, and what was cancelled or moved stays so."""
    server = stage.redis()
    relay = stage.relay()
    producer = stage.producer(relay)
    for topic in TOPICS:
        stage.application(relay, topic)
    stream = Stream(spark, server.url, tmp_path)
    for topic in TOPICS:
        due_times = ((n, SOON if n % 2 else FAR) for n in range(COUNT))
        stream.add(*(row(topic, f"{topic}-{n}", due, LATE if n >= HALF else "x") for n, due in due_times))
    with SlowLine(server.port) as line:
        line.hold(LATE)
        driver = stage.process("doomed", "tests.pipeline.doomed_stream", line.url, str(tmp_path), RATE)
        metadata = stream.checkpoint / "metadata"
        eventually(metadata.exists, "the stream has begun", doomed.LONGEST)
        query = json.loads(metadata.read_text())["id"]
        eventually(
            lambda: line.holds and all(len(ledger(server, topic, query)) >= 300 for topic in TOPICS),
            "some are inserted, and what is late is held",
            doomed.LONGEST,
        )
        doomed.kill(driver, line, server)
    first = {topic: ledger(server, topic, query) for topic in TOPICS}
    assert all(300 <= len(names) <= HALF for names in first.values()), "it was killed in mid-batch"
    due = {topic: {f"{topic}-{n}" for n in range(1, COUNT, 2)} for topic in TOPICS}
    arrived = set().union(*(first[topic] & due[topic] for topic in TOPICS))
    eventually(lambda: set(stage.journal.ended()) == arrived, "what arrived is delivered", 120.0)
    cancelled, moved = {}, {}
    for topic in TOPICS:
        living = sorted(first[topic] - due[topic])
        cancelled[topic], moved[topic] = set(living[:20]), living[20:40]
        assert all(producer.cancel(topic, name) for name in living[:20])
        producer.schedule_many(topic, moved[topic], b"", delay=7200.0)
    scores = {topic: live(server, topic) for topic in TOPICS}

    assert stream.run(files=2) == query
    everything = set().union(*due.values())
    eventually(lambda: set(stage.journal.ended()) >= everything, "all that is due is delivered", 120.0)
    eventually(lambda: not any(stage.leased(topic) for topic in TOPICS), "and committed")
    assert set(stage.journal.ended()) == everything
    assert set(stage.journal.ended().values()) == {1}, "a timer was delivered twice"
    for topic in TOPICS:
        left = live(server, topic)
        assert set(left) == {f"{topic}-{n}" for n in range(0, COUNT, 2)} - cancelled[topic]
        assert {name: left[name] for name in moved[topic]} == {n: scores[topic][n] for n in moved[topic]}

    # The next batch takes the ledger's place: it does not grow with the stream.
    stream.add(row("orders", "orders-next"))
    assert stream.run(files=2) == query
    assert ledger(server, "orders", query) == {"orders-next"}
    with server.client() as client:
        assert client.ttl(KeyNames().key("ledger", "mails", run=query)) > 0
