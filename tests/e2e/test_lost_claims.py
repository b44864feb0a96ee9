"""The connection to Redis breaks in the middle of a claim's reply: its timers come a moment later."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from anyio.from_thread import start_blocking_portal

from tests.store.fake import Line
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

TOPIC = "orders"
COUNT = 20
LEASE = 3_600.0
"""Seconds; longer than anything is waited for."""
SETTINGS = {
    "RELAY_DEFAULTS__LEASE_TTL": str(LEASE),
    "RELAY_DEFAULTS__DELIVERY_TIMEOUT": str(2 * LEASE),
    "RELAY_REDIS__WRITE_TTL": "0.5",
}


class Cut(Line):
    """A line that is cut once: when a reply comes and all timers are leased."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.server.port)
        self._stage = stage
        self.cut = False

    def loses(self) -> bool:
        if self.cut or self._stage.left(TOPIC)[2] < COUNT:
            return False
        self.cut = True
        return True


@pytest.fixture
def cut(stage: Stage) -> Iterator[tuple[Cut, str]]:
    """A line to the stage's server, and its URL."""
    line = Cut(stage)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(line.open()) as url:
        yield line, url


def test_a_claim_that_is_cut(stage: Stage, cut: tuple[Cut, str]) -> None:
    """Redis has leased the timers, and no relay knows. The relay asks for them, and delivers each once, with
    its first attempt."""
    line, url = cut
    relay = stage.relay("delivering", SETTINGS, url=url)
    stage.application(relay, TOPIC)
    producer = stage.producer(stage.relay("scheduling", SETTINGS))
    producer.schedule(TOPIC, "first")
    eventually(lambda: stage.journal.ended()["first"], "the application takes deliveries")
    eventually(lambda: stage.left(TOPIC) == (0, 0, 0), "it is committed")
    names = {f"t{n}" for n in range(COUNT)}
    producer.schedule_many(TOPIC, sorted(names), {}, delay=1.0)
    eventually(lambda: line.cut, "the claim is cut")
    eventually(lambda: stage.journal.ended().keys() == names | {"first"}, "all are handled")
    assert relay.said("the reply of a claim was lost; its timers are found again") == 1
    stage.wait_empty(TOPIC)
    starts = [stage.journal.starts(name) for name in names]
    assert {len(each) for each in starts} == {1}
    assert {each[0].attempt for each in starts} == {1}
    lateness = max(each[0].late for each in starts)
    print(f"at most {lateness:.2f} s late")
    assert lateness < LEASE / 2
