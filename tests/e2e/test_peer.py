"""A relay and a faststream-redis-timers worker on one topic."""

from __future__ import annotations

from tests.e2e.conftest import Stage
from tests.e2e.processes import eventually
from tests.e2e.producer import Load

TOPIC = "orders"
COUNT = 3000


def test_shared_topic(stage: Stage) -> None:
    """Both publish and both handle under load: everything is handled at least once, and nothing is left."""
    relay = stage.relay(
        settings={"RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "0.2", "RELAY_DEFAULTS__LEASE_TTL": "2"}
    )
    application = stage.application(relay, TOPIC, "--concurrency", "10", "--prefetch", "0")
    arguments = ["--url", stage.server.url, "--topic", TOPIC, "--events", str(stage.journal.path)]
    peer = stage.process("peer", "tests.e2e.peer", *arguments, "--publish", str(COUNT), "--sleep", "0.01")
    with Load([stage.producer(relay)], TOPIC, {"sleep": 0.02}, pause=0.003) as load:
        eventually(
            lambda: stage.journal.events("published") or not peer.running, "the peer has published", 60.0
        )
        assert peer.running, peer.output()
    wanted = {f"peer-{number}" for number in range(COUNT)} | set(load.accepted)
    stage.wait_empty(TOPIC, 60.0)
    ended = stage.journal.ended()
    lost = wanted - ended.keys()
    by = {
        name: sum(event.pid == pid for event in stage.journal.events("end"))
        for name, pid in (("relay", application.pid), ("peer", peer.pid))
    }
    twice = sum(count > 1 for count in ended.values())
    print(f"{len(wanted)} timers, {by}, {twice} twice, {len(lost)} lost")
    assert not lost
    assert not load.refusals
    assert min(by.values()) > 0, "both have had a part"
    assert peer.terminate() == 0
