"""The pipeline on a Redis Cluster: its commands, with topics on every node."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from relay.cli.commands import app
from relay.core.errors import UnfitServer
from relay.pipeline.inputs import preflight
from relay.settings import load
from tests.pipeline.laid_out import laid_out
from tests.worlds.cluster.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

HOUR = 3600


@pytest.fixture(scope="module")
def redis_cluster() -> Iterator[Cluster]:
    """Three masters, none of which counts as dead while it stands still for some seconds."""
    with Cluster(config={"cluster-node-timeout": "60000"}) as cluster:
        yield cluster


def relay(*arguments: str, code: int = 0) -> dict[str, Any]:
    """A command's JSON."""
    ran = CliRunner().invoke(app, ["pipeline", *arguments, "--json"])
    assert ran.exit_code == code, (ran.output, ran.stderr, ran.exception)
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def test_topics_of_all_nodes(
    spark: SparkSession, redis_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are loaded, swept, copied, kept in the lake and audited; a slot moves in between."""
    monkeypatch.setenv("RELAY_REDIS__URL", redis_cluster.url)
    monkeypatch.setenv("RELAY_DEFAULTS__JOURNAL", "true")
    topics = [redis_cluster.topic_at(node) for node in redis_cluster.nodes]
    now = int(time.time())
    due = {"early": now + HOUR, "late": now + 30 * HOUR}
    lines = [f"{topic},{name},{at}" for topic in topics for name, at in due.items()]
    source = tmp_path / "timers.csv"
    source.write_text("\n".join(["topic,timer_id,due_time", *lines]), encoding="utf-8")
    cold, lake, copy = (str(tmp_path / name) for name in ("cold", "lake", "copy"))

    loaded = relay("schedule", str(source), "--due-unit", "s", "--cold", cold)
    assert (loaded["written"], loaded["cold"]) == (3, 3)
    redis_cluster.migrate(topics[0], redis_cluster.nodes[1])
    assert relay("sweep", "--cold", cold, "--horizon", "40h")["loaded"] == 3
    assert relay("snapshot", copy)["timers"] == 6
    assert relay("journal", "--lake", lake, "--topic", "*")["records"] == 6
    audited = relay("audit", "--lake", lake, "--out", str(tmp_path / "audit"), "--then-redis")
    assert audited["verdict"] == "proved"
    for topic, node in zip(topics, (redis_cluster.nodes[1], *redis_cluster.nodes[1:]), strict=True):
        assert redis_cluster.tell(node, "ZCARD", f"timers_timeline:{{{topic}}}") == 2


@pytest.mark.chaos
def test_a_topic_of_several_partitions(
    spark: SparkSession, redis_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on every node: loaded, swept, copied and restored, while a slot moves and the topic does."""
    monkeypatch.setenv("RELAY_REDIS__URL", redis_cluster.url)
    monkeypatch.setenv("RELAY_DEFAULTS__PARTITIONS", "8")
    topic, now = "parted", int(time.time())
    early, late = ([f"{kind}-{n}" for n in range(400)] for kind in ("early", "late"))
    due = dict.fromkeys(early, now + HOUR) | dict.fromkeys(late, now + 30 * HOUR)
    rows = [f"{topic},{name},{at}" for name, at in due.items()]
    source = tmp_path / "timers.csv"
    source.write_text("\n".join(["topic,timer_id,due_time", *rows]), encoding="utf-8")
    cold, copy = (str(tmp_path / name) for name in ("cold", "copy"))

    loaded = relay("schedule", str(source), "--due-unit", "s", "--cold", cold)
    assert (loaded["written"], loaded["cold"]) == (400, 400)
    with laid_out(redis_cluster.url, topic, redis_cluster.nodes) as parts:
        parts.assert_at_home(early)
        for node in redis_cluster.nodes:
            assert redis_cluster.tell(node, "KEYS", f"timers_timeline:{{{topic}*"), "each has some"
        redis_cluster.migrate(f"{topic}#3", redis_cluster.nodes[0])
        parts.move(16)
        assert relay("schedule", str(source), "--due-unit", "s", "--cold", cold)["skipped_by_ledger"] == 800
        assert relay("sweep", "--cold", cold, "--horizon", "40h")["loaded"] == 400
        parts.assert_at_home([*early, *late])
        assert relay("snapshot", copy, "--topic", topic)["timers"] == 800
        assert all(parts.cancel(name) for name in early)
        assert relay("restore", copy, "--topic", topic)["loaded"] == 400
        parts.assert_at_home([*early, *late])


@pytest.mark.parametrize("way", [{}, {"run": "r"}])
def test_slots_and_partitions_move_between_two_batches(redis_cluster: Cluster, way: dict[str, str]) -> None:
    """A batch is refused by its node, which has not the partition any more, and then by the partition, which
    has seen a newer layout."""
    topic = f"moving{len(way)}"
    ids = [f"t{n}" for n in range(4000)]

    def meanwhile() -> None:
        for number in (1, 5):
            name = f"{topic}#{number}"
            there = redis_cluster.owner_of(name)
            redis_cluster.migrate(name, next(node for node in redis_cluster.nodes if node is not there))
        parts.move(16)

    with laid_out(redis_cluster.url, topic, redis_cluster.nodes) as parts:
        parts.load(ids[:1000], meanwhile, ids[1000:], **way)
        parts.assert_at_home(ids)


def test_a_node_by_the_url_of_a_single_server(redis_cluster: Cluster) -> None:
    """It is refused, with the way out."""
    settings = load(environ={"RELAY_REDIS__URL": redis_cluster.nodes[0].url})
    with pytest.raises(
        UnfitServer, match=r"a node of a Cluster.*name it in redis\.url with redis\+cluster://"
    ):
        preflight.check_redis(settings, None)
