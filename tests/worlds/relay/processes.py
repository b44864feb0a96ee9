"""Relays and applications as processes: start, watch, signal, kill, and read what they wrote."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from tests.servers import free_port
from tests.worlds.relay.forked import MODULES, Forked
from tests.worlds.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
"""Where `tests` can be imported from, in the clone and in a copy of the suite."""

START_TIMEOUT = 150.0
CHANNEL: list[tuple[str, Any]] = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
]


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """This process's variables without any setting of Relay's, and these settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
    return {**kept, "PYTHONUNBUFFERED": "1", **settings}


class Process:
    """A child process whose standard error goes to a file."""

    def __init__(self, arguments: Sequence[str], log: Path, settings: Mapping[str, str]) -> None:
        self.arguments = [sys.executable, "-m", *arguments]
        self.log_file = log
        self.settings = dict(settings)
        """Its variables; what changes here holds from the next start on."""
        self.root = ROOT
        """Where it imports from: this clone, or a copy with other code."""
        self._process: subprocess.Popen[bytes] | Forked | None = None

    def spawn(self) -> None:
        python, option, *module = self.arguments
        known = (python, option) == (sys.executable, "-m") and module[0] in MODULES
        env = environment(self.settings)
        with self.log_file.open("ab") as log:
            if known and self.root == ROOT and "LD_PRELOAD" not in self.settings:
                self._process = Forked(module, cwd=ROOT, env=env, files={1: log.fileno(), 2: log.fileno()})
                return
            self._process = subprocess.Popen(
                self.arguments,
                cwd=self.root,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def process(self) -> subprocess.Popen[bytes] | Forked:
        if self._process is None:
            raise RuntimeError("was never started")
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """SIGSTOP, as when a machine is paused: connections stay open, and nothing answers."""
        self.signal(signal.SIGSTOP)
        try:
            stat = Path(f"/proc/{self.pid}/stat")
            eventually(
                lambda: stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] == "T", "it stands"
            )
            yield
        finally:
            self.signal(signal.SIGCONT)

    def wait(self, timeout: float = 150.0) -> int:
        """Its exit code; minus the signal's number if one killed it."""
        return self.process.wait(timeout)

    def terminate(self, timeout: float = 150.0) -> int:
        self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self) -> None:
        """SIGKILL, and wait; harmless if it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _check_runs(self) -> None:
        assert self.running, f"it ended with {self.process.returncode}: {self.output()[-2000:]}"

    def output(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"


class Relay(Process):
    """`relay serve`. Its addresses stay the same over restarts."""

    def __init__(
        self, directory: Path, name: str, redis_url: str, listen: str | None, settings: Mapping[str, str]
    ) -> None:
        listen = listen or free_address()
        defaults = {
            "RELAY_REDIS__URL": redis_url,
            "RELAY_GRPC__LISTEN": listen,
            "RELAY_HTTP__LISTEN": free_address(),
            "RELAY_API__LISTEN": free_address(),
            "RELAY_LOG__FORMAT": "json",
            "RELAY_REDIS__START_TIMEOUT": "60",  # seconds: a busy machine is no Redis that is away
        }
        super().__init__(["relay.cli", "serve"], directory / f"{name}.log", {**defaults, **settings})
        self.name = name
        self.target = listen
        self.http = ""
        self.api = ""

    def start(self) -> None:
        """Start, and return when grpc.health.v1 says SERVING."""
        skip = len(self.lines())
        self.spawn()
        serving = eventually(
            lambda: self._serving(skip), f"{self.name} serves: {self.output()[-2000:]}", START_TIMEOUT
        )
        self.target, self.http, self.api = serving["grpc"], serving["http"], serving["api"]
        eventually(lambda: self.health() == "SERVING", f"{self.name} is SERVING")

    def _serving(self, skip: int) -> dict[str, Any]:
        self._check_runs()
        found = [line for line in self.lines()[skip:] if line["message"] == "relay is serving"]
        return found[0] if found else {}

    def health(self) -> str:
        """What grpc.health.v1 answers; UNREACHABLE if nobody does."""
        with grpc.insecure_channel(self.target, options=CHANNEL) as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            try:
                answer = check(health_pb2.HealthCheckRequest(), timeout=30.0, wait_for_ready=True)
            except grpc.RpcError:
                return "UNREACHABLE"
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

    def probe(self, path: str) -> int:
        """The HTTP status of `/healthz/…`; 0 if nobody answers."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://{self.http}{path}", timeout=120.0) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def metrics(self) -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{self.http}/metrics", timeout=120.0) as answer:
            text: str = answer.read().decode()
            return text

    def lines(self) -> list[dict[str, Any]]:
        """The log. A line that is no JSON, a traceback for instance, fails the test."""
        whole = self.output().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def said(self, message: str) -> int:
        """How many lines of the log say this."""
        return sum(message in line["message"] for line in self.lines())


