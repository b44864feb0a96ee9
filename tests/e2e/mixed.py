"""Relays with their applications and the peer's workers, all on one topic."""

from __future__ import annotations

import time
from typing import cast

from tests.e2e.calls import Call, Death, calls
from tests.e2e.peer import LEASE
from tests.worlds.relay.processes import Process
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

TOPIC = "orders"
SETTINGS = {"RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "0.2", "RELAY_DEFAULTS__LEASE_TTL": str(LEASE)}


class Mixed:
    """So many relays, each with an application, and so many workers; `sleep`: a handler's seconds."""

    def __init__(
        self, stage: Stage, *, relays: int, workers: int, sleep: float, concurrency: int = 50
    ) -> None:
        self.stage = stage
        self.sleep = sleep
        self.relays = [stage.relay(f"relay-{n}", SETTINGS) for n in range(relays)]
        self.applications = [
            stage.application(
                relay, TOPIC, "--concurrency", str(concurrency), "--prefetch", "0", name=f"application-{n}"
            )
            for n, relay in enumerate(self.relays)
        ]
        self.workers = [
            self.peer(f"worker-{n}", "--work", "--concurrency", str(concurrency)) for n in range(workers)
        ]
        ready = self.stage.journal.events
        for worker in self.workers:
            eventually(lambda: worker.pid in {each.pid for each in ready("ready")}, "it works")  # noqa: B023
        self.peers = {worker.pid for worker in self.workers}
        """All pids that workers have had."""
        self.deaths: list[Death] = []
        self.leased_at_a_death: set[str] = set()
        """Timers that had a lease record at the moment when some relay was killed."""

    def peer(self, name: str, *options: str) -> Process:
        """A process of the peer's."""
        where = ["--url", self.stage.server.url, "--topic", TOPIC, "--events", str(self.stage.journal.path)]
        return self.stage.process(name, "tests.e2e.peer", *where, "--sleep", str(self.sleep), *options)

    def kill_worker(self, number: int) -> int:
        """SIGKILL one, look, and start it anew; answers how many timers it held."""
        worker = self.workers[number]
        held = self._kill(worker, worker.pid)
        worker.spawn()
        self.peers.add(worker.pid)
        return held

    def kill_relay(self, number: int) -> int:
        """The same with a relay; its application lives on."""
        relay = self.relays[number]
        held = self._kill(relay, self.applications[number].pid)
        self.leased_at_a_death |= {name.decode() for name in self._records()}
        relay.start()
        return held

    def _kill(self, process: Process, holder: int) -> int:
        """What was in flight is still in Redis, and leased, when its holder is dead."""
        process.kill()
        death = Death(holder, time.time())
        self.deaths.append(death)
        held = {call.timer_id for call in self._running(holder, death.at)}
        for timer_id in held:
            score = self.stage.client.zscore(f"timers_timeline:{TOPIC}", timer_id)
            assert score is not None, f"{timer_id} left the timeline before its outcome was written"
            assert score > death.at, f"{timer_id} was not leased while it was handled"
            assert self.stage.client.hexists(f"timers_payloads:{TOPIC}", timer_id)
        return len(held)

    def _running(self, pid: int, at: float) -> list[Call]:
        return [
            call
            for of_one in calls(self.stage.journal).values()
            for call in of_one
            if call.pid == pid and call.start <= at and (call.end is None or call.end > at)
        ]

    def drained(self, timeout: float = 150.0) -> set[str]:
        """Wait until no timer and no payload is left, and stop; answers whose lease records are left.

        A record stays where a relay lost a timer without a settlement, and a peer then ended it. It
        goes once its id is scheduled or cancelled, as here: at the end no key is left.
        """
        eventually(lambda: self.stage.left(TOPIC)[:2] == (0, 0), "all timers are gone", timeout)
        for process in (*self.applications, *self.workers):
            assert process.terminate() == 0, process.output()  # once it has, its outcomes are written
        names = {name.decode() for name in self._records()}
        for name in names:
            self.stage.producer(self.relays[0]).cancel(TOPIC, name)
        self.stage.wait_empty(TOPIC)
        return names

    def _records(self) -> list[bytes]:
        return cast("list[bytes]", self.stage.client.hkeys(f"timers_leases:{TOPIC}"))
