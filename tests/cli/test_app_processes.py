"""The processes of `relay app run`, played by small programs: what they are asked, and how they are ended."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from relay.cli.app import supervising, worker_process
from relay.cli.app.supervising import Supervisor
from relay.cli.app.worker_process import WorkerProcess
from tests.worlds.waiting import PATIENCE, until

WORKER = f"""#!{sys.executable} -SE
import json, pathlib, signal, socket, sys, time
here = pathlib.Path(__file__).parent
number = sys.argv[sys.argv.index("--number") + 1]
control = socket.socket(fileno=int(sys.argv[sys.argv.index("--control") + 1]))

def note(event):
    with (here / event).open("a") as file:
        file.write(number)

def wait_for(gate):
    while not (here / gate).exists():
        time.sleep(0.01)

signal.signal(signal.SIGTERM, lambda *_: note("told"))
note("began")
BODY
"""

ANSWERS = """
wait_for("gate")
asked = 0
while line := control.recv(1000):
    for _ in line:
        asked += 1
        control.sendall(json.dumps({"ready": asked == 1, "topics": {}}).encode() + b"\\n")
"""
"""It is silent until the gate is open, and ready when it is asked first, but not later."""

ONE_IS_WRONG = """
if number == "1":
    wait_for("told_apart")
    sys.exit(2)
wait_for("gate")
"""


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def play(body: str) -> None:
        program = tmp_path / "worker"
        program.write_text(WORKER.replace("BODY", body), encoding="utf-8")
        program.chmod(0o700)
        monkeypatch.setattr(worker_process, "sys", SimpleNamespace(executable=str(program)))

    return play


def noted(folder: Path, event: str) -> str:
    file = folder / event
    return file.read_text() if file.exists() else ""


async def stopped(worker: WorkerProcess) -> None:
    worker.kill()
    await worker.wait()


async def test_a_process_that_was_silent_is_believed_what_it_says_last(
    play: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a question of before comes first, and would be taken for that to this one."""
    play(ANSWERS)
    worker = WorkerProcess(1, [])
    await worker.start()
    monkeypatch.setattr(worker_process, "ANSWER", 0.05)
    assert await worker.state() == "silent"
    monkeypatch.setattr(worker_process, "ANSWER", PATIENCE)
    (tmp_path / "gate").touch()
    assert await worker.state() == "starting"
    await stopped(worker)
    assert await worker.state() == "away"


async def test_callers_that_ask_at_the_same_time_share_an_answer(
    play: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes of a silent process would queue otherwise, each for its whole patience."""
    play(ANSWERS)
    monkeypatch.setattr(worker_process, "ANSWER", PATIENCE)
    worker = WorkerProcess(1, [])
    await worker.start()
    asking = [asyncio.create_task(worker.state()) for _ in range(5)]
    await asyncio.sleep(0)
    (tmp_path / "gate").touch()
    assert await asyncio.gather(*asking) == ["ready"] * 5
    await stopped(worker)


async def run(supervisor: Supervisor, ends: Callable[[], Awaitable[object]]) -> int:
    running = asyncio.create_task(supervisor.run())
    try:
        await ends()
        async with asyncio.timeout(PATIENCE):
            return await running
    finally:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        for worker in supervisor.workers:
            worker.kill()


async def test_the_first_signal_kills_nobody_who_drains_already(
    play: Callable[[str], None], tmp_path: Path
) -> None:
    """The race: one process can't go on, so that the others are told to end; then comes the first SIGTERM. A
    second one would end a process at once, and its handlers with it."""
    play(ONE_IS_WRONG)
    supervisor = Supervisor([WorkerProcess(1, []), WorkerProcess(2, [])])

    async def ends() -> None:
        await until(lambda: set(noted(tmp_path, "began")) == {"1", "2"}, "both run")
        (tmp_path / "told_apart").touch()
        await until(lambda: noted(tmp_path, "told") == "2", "the other one drains")
        supervisor._on_signal()
        (tmp_path / "gate").touch()

    assert await run(supervisor, ends) == 2
    assert noted(tmp_path, "told") == "2"


async def test_the_second_signal_kills(play: Callable[[str], None], tmp_path: Path) -> None:
    play('wait_for("never")')
    supervisor = Supervisor([WorkerProcess(1, [])])

    async def ends() -> None:
        await until(lambda: noted(tmp_path, "began"), "it runs")
        supervisor._on_signal()
        await until(lambda: noted(tmp_path, "told"), "it drains")
        supervisor._on_signal()

    assert await run(supervisor, ends) == 1


async def test_a_process_that_can_t_be_started_is_tried_again(
    play: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine may have no memory for it at the moment; the others go on."""
    play("sys.exit(0)")
    monkeypatch.setattr(supervising, "FIRST_PAUSE", 0.01)
    started = 0

    class Unlucky(WorkerProcess):
        async def start(self) -> None:
            nonlocal started
            started += 1
            if started == 1:
                raise BlockingIOError(11, "Resource temporarily unavailable")
            await super().start()

    supervisor = Supervisor([Unlucky(1, [])])

    async def ends() -> None:
        await until(lambda: noted(tmp_path, "began"), "it runs")

    assert await run(supervisor, ends) == 0
    assert (started, supervisor.restarts) == (2, 1)
