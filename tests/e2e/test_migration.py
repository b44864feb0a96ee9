"""From faststream-redis-timers to Relay in the steps of docs/how-to/faststream.md, and back, under load."""

from __future__ import annotations

import threading
from itertools import pairwise
from types import TracebackType
from typing import Self

import pytest

from tests.e2e.calls import calls
from tests.e2e.mixed import SETTINGS, TOPIC
from tests.e2e.peer import LEASE, Publisher, publisher
from tests.worlds.relay.processes import Application, Process
from tests.worlds.relay.producer import Load
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

ENOUGH = 150
"""Timers that a step has to see handled."""


class PeerLoad:
    """Publishes by way of the peer, in a thread, until it is left."""

    def __init__(self, peer: Publisher, name: str) -> None:
        self._peer = peer
        self._name = name
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peer load")
        self.accepted: list[str] = []

    def _run(self) -> None:
        while not self._stopping.wait(0.004):
            timer_id = f"{self._name}-{len(self.accepted)}"
            self._peer.schedule(TOPIC, timer_id)
            self.accepted.append(timer_id)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()


class Migration:
    """Knows who is at work, and sees that timers flow."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        # It never dies here: on a machine that stands still for seconds, no lease of its own may lapse.
        self.relay = stage.relay(settings={**SETTINGS, "RELAY_DEFAULTS__LEASE_TTL": "120"})
        self.workers: list[Process] = []
        self.applications: list[Application] = []

    def start_worker(self) -> Process:
        where = ["--url", self.stage.server.url, "--topic", TOPIC, "--events", str(self.stage.journal.path)]
        self.workers.append(
            self.stage.process(
                f"worker-{len(self.workers)}", "tests.e2e.peer", *where, "--work", "--sleep", "0.02"
            )
        )
        return self.workers[-1]

    def start_application(self) -> Application:
        self.applications.append(
            self.stage.application(self.relay, TOPIC, name=f"application-{len(self.applications)}")
        )
        return self.applications[-1]

    def flows(self, *by: Process) -> None:
        """Each of these handles timers, and all together enough of them."""
        pids = {process.pid for process in by}
        before = len(self.stage.journal.events("end"))

        def enough() -> bool:
            fresh = self.stage.journal.events("end")[before:]
            return len(fresh) >= ENOUGH and pids <= {event.pid for event in fresh}

        eventually(enough, "timers are handled by whom they should be")

    def stop(self, process: Process) -> None:
        assert process.terminate() == 0, process.output()


def test_step_by_step_and_back(stage: Stage) -> None:
    """A relay beside, then consumers, then producers, then no peer any more; consumers and producers go back
    once in between. No timer is lost, and only what a worker of the peer's was stopped with comes twice."""
    with publisher(stage.server.url) as peer:
        with PeerLoad(peer, "before") as before:
            moving = Migration(stage)
            worker = moving.start_worker()
            moving.flows(worker)
            assert stage.left(TOPIC)[2] == 0, "1: a relay without an application leaves the topic alone"
            application = moving.start_application()
            moving.flows(worker, application)  # 2: both consume
            moving.stop(worker)
            moving.flows(application)  # 2: the consumers have moved
            moving.stop(application)  # nobody consumes: timers wait
            worker = moving.start_worker()
            moving.flows(worker)  # the consumers are back
            moving.stop(worker)
            application = moving.start_application()
            moving.flows(application)  # and have moved again
        with PeerLoad(peer, "old") as old, Load([stage.producer(moving.relay)], TOPIC, pause=0.004) as new:
            moving.flows(application)  # 3: both produce
        with PeerLoad(peer, "back") as back:
            moving.flows(application)  # the producers are back
        with Load([stage.producer(moving.relay)], TOPIC, pause=0.004, name="last") as last:
            moving.flows(application)  # 4: nothing of the peer's is left
    stage.wait_empty(TOPIC)
    made = calls(stage.journal)
    accepted = {*before.accepted, *old.accepted, *new.accepted, *back.accepted, *last.accepted}
    lost = {name for name in accepted if not any(call.end for call in made.get(name, []))}
    again = [pair for of_one in made.values() for pair in pairwise(of_one)]
    print(f"{len(accepted)} timers, {len(again)} called again")
    assert not lost
    assert not new.refusals
    peers = {process.pid for process in moving.workers}
    for first, second in again:
        assert first.pid in peers
        assert second.start - first.start > LEASE - 1
