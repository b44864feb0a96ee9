"""The daemon on Redis as people run it: a socket, an ACL user, hash tags; and how much it takes of it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.e2e.test_refusals import refusal_in_time
from tests.store.test_acl import RULES
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

TOPIC = "orders"


@pytest.mark.slow
@pytest.mark.checkout
def test_socket_user_tags_and_few_connections(stage: Stage) -> None:
    """Over `unix://`, with the documented ACL line alone, 2,000 timers are delivered by four connections."""
    path = stage.directory / "redis.sock"
    stage.redis(config={"unixsocket": str(path)})
    rules = [rule.replace("a-long-password", "p@ss/w:rd") for rule in RULES]
    stage.client.execute_command("ACL", "SETUSER", "relay", *rules)
    url = f"unix://relay:p%40ss%2Fw%3Ard@{path}"
    relay = stage.relay(url=url, settings={"RELAY_REDIS__HASH_TAGS": "true"})
    stage.application(relay, TOPIC)
    names = {f"t{n}" for n in range(2000)}
    stage.producer(relay).schedule_many(TOPIC, sorted(names), spread=1.0)
    most = 0

    def done() -> bool:
        nonlocal most
        clients = cast("list[dict[str, Any]]", stage.client.client_list())
        most = max(most, sum(each["user"] == "relay" for each in clients))
        assert {each["name"] for each in clients if each["user"] == "relay"} <= {"relay", ""}
        return stage.journal.ended().keys() == names

    eventually(done, "all are handled")
    assert most in {3, 4}, "up to three for commands, and one for hints"
    kept = {b"timers_topics", b"timers_topics:{relays}", b"timers_journal:{orders}"}
    eventually(lambda: set(cast("list[bytes]", stage.client.keys())) == kept, "all is settled")
    assert relay.terminate() == 0
    assert "p@ss" not in relay.output()
    assert "p%40ss" not in relay.output()


def test_a_replica_is_refused(stage: Stage) -> None:
    """A start that is pointed at a replica says so."""
    master, replica = stage.redis(), stage.redis()
    with replica.client() as client:
        client.replicaof("127.0.0.1", master.port)
    assert "the server is a replica; Relay needs the master" in refusal_in_time(stage, replica.url)
