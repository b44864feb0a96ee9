"""The connection to Redis breaks in the middle of a claim's reply: its timers come a moment later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from anyio.from_thread import start_blocking_portal

from tests.store.fake import Line
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

TOPIC = "orders"
NAMES = [f"timer-{n:02}" for n in range(20)]
LEASE = 3_600.0
"""Seconds; longer than anything is waited for."""
SETTINGS = {
    "RELAY_DEFAULTS__LEASE_TTL": str(LEASE),
    "RELAY_DEFAULTS__DELIVERY_TIMEOUT": str(2 * LEASE),
}
SOON = {"RELAY_REDIS__WRITE_TTL": "6"}
"""Seconds after which a claim that is lost is looked for. An outcome that waits for longer is lost, and its
timer comes again when its lease ends: a busy machine may need seconds."""

STREAM = {
    "RELAY_TOPICS__orders__DISPATCH": "stream",
    "RELAY_TOPICS__orders__STREAM__GROUP": "billing",
    "RELAY_TOPICS__orders__STREAM__MIN_IDLE_TIME": str(LEASE),
}


class Cut(Line):
    """A line that is cut once: when a reply comes that has all timers in it."""

    cut = False

    def loses(self, reply: bytes) -> bool:
        found = not self.cut and all(name.encode() in reply for name in NAMES)
        self.cut |= found
        return found


@pytest.fixture
def cut(stage: Stage) -> Iterator[tuple[Cut, str]]:
    """A line to the stage's server, and its URL."""
    line = Cut(stage.server.port)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(line.open()) as url:
        yield line, url


@pytest.mark.parametrize("more", [{}, STREAM], ids=["timeline", "stream"])
def test_a_claim_that_is_cut(stage: Stage, cut: tuple[Cut, str], more: Mapping[str, str]) -> None:
    """Redis has leased the timers, and no relay knows. The relay asks for them, and delivers each once, with
    its first attempt."""
    line, url = cut
    settings = {**SETTINGS, **more}
    relay = stage.relay("delivering", {**settings, **SOON}, url=url)
    stage.application(relay, TOPIC)
    producer = stage.producer(stage.relay("scheduling", settings))
    producer.schedule(TOPIC, "first")
    eventually(lambda: stage.journal.ended()["first"], "the application takes deliveries")
    eventually(lambda: unfinished(stage, more) == 0, "it is committed")
    producer.schedule_many(TOPIC, NAMES, {}, delay=1.0)
    eventually(lambda: line.cut, "the claim is cut")
    eventually(lambda: stage.journal.ended().keys() == {*NAMES, "first"}, "all are handled")
    assert relay.said("the reply of a claim was lost; its timers are found again")
    eventually(lambda: unfinished(stage, more) == 0, "all are committed")
    starts = [stage.journal.starts(name) for name in NAMES]
    assert {len(each) for each in starts} == {1}
    assert {each[0].attempt for each in starts} == {1}
    lateness = max(each[0].late for each in starts)
    print(f"at most {lateness:.2f} s late")
    assert lateness < LEASE / 2


def unfinished(stage: Stage, more: Mapping[str, str]) -> int:
    """How many timers are in the timeline, or pending in the group."""
    pending = stage.client.xpending(f"timers_stream:{TOPIC}", "billing")["pending"] if more else 0
    return sum(stage.left(TOPIC)) + int(pending)
