"""`relay app run`: processes that are kept running, that drain, are killed, and replaced as files change."""

from __future__ import annotations

import json
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.worlds.relay.processes import ROOT, Process, Relay, command, free_address
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

SHOP = """
import asyncio, os
from pathlib import Path
from relay.client import Delivery, RelayClient

client = RelayClient(shutdown_timeout=120)
HERE = Path(__file__).parent

def note(event, delivery):
    with (HERE / "events").open("a") as file:
        file.write(f"{event} {delivery.timer_id} {os.getpid()}\\n")

@client.on("orders", prefetch=0)
async def handle(delivery: Delivery) -> None:
    note("start", delivery)
    while delivery.payload == b"wait" and not (HERE / "gate").exists():
        await asyncio.sleep(0.02)
    note("VERSION", delivery)
"""


class App(Process):
    """The command, in a folder that has the application's module."""

    def __init__(self, folder: Path, relay: Relay, *options: str) -> None:
        self.folder = folder
        self.http = free_address()
        self.write(SHOP)
        settings = {"RELAY_TARGET": relay.target, "PYTHONPATH": str(ROOT)}
        arguments = ["relay.cli", "app", "run", "shop", "--http", self.http, "--log-format", "json", *options]
        super().__init__(arguments, folder / "app.log", settings)
        self.root = folder

    def write(self, module: str) -> None:
        (self.folder / "shop.py").write_text(module, encoding="utf-8")

    def events(self, kind: str) -> list[tuple[str, int]]:
        """What handlers noted: timers, and the processes that had them."""
        file = self.folder / "events"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        split = [line.split() for line in lines]
        return [(timer_id, int(pid)) for event, timer_id, pid in split if event == kind]

    def probe(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def ready(self) -> bool:
        self._check_runs()
        return self.probe("/healthz/ready")[0] == 200

    def reasons(self) -> list[str]:
        reasons: list[str] = json.loads(self.probe("/healthz/ready")[1])["reasons"]
        return reasons

    def workers(self) -> list[psutil.Process]:
        return [each for each in psutil.Process(self.pid).children() if each.is_running()]


Start = Callable[..., App]


@pytest.fixture
def relay(stage: Stage) -> Relay:
    return stage.relay()


@pytest.fixture
def start(relay: Relay, tmp_path: Path) -> Iterator[Start]:
    """Starts the application, and returns when all its processes are ready."""
    started: list[App] = []

    def start(*options: str) -> App:
        app = App(tmp_path, relay, *options)
        app.spawn()
        started.append(app)
        eventually(app.ready, "all workers are ready")
        return app

    yield start
    for app in started:
        workers = app.workers() if app.running else []
        app.kill()
        for worker in workers:
            if worker.is_running():
                worker.kill()


def over(process: psutil.Process) -> bool:
    """Whether it has ended; who has no parent any more may stay a zombie."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_process_that_is_killed_is_replaced(stage: Stage, relay: Relay, start: Start) -> None:
    """What it had comes again, to another one; counts of before are kept, as far as they were read."""
    app = start("--processes", "2")
    producer = stage.producer(relay)
    producer.schedule_many("orders", [f"a{n}" for n in range(20)], b"go")
    eventually(lambda: len(app.events("VERSION")) == 20, "all are handled")
    ack = 'relay_app_deliveries_total{outcome="ack",topic="orders"} '
    eventually(lambda: f"{ack}20.0" in app.probe("/metrics")[1], "they are counted, and read")
    producer.schedule("orders", "held", b"wait")
    ((_, victim),) = eventually(
        lambda: [each for each in app.events("start") if each[0] == "held"], "one has it"
    )
    running = 'relay_app_handlers_running{topic="orders"} 1.0'
    eventually(lambda: running in app.probe("/metrics")[1], "it is shown")
    psutil.Process(victim).kill()
    (app.folder / "gate").touch()
    eventually(lambda: [each for each in app.events("VERSION") if each[0] == "held"], "it comes again")
    # The relay may see the death first, and the other worker have the timer before anybody else knows.
    eventually(lambda: re.search(r"worker [12] has ended: SIGKILL", app.output()), "the death is seen")
    eventually(lambda: "relay_app_restarts_total 1.0" in app.probe("/metrics")[1], "it is counted")
    eventually(app.ready, "there are two again")
    stage.wait_empty("orders")
    eventually(lambda: f"{ack}21.0" in app.probe("/metrics")[1], "so is the handler's end")


def test_sigterm_lets_handlers_end(stage: Stage, relay: Relay, start: Start) -> None:
    app = start("--processes", "2")
    stage.producer(relay).schedule_many("orders", ["a", "b", "c"], b"wait")
    eventually(lambda: len(app.events("start")) == 3, "all run")
    app.signal(signal.SIGTERM)
    eventually(lambda: app.reasons() == ["draining"], "it says so")
    assert app.running
    (app.folder / "gate").touch()
    assert app.wait() == 0
    assert len(app.events("VERSION")) == 3
    stage.wait_empty("orders")


def test_a_second_signal_does_not_wait(stage: Stage, relay: Relay, start: Start) -> None:
    """The timer is due again, and its attempt counted."""
    app = start()
    stage.producer(relay).schedule("orders", "a", b"wait")
    eventually(lambda: app.events("start"), "it runs")
    workers = app.workers()
    app.signal(signal.SIGTERM)
    eventually(lambda: "draining" in app.output(), "the first is heard")
    app.signal(signal.SIGTERM)
    assert app.wait() == 1
    assert all(map(over, workers))
    assert stage.left("orders")[0] == 1
    stage.client.flushall()


def test_workers_outlive_nobody(stage: Stage, relay: Relay, start: Start) -> None:
    """The race: the process above is killed, cannot tell its workers, and another one is started beside them.
    They notice, and drain."""
    app = start("--processes", "2")
    stage.producer(relay).schedule("orders", "a", b"wait")
    eventually(lambda: app.events("start"), "it runs")
    workers = app.workers()
    assert len(workers) == 2
    app.kill()
    eventually(lambda: sum(map(over, workers)) == 1, "the idle one ends")
    (app.folder / "gate").touch()
    eventually(lambda: all(map(over, workers)), "so does the other one, behind its handler")
    stage.wait_empty("orders")


def test_changed_files_replace_the_processes(stage: Stage, relay: Relay, start: Start) -> None:
    """A file that can't be imported is said, and waits for the next change."""
    app = start("--reload")
    before = {worker.pid for worker in app.workers()}

    def seen() -> bool:
        """Write again until it is seen, since the watcher may not have begun yet; and no longer, since each
        change ends a process that has only begun to start."""
        app.write(SHOP.replace("VERSION", "SECOND"))
        return "files have changed" in app.output()

    eventually(seen, "the change is seen")
    eventually(
        lambda: app.ready() and before.isdisjoint(worker.pid for worker in app.workers()),
        "another process has the file",
    )
    app.write("1 +")
    eventually(lambda: "shop can't be imported, see above" in app.output(), "the mistake is said")
    assert app.running
    app.write(SHOP.replace("VERSION", "THIRD"))
    eventually(app.ready, "it is mended")
    stage.producer(relay).schedule("orders", "a", b"go")
    eventually(lambda: app.events("THIRD"), "the new code runs")
    stage.wait_empty("orders")
    assert app.terminate() == 0


def test_concurrency_is_for_handlers_that_say_nothing(stage: Stage, relay: Relay, start: Start) -> None:
    app = start("--concurrency", "2")
    stage.producer(relay).schedule_many("orders", ["a", "b", "c"], b"wait")
    eventually(lambda: len(app.events("start")) == 2, "two run")
    running = 'relay_app_handlers_running{topic="orders"} 2.0'
    eventually(lambda: running in app.probe("/metrics")[1], "they are shown")
    assert stage.leased("orders") <= 2
    (app.folder / "gate").touch()
    stage.wait_empty("orders")


WRONG: dict[str, tuple[str, str]] = {
    "no module": ("nothing_here:client", "there is no module 'nothing_here'"),
    "no name": ("tests.e2e.calls:nobody", "module 'tests.e2e.calls' has no 'nobody'"),
    "a file": ("shop.py", "give it as module:client"),
    "no handler": ("tests.worlds.app.empty", "has no handler"),
    "it is dialled": ("tests.worlds.app.pushed", "call its run(listen) yourself"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_can_t_be_run_is_said_once(case: str) -> None:
    """With exit code 2, and without another try."""
    application, words = WRONG[case]
    done: Any = command("app", "run", application, "--processes", "2")
    assert done.code == 2
    assert words in done.err
