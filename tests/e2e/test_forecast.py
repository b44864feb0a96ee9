"""What falls due, by a real relay: over gRPC, over HTTP, and on the terminal."""

from __future__ import annotations

import asyncio
import http.client
import json
from datetime import UTC, datetime, timedelta

import pytest

from relay.client import RelayClient, SyncRelayClient
from relay.client.errors import InvalidArgument
from tests.web.described import Reply, reply
from tests.worlds.relay.processes import Relay, command
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import PATIENCE, eventually

pytestmark = pytest.mark.slow

SETTINGS = {"RELAY_DEFAULTS__PARTITIONS": "4"}
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def http_get(relay: Relay, path: str) -> Reply:
    connection = http.client.HTTPConnection(relay.api, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return reply("GET", path, answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


def test_every_way_tells_the_same(stage: Stage) -> None:
    """Timers in four partitions, a recurrence, one timer under a lease, and one that is overdue."""
    relay = stage.relay(settings=SETTINGS)
    soon = datetime.now(UTC) + 30 * MINUTE
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        for n in range(40):
            client.schedule("orders", b"x", timer_id=f"t{n}", due_time=soon + timedelta(hours=n % 4))
        client.schedule("orders", b"x", timer_id="late", delay=0)
        # The first one is due in five minutes: none comes while the test looks.
        client.recur("tick", topic="orders", every=10 * MINUTE, anchor_time=soon + 5 * MINUTE)
        found = client.topics.forecast("orders", horizon=2 * HOUR, resolution=HOUR)
        assert (found.topic, found.overdue, found.leased, found.later) == ("orders", 1, 0, 20)
        assert [(each.timers, each.occurrences) for each in found.intervals] == [(10, 6), (10, 6)]
        first, last = found.intervals
        assert (first.start_time, last.end_time) == (found.as_of, found.as_of + 2 * HOUR)
        assert (first.end_time, found.occurrences_until) == (last.start_time, None)
        usual = client.topics.forecast("nobody-heard-of-it")
        assert (len(usual.intervals), sum(each.total for each in usual.intervals)) == (60, 0)

    async def asked() -> None:
        async with RelayClient(relay.target, timeout=PATIENCE) as client:
            again = await client.topics.forecast("orders", horizon=7_200, resolution=3_600)
            assert [each.total for each in again.intervals] == [16, 16]
            for wrong, field in (({"horizon": 0.5}, "horizon"), ({"resolution": 1}, "resolution")):
                with pytest.raises(InvalidArgument) as refused:
                    await client.topics.forecast("orders", **wrong)
                assert refused.value.field == field

    asyncio.run(asked())
    by_http = http_get(relay, "/v1/topics/orders/forecast?horizon=7200s&resolution=3600s")
    assert [(each["timers"], each["occurrences"]) for each in by_http.value["intervals"]] == [("10", "6")] * 2
    assert (by_http.value["overdue"], by_http.value["leased"]) == ("1", "0")
    refused = http_get(relay, "/v1/topics/orders/forecast?horizon=7200s&resolution=1s")
    assert (refused.status, refused.value["field"]) == (422, "resolution")

    def shown(*arguments: str) -> tuple[int, str]:
        ran = command("forecast", *arguments, "--target", relay.target)
        return ran.code, ran.out if ran.code == 0 else ran.err

    code, out = shown("orders", "--horizon", "2h", "--resolution", "1h", "--json")
    said = json.loads(out)
    assert [(each["timers"], each["occurrences"]) for each in said["intervals"]] == [(10, 6)] * 2
    assert (said["overdue"], said["later"], said["occurrences_until"]) == (1, 20, None)
    code, out = shown("orders", "--horizon", "4h", "--resolution", "2h")
    assert [line.split()[-1] for line in out.splitlines() if "█" in line] == ["█" * 40] * 2
    assert "overdue" in out
    code, out = shown("ordres")
    assert (code, "did you mean orders" in out) == (3, True)
    code, out = shown("orders", "--horizon", "2h", "--resolution", "1s")
    assert (code, "resolution" in out) == (2, True)
    assert_leases_are_told_apart(stage, relay)


def assert_leases_are_told_apart(stage: Stage, relay: Relay) -> None:
    """What an application holds is leased, and neither overdue nor due where its lease ends."""
    application = stage.application(relay, "held")
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        client.schedule("held", json.dumps({"sleep": 3_600}).encode(), timer_id="x", delay=0)
        eventually(lambda: stage.journal.starts("x"), "the handler has begun")
        found = client.topics.forecast("held", horizon=60, resolution=60)
    assert (found.overdue, found.leased, found.later) == (0, 1, 0)
    application.kill()
