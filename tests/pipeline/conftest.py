"""One Spark session for the suite, two cores; without Spark (in .venv) there is nothing to collect here."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.keyspace import Keyspace
    from tests.pipeline.cold_world import ColdWorld
    from tests.pipeline.object_store import ObjectStore
    from tests.pipeline.standalone import Cluster
    from tests.servers import RunningServer

if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]  # `make test-pipeline` runs them in a venv of their own


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in a hook of its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker have all tests that use the cluster, so that it is started once. And give Spark time: a
    dozen queries take minutes on a busy machine, and what hangs is found all the same."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("cluster"))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1200))


PLANNING = Path(__file__).with_name("planning")
"""What the Python processes of the suite's session import first."""


@pytest.fixture(scope="session", autouse=True)
def unhurried() -> Iterator[None]:
    """Jobs are patient with Redis, in this process and in those that inherit its variables."""
    from relay.store.server import line
    from tests.pipeline.unhurried import UNHURRIED, WRITE_TTL

    with pytest.MonkeyPatch.context() as during:
        during.setattr(line, "WRITE_TTL", WRITE_TTL)
        for name, value in UNHURRIED.items():
            during.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The suite's session, `local[2]`. Hundreds of tests leave tables and queries behind that Delta and Spark
    remember: with the memory that jobs have, the last ones would spend their time collecting garbage."""
    place: Path = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_LOCAL_DIRS"] = str(place / "local")
    with pytest.MonkeyPatch.context() as during:
        during.setenv("PYTHONPATH", str(PLANNING), prepend=os.pathsep)
        started = _started(place)
    yield started
    started.stop()


def _started(place: Path) -> SparkSession:
    from relay.pipeline.spark.session import session
    from tests.pipeline.small_jvm import SMALL_AND_QUICK

    return session(
        "tests",
        master="local[2]",
        conf={
            **SMALL_AND_QUICK,
            "spark.driver.memory": "1500m",
            "spark.sql.ui.retainedExecutions": "50",
            "spark.python.daemon.module": "tests.pipeline.prompt_workers",
            "spark.sql.warehouse.dir": str(place / "warehouse"),
        },
    )


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A standalone master with two workers, for all tests that need one."""
    from tests.pipeline.standalone import Cluster

    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """For sessions that tests start for themselves."""
    from tests.pipeline.object_store import ObjectStore

    with ObjectStore() as store:
        yield store


@pytest.fixture(scope="session")
def store(spark: SparkSession, object_store: ObjectStore) -> ObjectStore:
    """The same, known to the suite's session, with the credentials that others find in the environment."""
    from tests.pipeline.object_store import CREDENTIALS

    java: Any = spark.sparkContext._jsc
    secrets = zip(("fs.s3a.access.key", "fs.s3a.secret.key"), CREDENTIALS.values(), strict=True)
    for name, value in {**object_store.hadoop, **dict(secrets)}.items():
        java.hadoopConfiguration().set(name, value)
    return object_store


@pytest.fixture
def topic(keyspace: Keyspace) -> str:
    """One that may get several partitions."""
    name = keyspace.topic("orders")
    keyspace.allow(f"*{name}*")
    return name


@pytest.fixture
def world(
    spark: SparkSession, valkey: RunningServer, tmp_path: Path, keyspace: Keyspace
) -> Iterator[ColdWorld]:
    """A cold store of the test's own, and a topic on the shared server."""
    from tests.pipeline.cold_world import ColdWorld

    world = ColdWorld(spark, valkey, tmp_path / "cold", keyspace.topic())
    yield world
    world.close()