@dataclass(frozen=True)
class Event:
    """One line of an application's journal."""

    event: str
    at: float
    pid: int
    topic: str = ""
    timer_id: str = ""
    attempt: int = 0
    occurrence: str = ""
    late: float = 0.0
    approximate: bool = False
    headers: Mapping[str, str] | None = None
    current: str = ""
    due: float = 0.0
    content_type: str = ""
    due_time: str = ""
    sha256: str = ""
    period: int = 0


class Journal:
    """The events of all applications that write to one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: list[Event] = []
        self._offset = 0

    def events(self, kind: str | None = None) -> list[Event]:
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._offset)
                fresh = file.read().rpartition(b"\n")[0]
            if fresh:
                self._offset += len(fresh) + 1
                self._read += [Event(**json.loads(line)) for line in fresh.splitlines()]
        return [event for event in self._read if kind is None or event.event == kind]

    def count(self, kind: str) -> int:
        """How many events of this kind there are by now."""
        return len(self.events(kind))

    def starts(self, timer_id: str) -> list[Event]:
        return [event for event in self.events("start") if event.timer_id == timer_id]

    def ended(self) -> Counter[str]:
        """How many times each timer's handler came to its end."""
        return Counter(event.timer_id for event in self.events("end"))


class Application(Process):
    """`tests.worlds.relay.application` on one or more topics."""

    def __init__(
        self, directory: Path, name: str, target: str, topics: Sequence[str], journal: Journal, *options: str
    ) -> None:
        arguments = [
            "tests.worlds.relay.application",
            "--target",
            target,
            "--events",
            str(journal.path),
            *options,
        ]
        for topic in topics:
            arguments += ["--topic", topic]
        super().__init__(arguments, directory / f"{name}.log", {})
        self.name = name
        self.journal = journal

    def start(self, *, wait: bool = True) -> None:
        """Start, and return when its streams are open."""
        self.spawn()
        if wait:
            eventually(lambda: self.has_said("ready"), f"{self.name} is ready", START_TIMEOUT)

    def revive(self) -> bool:
        """Start it again if it has died; answers whether it had."""
        dead = not self.running
        if dead:
            self.start(wait=False)
        return dead

    def has_said(self, event: str) -> bool:
        if event == "ready":
            self._check_runs()
        return any(line.pid == self.pid for line in self.journal.events(event))


@dataclass(frozen=True)
class Ran:
    """What a finished command left."""

    code: int
    out: str
    err: str

    @cached_property
    def documents(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


def put_file(file: Path, text: str) -> None:
    """Write a file in one step: a relay that watches it never sees a part of it."""
    fresh = file.with_name(f"{file.name}.fresh")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)


def command(*arguments: str, settings: Mapping[str, str] | None = None, timeout: float = 120.0) -> Ran:
    """Run the `relay` command to its end. It makes each call once: on a busy machine its first try might act,
    and it would print what the second one was answered."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as err,
    ):
        files = {1: out.fileno(), 2: err.fileno()}
        env = environment({"RELAY_REDIS__START_TIMEOUT": "60", **(settings or {})})
        process = Forked(["relay.cli", *arguments], cwd=ROOT, env=env, files=files, one_try=True)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return Ran(code, out.read(), err.read())
