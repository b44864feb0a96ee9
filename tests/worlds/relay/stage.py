"""The stage of a test with whole relays: its servers, relays and applications, all ended with it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from redis import Redis
from redis.exceptions import RedisError

from relay.core.audit import Report
from relay.store.codec import lease_record
from tests import judge
from tests.keyspace import left
from tests.servers import Kind, RunningServer, start_server
from tests.worlds.relay.processes import Application, Journal, Process, Relay
from tests.worlds.relay.producer import Producer
from tests.worlds.waiting import eventually

P = TypeVar("P", bound=Process)

UNHURRIED = {"RELAY_REDIS__WRITE_TTL": "20"}
"""Seconds. By default a call that has to wait for one second is given up: its caller is told to try again,
and an outcome is lost, so that its timer comes once more. On a busy machine anything may wait so long."""


class Stage:
    """Starts processes and knows them all. The first Redis that is started is everybody's default."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.journal = Journal(directory / "events.jsonl")
        self._servers: list[RunningServer] = []
        self._processes: list[Process] = []
        self._producers: list[Producer] = []
        self._client: Redis | None = None

    def redis(
        self,
        kind: Kind = "valkey",
        config: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> RunningServer:
        """A server of the test's own."""
        server = start_server(kind, config=config, environment=environment)
        self._servers.append(server)
        return server

    @property
    def server(self) -> RunningServer:
        return self._servers[0] if self._servers else self.redis()

    @property
    def client(self) -> Redis:
        """A connection to the default server."""
        if self._client is None:
            self._client = self.server.client()
        return self._client

    def relay(
        self,
        name: str = "relay",
        settings: Mapping[str, str] | None = None,
        *,
        listen: str | None = None,
        url: str | None = None,
        start: bool = True,
    ) -> Relay:
        """A relay; it is SERVING unless `start` is false."""
        known = {**judge.ON, **UNHURRIED, **(settings or {})}
        relay = Relay(self.directory, name, url or self.server.url, listen, known)
        self._processes.append(relay)
        if start:
            relay.start()
        return relay

    def application(
        self,
        relay: Relay | str,
        topics: str | Sequence[str],
        *options: str,
        name: str = "application",
        wait: bool = True,
    ) -> Application:
        """An application; its streams are open unless `wait` is false."""
        target = relay if isinstance(relay, str) else relay.target
        names = [topics] if isinstance(topics, str) else topics
        application = Application(self.directory, name, target, names, self.journal, *options)
        self._processes.append(application)
        application.start(wait=wait)
        return application

    def process(self, name: str, *arguments: str, settings: Mapping[str, str] | None = None) -> Process:
        """Any other Python module."""
        process = Process(arguments, self.directory / f"{name}.log", settings or {})
        self._processes.append(process)
        process.spawn()
        return process

    def join(self, process: P) -> P:
        """Take in a process that is made elsewhere, so that it ends with the test."""
        self._processes.append(process)
        return process

    def producer(self, relay: Relay) -> Producer:
        producer = Producer(relay.target)
        self._producers.append(producer)
        return producer

    # What is in Redis

    def left(self, topic: str) -> tuple[int, int, int]:
        """How many entries the timeline, the payloads and the leases of a topic have."""
        return left(self.client, topic)

    def wait_empty(self, topic: str, timeout: float = 150.0, *, dead: int = 0) -> None:
        """Until nothing of the topic is left: no timer, no payload, no lease, and no key of any kind, but
        for its journal and the mark of a sealed one, and for so many dead letters, which go."""
        eventually(lambda: self.left(topic) == (0, 0, 0), f"{topic} is empty: {self.left(topic)}", timeout)
        if dead:
            assert self.client.xlen(f"timers_dead:{topic}") == dead
            self.client.delete(f"timers_dead:{topic}")
        keys = set(cast("list[bytes]", self.client.keys(f"*{topic}*")))
        assert keys <= {f"{judge.PREFIX}{topic}".encode(), f"timers_leases:{topic}#sealed".encode()}

    def leased(self, topic: str) -> int:
        """How many timers' records say LEASED."""
        return sum(record[1] == 1 for record in self._records(topic))

    def received(self, topic: str) -> int:
        """Of how many leased timers Redis knows that their handlers have started."""
        return sum(lease_record.read(record).received for record in self._records(topic))

    def is_received(self, topic: str, timer_id: str) -> bool:
        """Whether this timer is leased and Redis knows that its handler has started."""
        record = cast("bytes | None", self.client.hget(f"timers_leases:{topic}", timer_id))
        return record is not None and bool(lease_record.read(record).received)

    def _records(self, topic: str) -> list[bytes]:
        return cast("list[bytes]", self.client.hvals(f"timers_leases:{topic}"))

    def attempts(self, timer_id: str) -> list[int]:
        """The attempts that the relay reported of a timer, in the order in which its handlers began."""
        return [event.attempt for event in self.journal.starts(timer_id)]

    def let_kill(self, application: Process, topic: str, killer: str, attempt: int, gate: Path) -> None:
        """Let a handler that waits at the gate kill its application in this attempt; the gate is closed
        again afterwards. Redis has its receipt by then: one that nobody has read is lost with its stream, and
        the attempt's number comes again."""
        eventually(lambda: self.attempts(killer)[attempt - 1 :] == [attempt], "the killer is at work")
        eventually(lambda: self.is_received(topic, killer), "Redis has its receipt")
        gate.touch()
        eventually(lambda: not application.running, "the killer has killed")
        gate.unlink()

    def gate(self, name: str = "gate") -> Path:
        """A file that is not there yet: handlers whose payload names it wait until `touch` opens it."""
        return self.directory / name

    def judged(self, topic: str, accepted: Collection[str] = (), **options: Any) -> Report:
        """The audit proves the promises by the topic's journal, which agrees with the producer and the
        handlers; see `tests.judge.judged`."""
        return judge.judged(self.client, topic, self.journal.events(), accepted=accepted, **options)

    def check_journals(self) -> None:
        """Whatever the test has done, no promise is refuted by what its servers hold of journals."""
        for server in self._servers:
            server.thaw()
            with suppress(RedisError, OSError), server.client(socket_timeout=60.0) as client:
                for topic in judge.topics_with_a_journal(client):
                    judge.not_refuted(client, topic)

    def close(self) -> None:
        for producer in self._producers:
            producer.close()
        for process in self._processes:
            process.kill()
        if self._client is not None:
            self._client.close()
        for server in self._servers:
            server.stop()

    def show_logs(self) -> None:
        """The ends of all logs, for the report of a test that fails."""
        for process in self._processes:
            print(f"--- {process.log_file.name}:\n{process.output()[-3000:]}")

    def check_logs(self) -> None:
        """No relay has written a traceback or anything but JSON lines."""
        for process in self._processes:
            if isinstance(process, Relay):
                odd = [line for line in process.lines() if "exception" in line]
                assert not odd, f"{process.name} logged an exception: {odd[0]}"


S = TypeVar("S", bound=Stage)


@contextmanager
def staged(make: Callable[[Path], S]) -> Iterator[S]:
    """A stage in a directory of its own. The test fails where a relay has logged an exception, or where a
    journal refutes a promise."""
    # Not tmp_path: a Unix socket's path has at most 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="relay-stage-"))
    stage = make(directory)
    try:
        yield stage
        stage.check_logs()
        stage.check_journals()
    finally:
        stage.show_logs()
        stage.close()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def one_relay(settings: Mapping[str, str] | None = None) -> Iterator[Relay]:
    """A relay and nothing else; it may be killed and started again."""
    with staged(Stage) as stage:
        yield stage.relay(settings=settings)
