"""The action log on a Cluster: one key of one node, whatever topics are where."""

from __future__ import annotations

from dataclasses import replace

from relay.core.trust.actions import Action
from relay.store.server.server import Server
from relay.store.timeline.actions import RedisActions
from tests.worlds.cluster.cluster import Cluster

PAUSE = Action("token:alice", "operate", "PauseTopic", "orders")


async def test_it_goes_with_its_slot() -> None:
    """And so does the digest of the policy beside it: both are in one script."""
    with Cluster("valkey", masters=2) as cluster:
        async with Server(cluster.url, connections=2, timeout=60.0) as server:
            log = RedisActions(server)
            policy = Action("relay", "admin", "TakeOverPolicy", "*", outcome="OK")
            assert await log.append(policy, once="sha256:1")
            assert await server.ask("EXISTS", "timers_topics:{actions}") == 1
            assert await server.ask("GET", "timers_topics:policy:{actions}") == b"sha256:1"
            source = next(each for each in cluster.nodes if each is cluster.owner_of("actions"))
            target = next(node for node in cluster.nodes if node is not source)
            cluster.move("actions", target)
            began = await log.append(PAUSE)
            cluster.migrate("actions", source)
            await log.append(replace(PAUSE, outcome="OK", began=began))
            assert not await log.append(policy, once="sha256:1")
            found = [(each.method, each.outcome) async for each in log.backwards()]
            assert found == [("PauseTopic", "OK"), ("PauseTopic", ""), ("TakeOverPolicy", "OK")]
