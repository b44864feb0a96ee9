"""`relay dev` as a process: a daemon on a Valkey of its own, and nothing left of either."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import redis

from tests.servers import free_port
from tests.worlds.relay.processes import environment

START = 90
"""Seconds that a start may take on a machine that does more than this test."""


def relay(*arguments: str, timeout: float = START) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "relay.cli", *arguments]
    return subprocess.run(
        command, env=environment({}), capture_output=True, text=True, timeout=timeout, check=False
    )


def three_free_ports() -> int:
    """The first of three in a row."""
    while True:
        first = free_port()
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + 3):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


class Dev:
    """A running `relay dev`."""

    def __init__(self, process: subprocess.Popen[str], port: int, told: str) -> None:
        self.process = process
        self.port = port
        self.target = f"127.0.0.1:{port}"
        self.told = told
        """What it wrote until it had told what another terminal needs."""
        self.exported = dict(re.findall(r"^  export (\w+)=(\S+)$", told, re.MULTILINE))
        self.valkey_port = int(self.exported["RELAY_REDIS__URL"].split(":")[2].split("/")[0])

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
    port = three_free_ports()
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "relay.cli", "dev", "-p", str(port), *arguments],
        env=environment({"TMPDIR": str(temporary), "RELAY_REDIS__PASSWORD": "another-server-s"}),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        told = ""
        while "  relay schedule " not in told:
            line = process.stderr.readline()
            assert line, told
            told += line
        yield Dev(process, port, told)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
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


@pytest.mark.slow
def test_with_a_data_directory_timers_outlive_it(tmp_path: Path) -> None:
    kept = str(tmp_path / "kept")
    for command in (("schedule", "t", "--id", "x", "--in", "1h"), ("get", "t", "x")):
        with dev(tmp_path, "--data-dir", kept) as running:
            result = relay(*command, "--target", running.target)
            assert result.returncode == 0, result.stderr
            assert running.end(signal.SIGTERM) == 0


@pytest.mark.slow
def test_a_data_directory_that_valkey_cannot_take(tmp_path: Path) -> None:
    result = relay("dev", "--data-dir", str(tmp_path / "a b"))
    assert result.returncode == 2
    assert result.stderr.startswith("relay: --data-dir: ")


def test_port_moves_all_three_and_what_it_prints_is_enough(tmp_path: Path) -> None:
    """It speaks once it serves: its lines, pasted elsewhere, lead to the relay and to its Redis at once."""
    with dev(tmp_path) as running:
        for port in range(running.port, running.port + 3):
            socket.create_connection(("127.0.0.1", port)).close()
        assert running.exported["RELAY_TARGET"] == running.target
        lines = "\n".join(line for line in running.told.splitlines() if line.startswith("  "))
        relay_here = f'relay() {{ {shlex.quote(sys.executable)} -m relay.cli "$@"; }}\n'
        pasted = subprocess.run(
            ["sh", "-ec", f"{relay_here}{lines}\nrelay stats reminders\nrelay doctor"],
            env=environment({}),
            capture_output=True,
            text=True,
            timeout=START,
            check=False,
        )
        assert pasted.returncode == 0, pasted
        assert "timers        1" in pasted.stdout
        with urllib.request.urlopen(
            f"http://127.0.0.1:{running.port + 1}/healthz/ready", timeout=START
        ) as ready:
            assert ready.status == 200
        api = f"http://127.0.0.1:{running.port + 2}/v1/topics"
        with urllib.request.urlopen(api, timeout=START) as topics:
            assert topics.status == 200
        assert running.end(signal.SIGTERM) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("offset", "setting", "what"),
    [
        (0, "grpc.listen", "the gRPC API"),
        (1, "http.listen", "probes and metrics"),
        (2, "api.listen", "the JSON API"),
    ],
)
def test_a_taken_port_is_named_before_anything_sounds_like_success(
    tmp_path: Path, offset: int, setting: str, what: str
) -> None:
    """Exit 1, one sentence that says who wanted which address and what to do, and Valkey is gone."""
    port = three_free_ports()
    with socket.create_server(("127.0.0.1", port + offset)):
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-m", "relay.cli", "dev", "-p", str(port)],
            env=environment({"TMPDIR": str(tmp_path), "RELAY_LOG__FORMAT": "text"}),
            capture_output=True,
            text=True,
            timeout=START,
            check=False,
        )
    assert ended.returncode == 1
    assert "relay dev: " not in ended.stderr
    assert "Traceback" not in ended.stderr
    variable = "RELAY_" + setting.upper().replace(".", "__")
    assert (
        f"{setting}: can't listen on 127.0.0.1:{port + offset} for {what}: another process listens there "
        f"already; set another address there, or by {variable}, or give relay dev another --port N"
    ) in ended.stderr
    assert list(tmp_path.iterdir()) == []
