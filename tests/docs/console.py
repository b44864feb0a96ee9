"""Replays the console blocks of a page as its reader would type them, and compares what comes out.

With `RELAY_DOCS=write` in the environment, what came out goes into the page where the two differ.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from relay.client import Delivery, NewTimer, RelayClient
from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.docs.pages import Block

WRITE = os.environ.get("RELAY_DOCS") == "write"
PATIENCE = 120.0  # seconds
TYPED = ROOT / "tests" / "docs" / "typed"
"""On the path of each program: what they print does not depend on how quickly a relay answers."""

STAYS = re.compile(r"\S*relay dev\b|(\w+=\S+ )+\S*relay dev\b|node application\.mjs|.* &$")
"""Commands that go on while the reader types the next one, elsewhere."""

RELAY = re.compile(r"\brelay (dev|serve)\b")
"""Commands that start a relay."""

VARIES = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "(instant)"),
    (r"\b\d{13}-\d+\b", "(entry)"),
    (r'"(token|next_page_token)":"[^"]+"', r'"\1":"(text)"'),
    (r"\b[0-9a-f]{32}\b|\b[0-9a-f]{4}…\w*", "(digits)"),
    (r"\b\d{10}\.\d{6}\b", "(instant)"),
    (r"127\.0\.0\.1:\d+", "(address)"),
    (r"(\b\d+(\.\d+)? ?(ms|s|m|h) ?)+ago|\b\d+(\.\d+)? ms|\bfor \d+ s\b", "(time)"),
    (r"\bin \d+ entr(y|ies)\b|\b\d+ records\b", "(figure)"),
    (r"\b[\d,]+\.\d [KMGT]iB\b", "(size)"),
    (r"(Valkey|Redis) \d+\.\d+\.\d+", r"\1 (version)"),
    (r"\bpassed in [\d.]+s( \([\d:]+\))?", "passed in (time)"),
    (r"\brelay=[\w.-]+", "relay=(name)"),
    (r"[─━═]+", "─"),
    (r"[ \t]+", " "),
)
"""What differs from run to run: patterns, and what stands for them in a comparison."""


def plain(text: str) -> str:
    """The text without what may differ from run to run, and without empty lines."""
    for pattern, name in VARIES:
        text = re.sub(pattern, name, text)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def steps(block: Block) -> list[tuple[str, str]]:
    """Each command of a console block with the output that stands below it."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    split = [re.fullmatch(r"((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", part, re.DOTALL) for part in parts]
    return [(found[1], found[2]) for found in split if found]


def compare(block: Block, came: str) -> None:
    """Fail where `came`, the whole block as it came out, tells another story than the page."""
    if plain(came) == plain(block.text):
        return
    if WRITE:
        page = ROOT / block.page
        page.write_text(page.read_text(encoding="utf-8").replace(block.text, came, 1), encoding="utf-8")
        return
    told, run = plain(block.text).splitlines(), plain(came).splitlines()
    lines = difflib.unified_diff(told, run, block.place, "this run", lineterm="", n=1)
    raise AssertionError("\n".join(["the page does not show what its commands print", *lines, "", came]))


class Background:
    """A command in a terminal of its own."""

    def __init__(self, command: str, terminal: Terminal) -> None:
        self.command = command
        self._log = terminal.directory / f"terminal-{time.monotonic_ns()}.log"
        self._read = 0
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", f"exec env {terminal.real(command).removesuffix('&')}"],
                cwd=terminal.at,
                env=terminal.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def shows(self, expected: str, terminal: Terminal) -> None:
        """Wait until what it has printed since the last call holds this."""
        deadline = time.monotonic() + PATIENCE
        while plain(expected) not in plain(printed := terminal.told(self._log.read_text()[self._read :])):
            assert time.monotonic() < deadline, f"{self.command} printed\n{printed}\nand not\n{expected}"
            assert self.process.poll() is None, f"{self.command} ended: {printed}"
            time.sleep(0.02)
        self._read = len(self._log.read_text())

    def end(self) -> None:
        """As Ctrl-C does; a relay and an application of ours exit with 0 then."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise
        ours = RELAY.search(self.command) or self.command.startswith("python ")
        assert code == 0 or not ours, f"{self.command} exited with {code}: {self._log.read_text()}"


class Terminal:
    """A directory, the variables of its shell, and what the page has started so far.

    `instead` has what stands for words of the page here, such as another port for 127.0.0.1:7451. `at` is the
    directory of the commands where it is another one than that of the page's files.
    """

    patience = PATIENCE
    """Seconds for a command."""

    def __init__(self, directory: Path, settings: Mapping[str, str], instead: Mapping[str, str]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
        path = f"{os.path.dirname(sys.executable)}{os.pathsep}{kept['PATH']}"  # noqa: PTH120
        fixed = {"PATH": path, "HOME": str(directory), "NO_COLOR": "1", "TERMINAL_WIDTH": "120"}
        self.environ = {**kept, **fixed, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(TYPED), **settings}
        self.directory = directory
        self.at = directory
        self.instead = dict(instead)
        self.running: list[Background] = []
        self._code = 0

    def real(self, text: str) -> str:
        """What the page says, with the words of this run."""
        return _replaced(text, self.instead)

    def told(self, text: str) -> str:
        """What was printed, with the page's words."""
        return _replaced(text, {here: told for told, here in self.instead.items()})

    def replay(self, blocks: Iterable[Block], module: str) -> None:
        """A page's blocks in their order: those that `module` runs, and the files that they need."""
        for block in blocks:
            if block.mark in ("file", "terminal"):
                name = block.said.split()[-1]
                (self.directory / name).write_text(self.real(block.text), encoding="utf-8")
            if block.run_by != module:
                continue
            if block.mark == "terminal":
                self.running.append(Background(block.said, self))
            elif block.mark == "printed by":
                (shown,) = [each for each in self.running if each.command == block.said]
                shown.shows(block.text, self)
            elif block.language == "console":
                self._run(block)

    def _run(self, block: Block) -> None:
        came = ""
        for command, output in steps(block):
            run: Callable[[str, str], str] = self._start if STAYS.match(command) else self._type
            printed = run(command, output)
            lines = [line.rstrip() for line in printed.splitlines()] if output else []
            came += "\n".join([f"$ {command}", *lines, ""])
        compare(block, came)

    def _type(self, command: str, output: str) -> str:
        """Run a command to its end; one without output on the page has to succeed."""
        done = subprocess.run(
            ["bash", "-c", f"(exit {self._code})\n{self.real(command)}"],
            cwd=self.at,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=self.patience,
            check=False,
        )
        self._code = done.returncode
        assert output or not self._code, f"$ {command}\n{done.stdout}exit code {self._code}"
        ended = "" if done.stdout.endswith("\n") or not done.stdout else "\n"
        return self.told(done.stdout) + ended

    def _start(self, command: str, output: str) -> str:
        """Start what stays. A relay ends the one before, and is waited for."""
        is_relay = RELAY.search(command)
        if is_relay:
            self.close()
        self.running.append(Background(command, self))
        if output:
            self.running[-1].shows(output, self)
        if is_relay:
            self._type(f"relay healthcheck --timeout {PATIENCE:g}", "")
        return output

    def close(self) -> None:
        while self.running:
            self.running.pop().end()


def _replaced(text: str, words: Mapping[str, str]) -> str:
    """All at once, so that no replacement is replaced again."""
    return re.sub("|".join(map(re.escape, words)), lambda found: words[found[0]], text) if words else text


Timers = Mapping[str, bytes]
"""Payloads by timer id."""


async def end_all(target: str, topic: str, timers: Timers, *, how: Exception | None = None) -> None:
    """The timers fall due, and the handler raises `how` for each, or returns. They end before this does."""
    ended = set[str]()
    all_ended = asyncio.Event()
    client = RelayClient(target, timeout=PATIENCE)

    @client.on(topic, concurrency=50, prefetch=0)
    async def handle(delivery: Delivery) -> None:
        ended.add(delivery.timer_id)
        if len(ended) == len(timers):
            all_ended.set()
        if how:
            raise how.with_traceback(None)  # else each one's is longer than the last one's

    async with client:  # leaving it waits until the outcomes are written
        await client.schedule_batch(
            [
                NewTimer(
                    topic=topic, payload=payload, timer_id=name, delay=0, content_type="application/json"
                )
                for name, payload in timers.items()
            ]
        )
        await asyncio.wait_for(all_ended.wait(), 240)
