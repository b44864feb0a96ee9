"""`relay dev` as a process: a daemon on a Valkey of its own, and nothing left of either."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import redis

from tests.servers import free_port

START = 90
"""Seconds that a start may take on a machine that does more than this test."""


def relay(*arguments: str, timeout: float = START) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "relay.cli", *arguments]
    environ = {**os.environ, "RELAY_HTTP__LISTEN": "127.0.0.1:0", "RELAY_API__LISTEN": "127.0.0.1:0"}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=timeout, check=False)


class Dev:
    """A running `relay dev`."""

    def __init__(self, process: subprocess.Popen[str], target: str, valkey_port: int) -> None:
        self.process = process
        self.target = target
        self.valkey_port = valkey_port

    def end(self, how: signal.Signals, *, whole_group: bool = False) -> int:
        """Signal it, as Ctrl-C does the whole group; answers the exit code."""
        if whole_group:
            os.killpg(self.process.pid, how)
        else:
            self.process.send_signal(how)
        self.process.communicate(timeout=START)
        return self.process.returncode

    def valkey_answers(self) -> bool:
        with redis.Redis(port=self.valkey_port) as client, suppress(redis.ConnectionError):
            return bool(client.ping())
        return False


@contextmanager
def dev(temporary: Path, *arguments: str) -> Iterator[Dev]:
    target = f"127.0.0.1:{free_port()}"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "relay.cli", "dev", "-p", target.split(":")[1], *arguments],
        env={
            **environ,
            "RELAY_HTTP__LISTEN": "127.0.0.1:0",
            "RELAY_API__LISTEN": "127.0.0.1:0",
            "TMPDIR": str(temporary),
        },
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        port = re.search(r"redis://127\.0\.0\.1:(\d+)", process.stderr.readline())
        assert port is not None
        health = relay("healthcheck", "--target", target, "--timeout", str(START))
        assert health.returncode == 0, health.stderr
        yield Dev(process, target, int(port[1]))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(
    ("how", "whole_group"),
    [(signal.SIGTERM, False), (signal.SIGINT, True), (signal.SIGHUP, False)],
    ids=["SIGTERM", "Ctrl-C", "SIGHUP"],
)
def test_it_ends_in_order_and_leaves_nothing(tmp_path: Path, how: signal.Signals, whole_group: bool) -> None:
    with dev(tmp_path) as running:
        assert running.valkey_answers()
        assert relay("schedule", "t", "--id", "x", "--in", "1h", "--target", running.target).returncode == 0
        assert running.end(how, whole_group=whole_group) == 0
        assert not running.valkey_answers()
        with pytest.raises(ProcessLookupError):
            os.killpg(running.process.pid, 0)
    assert list(tmp_path.iterdir()) == []


def test_with_a_data_directory_timers_outlive_it(tmp_path: Path) -> None:
    kept = str(tmp_path / "kept")
    for command in (("schedule", "t", "--id", "x", "--in", "1h"), ("get", "t", "x")):
        with dev(tmp_path, "--data-dir", kept) as running:
            result = relay(*command, "--target", running.target)
            assert result.returncode == 0, result.stderr
            assert running.end(signal.SIGTERM) == 0


def test_a_data_directory_that_valkey_cannot_take(tmp_path: Path) -> None:
    result = relay("dev", "--data-dir", str(tmp_path / "a b"))
    assert result.returncode == 2
    assert result.stderr.startswith("relay: --data-dir: ")


def test_a_daemon_that_cannot_start_takes_valkey_down_again(tmp_path: Path) -> None:
    """Its port is taken: exit 1, a sentence, no leftovers."""
    with dev(tmp_path) as running:
        second = relay("dev", "--port", running.target.split(":")[1])
        assert second.returncode == 1
        assert "Traceback" not in second.stderr
        port = re.search(r"redis://127\.0\.0\.1:(\d+)", second.stderr)
        assert port is not None
        assert not Dev(running.process, "", int(port[1])).valkey_answers()
        assert running.end(signal.SIGTERM) == 0
