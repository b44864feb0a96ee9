"""The job of the page that makes timers of Kafka's messages: a real broker, the job as spark-submit runs it,
its checkpoint on S3's protocol."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pyspark
import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from tests.docs import pages
from tests.pipeline import doomed
from tests.pipeline.kafka import Kafka
from tests.pipeline.kafka_jars import of_a_driver
from tests.pipeline.object_store import CREDENTIALS, REGION, Gate, ObjectStore
from tests.pipeline.small_jvm import SMALL_AND_QUICK, options
from tests.pipeline.standalone import SPARK_HOME
from tests.pipeline.streams import end, live, payload
from tests.servers import RunningServer, start_server
from tests.worlds.relay.processes import ROOT, environment
from tests.worlds.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.checkout, pytest.mark.slow, pytest.mark.timeout(1800)]

TOPIC = "order-reminders"
CHECKPOINT = f"{TOPIC}/commits/"
SOON, LATER = "2090-01-01T00:00:00Z", "2090-02-01T00:00:00Z"
SOON_S, LATER_S = 3786912000.0, 3789590400.0
COUNT = 100
PATIENT = {"api_version_auto_timeout_ms": 60_000, "request_timeout_ms": 60_000}
"""For how long a client waits for the broker."""


class Job:
    """The page's job, on a broker, a server and a store of the test's own."""

    def __init__(self, place: Path, server: RunningServer, store: ObjectStore, broker: Kafka) -> None:
        self.at, self._server, self._store, self._place = broker.at, server, store, place
        self._driver: subprocess.Popen[bytes] | None = None
        (self.program,) = (each.text for each in pages.run_by(__file__) if each.language == "python")
        (self.command,) = (each.text for each in pages.run_by(__file__) if each.language == "console")

    def start(self) -> None:
        """Type the page's command: its master and its hosts are ours, its package is fetched already."""
        (self._place / "reminders.py").write_text(self.program.replace("kafka:9092", self.at))
        words = shlex.split(self.command.removeprefix("$ "))
        package = words.index("--packages")
        assert words[package + 1].rpartition(":")[2] == pyspark.__version__
        words[package : package + 2] = ["--jars", ",".join(map(str, of_a_driver()))]
        words[words.index("--master") + 1] = "local[2]"
        conf = options({"spark.driver.memory": "512m", **SMALL_AND_QUICK})
        settings = {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": self._store.url,
            "AWS_REGION": REGION,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "RELAY_REDIS__URL": self._server.url,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_DIRS": str(self._place / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with (self._place / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(
                [SPARK_HOME / "bin" / words[0], *conf, *self._store.conf, *words[1:]],
                cwd=self._place,
                env=environment(settings),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def until(self, condition: Any, what: str) -> None:
        """Wait for something that the driver does."""

        def there() -> bool:
            assert self._driver is not None
            assert self._driver.poll() is None, (self._place / "driver.log").read_text()[-5000:]
            return bool(condition())

        eventually(there, what, doomed.LONGEST)

    def kill(self) -> None:
        if self._driver is not None and psutil.pid_exists(self._driver.pid):
            doomed.end(self._driver.pid)
            self._driver.wait(60)


@pytest.fixture
def job(tmp_path: Path, object_store: ObjectStore, server: RunningServer) -> Iterator[Job]:
    place = tmp_path / "kafka"
    place.mkdir()
    with Kafka(place) as broker:
        job = Job(tmp_path, server, object_store, broker)
        yield job
        job.kill()


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with start_server("valkey") as server:
        yield server


def send(job: Job, *messages: tuple[str, int, dict[str, Any] | None]) -> None:
    """Put messages into the topic: key, partition, value. All are there when this returns."""
    producer = KafkaProducer(bootstrap_servers=job.at, **PATIENT)
    sent = [
        producer.send(
            TOPIC, key=key.encode(), partition=at, value=None if value is None else json.dumps(value).encode()
        )
        for key, at, value in messages
    ]
    for each in sent:
        each.get(60)
    producer.close()


def change(op: str, version: int, at: str | None = None) -> dict[str, Any]:
    return {"op": op, "version": version, "remind_at": at, "text": f"version {version}"}


def first_messages() -> list[tuple[str, int, Any]]:
    """What the first batch has: timers; one that is moved; late rows in a partition and in two; a cancel in
    front of an older row; and one that is no change."""
    return [
        *((f"t{n}", n % 2, change("schedule", 1, SOON)) for n in range(COUNT)),
        ("moved", 0, change("schedule", 1, SOON)),
        ("moved", 0, change("move", 2, LATER)),
        ("cancelled", 1, change("schedule", 1, SOON)),
        ("cancelled", 1, change("cancel", 2)),
        ("late", 0, change("schedule", 3, LATER)),
        ("late", 0, change("schedule", 2, SOON)),
        ("apart", 0, change("schedule", 2, LATER)),
        ("apart", 1, change("schedule", 1, SOON)),
        ("gone", 1, change("cancel", 2)),
        ("gone", 0, change("schedule", 1, SOON)),
        ("deleted", 0, None),
        ("odd", 1, "no change"),
    ]


LATER_MESSAGES = [
    ("t0", 1, change("schedule", 1, LATER)),  # a producer's retry, elsewhere; the timer has ended
    ("t2", 0, change("move", 2, LATER)),
    ("t4", 0, change("cancel", 2)),
    ("gone", 0, change("schedule", 1, SOON)),
    ("new", 0, change("schedule", 1, SOON)),
]


@pytest.mark.chaos
def test_a_driver_that_dies_between_a_load_and_its_checkpoint(
    job: Job, object_store: ObjectStore, server: RunningServer
) -> None:
    """The race: a batch is in Redis, and Spark has not noted so. Meanwhile timers of it end, and one is
    moved. Started again the driver has the batch once more, and must do nothing of it. What comes next
    is done, and late rows lose."""
    KafkaAdminClient(bootstrap_servers=job.at, **PATIENT).create_topics([NewTopic(TOPIC, 2, 1)])
    send(job, *first_messages())
    object_store.gate = gate = Gate("PUT", f"{CHECKPOINT}.0.")
    job.start()
    job.until(gate.reached.is_set, "the first batch is loaded, and is about to be noted")
    everything = {f"t{n}": SOON_S for n in range(COUNT)}
    everything |= {"moved": LATER_S, "late": LATER_S, "apart": LATER_S}
    assert live(server, TOPIC) == everything
    assert payload(server, TOPIC, "moved").endswith(b"version 1")
    assert not [name for name in object_store.names(CHECKPOINT) if name.endswith("/0")]
    job.kill()

    ended = ["t0", "t1", "moved", "apart"]
    for name in ended:
        end(server, TOPIC, name)
        del everything[name]
    with server.client() as client:
        client.zadd(f"timers_timeline:{TOPIC}", {"t3": LATER_S})
    send(job, *LATER_MESSAGES)
    job.start()
    job.until(lambda: f"{CHECKPOINT}1" in object_store.names(CHECKPOINT), "the second batch is noted")
    gate.opened.set()
    del everything["t4"]
    everything |= {"t2": LATER_S, "t3": LATER_S, "new": SOON_S}
    assert live(server, TOPIC) == everything
    (rejects,) = (name for name in object_store.names("rejects/") if name.endswith(".parquet"))
    assert "/batch_id=0/" in rejects, "the one that is no change, once"
