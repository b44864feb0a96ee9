"""The walk from Postgres to an audit, each command as its reader types it: a real Postgres, S3's protocol, a
relay with an application, and a cluster of one master and two workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs import pages
from tests.missing import need
from tests.pipeline.in_session import InSession
from tests.pipeline.object_store import CREDENTIALS, REGION
from tests.pipeline.small_jvm import QUICK, STORED
from tests.postgres import postgres
from tests.servers import free_port
from tests.worlds.relay.processes import free_address
from tests.worlds.relay.stage import Stage

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.checkout, pytest.mark.slow, pytest.mark.timeout(900)]

BUCKET = "shop"


@pytest.mark.chaos
def test_the_walk_goes_as_the_page_shows(
    spark: SparkSession, stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The local jobs find the suite's session, which is told of the page's store; the sweep starts a driver
    of its own, by what the page says."""
    need("curl")
    grpc, store, web = free_address(), free_address(), free_port()
    quick = {"JAVA_TOOL_OPTIONS": QUICK} if STORED else {}
    with postgres() as database:
        settings = {
            "RELAY_TARGET": grpc,
            "RELAY_GRPC__LISTEN": grpc,
            "RELAY_HTTP__LISTEN": free_address(),
            "RELAY_API__LISTEN": free_address(),
            "PGHOST": str(database.folder),
            "PGUSER": "postgres",
            "SPARK_LOCAL_IP": "127.0.0.1",
            **quick,
        }
        instead = {
            "127.0.0.1:6379": f"127.0.0.1:{stage.server.port}",
            "127.0.0.1:5000": store,
            "--port 5000": f"--port {store.rpartition(':')[2]}",
            "--port 7077 --webui-port 8080": f"--port {(master := free_port())} --webui-port {web}",
            "127.0.0.1:7077": f"127.0.0.1:{master}",
            "psql ": f"{database.tools}/psql ",
        }
        terminal = InSession(tmp_path, settings, instead, monkeypatch)
        told_of(spark, store)
        try:
            terminal.replay(pages.run_by(__file__), pages.LAKE_WALK)
        finally:
            terminal.close()


def told_of(spark: SparkSession, store: str) -> None:
    """Let the session know the page's bucket by its own options, beside other tests' store."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    identity, secret = CREDENTIALS.values()
    options = {
        "endpoint": f"http://{store}",
        "endpoint.region": REGION,
        "path.style.access": "true",
        "access.key": identity,
        "secret.key": secret,
    }
    for name, value in options.items():
        conf.set(f"fs.s3a.bucket.{BUCKET}.{name}", value)
