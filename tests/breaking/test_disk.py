"""A power loss leaves what was synced and nothing else; a slow disk is slow until it is healed; a full one
refuses. The witnesses are what a client was answered, and files read by the test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from subprocess import PIPE

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from chaos.under.disk import SHIM, Disk, Lost
from chaos.under.preloaded import ToolMissing, compiled, preload
from tests import missing
from tests.breaking.conftest import OnDisk
from tests.servers import KINDS, Kind, RunningServer, server_id
from tests.worlds.waiting import eventually

STUCK = 600.0
"""Seconds: no fsync ends by itself while a test runs."""


def push(server: RunningServer, *values: str) -> None:
    """Append to a list, one command after the other; each is answered."""
    with server.client(retry=Retry(NoBackoff(), 0)) as client:
        for value in values:
            client.rpush("list", value)


def listed(server: RunningServer) -> list[str]:
    return [value.decode() for value in server.control.lrange("list", 0, -1)]  # type: ignore[union-attr]


def lose_power(server: RunningServer, disk: Disk) -> list[str]:
    """What the list has afterwards."""
    server.kill()
    disk.lose_power()
    server.start()
    return listed(server)


@pytest.mark.parametrize("kind", KINDS, ids=server_id)
class TestPowerLoss:
    """On each server that pip brings."""

    def test_what_was_synced_survives(self, kind: Kind, on_disk: OnDisk) -> None:
        """With `always` an answer comes behind the fsync."""
        server, disk = on_disk(kind, "always")
        push(server, "a", "b", "c")
        assert lose_power(server, disk) == ["a", "b", "c"]
        push(server, "d")
        assert lose_power(server, disk) == ["a", "b", "c", "d"]

    def test_what_was_not_synced_is_gone(self, kind: Kind, on_disk: OnDisk) -> None:
        """With `no` nobody syncs, and an orderly end would have."""
        server, disk = on_disk(kind, "no")
        push(server, "a")
        server.kill()
        server.start()
        assert listed(server) == ["a"], "kill -9 alone takes nothing"
        push(server, "b")
        assert lose_power(server, disk) == []

    def test_what_the_last_second_brought_is_gone(self, kind: Kind, on_disk: OnDisk) -> None:
        """With `everysec` what was written before an fsync survives, and what came after it began doesn't."""
        server, disk = on_disk(kind, "everysec")
        synced = disk.syncs  # before the write: the server may have synced it before a look behind it
        push(server, "a")
        eventually(lambda: disk.syncs > synced, "the server has synced")
        disk.slow(sync=STUCK)
        before = time.monotonic()
        push(server, "b")
        eventually(lambda: disk.slowed, "the server is about to sync what came last")
        push(server, "c")
        server.kill()
        lost = disk.lose_power()
        assert lost.bytes
        assert lost.safe < before
        disk.heal()
        server.start()
        assert listed(server) == ["a"]


@pytest.mark.slow
def test_a_file_that_ends_within_a_record(on_disk: OnDisk) -> None:
    """A part of what nobody has synced may be there: a server that starts on it has the first of what was
    written, and no hole."""
    server, disk = on_disk(appendfsync="no")
    values = [f"{n}" for n in range(500)]
    chance, seen = Random(29), set()
    for _ in range(5):
        push(server, *values)
        server.kill()
        disk.lose_power(chance)
        server.start()
        left = listed(server)
        assert left == values[: len(left)]
        seen.add(len(left))
        server.control.flushall()
        server.control.bgrewriteaof()
        eventually(lambda: rewritten(server), "an empty file is what there is")
    assert len(seen) > 1, "the cut was the same each time"


def rewritten(server: RunningServer) -> bool:
    about = server.control.info("persistence")
    return not about["aof_rewrite_in_progress"] and not about["aof_rewrite_scheduled"]


def test_what_a_rewrite_has_left_survives(on_disk: OnDisk) -> None:
    """A rewrite makes new files, renames and removes: the server syncs all that it rests on."""
    server, disk = on_disk()
    push(server, *map(str, range(100)))
    server.control.bgrewriteaof()
    eventually(lambda: rewritten(server), "the file is rewritten")
    push(server, "last")
    assert lose_power(server, disk) == [*map(str, range(100)), "last"]


# ---------------------------------------------------------------------------- slow and full


@pytest.fixture
def caller() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


def test_a_slow_disk_is_slow_until_it_is_healed(on_disk: OnDisk, caller: ThreadPoolExecutor) -> None:
    server, disk = on_disk()
    disk.slow(sync=STUCK)
    call: Future[None] = caller.submit(push, server, "a")
    eventually(lambda: disk.slowed, "the disk is slow")
    assert not call.done()
    server.kill()
    disk.lose_power()
    with pytest.raises(redis.ConnectionError):
        call.result(60.0)
    disk.heal()
    server.start()
    assert listed(server) == [], "what was not answered was not synced"
    disk.slow(write=STUCK)
    was = disk.slowed
    call = caller.submit(push, server, "b")
    eventually(lambda: disk.slowed > was, "the disk is slow")
    assert not call.done()
    disk.heal()
    call.result(60.0)
    assert lose_power(server, disk) == ["b"]


def test_a_full_disk_refuses_until_it_is_healed(on_disk: OnDisk) -> None:
    """The server tells its callers; what it took before and what it takes afterwards is on the disk."""
    server, disk = on_disk(appendfsync="everysec")
    push(server, "a")
    disk.fill(room=20)  # bytes: the next record is cut

    def refused() -> bool:
        try:
            push(server, "?")
        except redis.ResponseError as error:
            return "MISCONF" in str(error)
        return False

    eventually(refused, "writes are refused")
    assert disk.refused
    disk.heal()

    def taken() -> bool:
        try:
            push(server, "b")
        except redis.ResponseError:
            return False
        return True

    for _ in range(3):  # the first fsync may have begun before the write; a later one begins behind that
        synced = disk.syncs  # before the write: the server may have synced it before a look behind it
        eventually(taken, "writes are taken again")
        eventually(lambda: disk.syncs > synced, "the server has synced")  # noqa: B023
    left = "".join(lose_power(server, disk))
    assert re.fullmatch(r"a\?*b{1,3}", left)


def test_a_server_that_syncs_always_dies_of_a_full_disk(on_disk: OnDisk) -> None:
    """And starts again on what it had answered for."""
    server, disk = on_disk()
    push(server, "a")
    disk.fill()
    with pytest.raises(redis.ConnectionError):
        push(server, "b")
    eventually(lambda: not server.running, "the server has ended")
    disk.heal()
    server.start()
    assert listed(server) == ["a"]


def test_a_snapshot_finds_no_room(on_disk: OnDisk) -> None:
    server, disk = on_disk()
    push(server, "a")
    disk.fill()
    server.control.bgsave()
    eventually(lambda: server.control.info("persistence")["rdb_last_bgsave_status"] == "err", "it has failed")
    assert disk.refused


# -------------------------------------------------------------------- what fsync makes durable

WRITER = """
import os, signal, sys
def write(name, text, *, flags=0, sync=os.fsync):
    file = os.open(name, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    os.write(file, text)
    if sync: sync(file)
    return file
def sync_names(directory="."):
    os.fsync(os.open(directory, os.O_RDONLY))
"""
KILL = "\nos.kill(os.getpid(), signal.SIGKILL)\n"


@pytest.mark.parametrize(
    ("does", "left"),
    [
        ("", {"old": "old"}),
        ("write('a', b'1', sync=None)", {"old": "old"}),
        ("write('a', b'1', sync=None); sync_names()", {"old": "old", "a": ""}),
        ("write('a', b'1')", {"old": "old", "a": "1"}),
        ("write('a', b'1', sync=os.fdatasync)", {"old": "old", "a": "1"}),
        ("os.write(write('a', b'1'), b'2')", {"old": "old", "a": "1"}),
        ("f = write('a', b'1'); os.write(f, b'2'); os.fsync(f)", {"old": "old", "a": "12"}),
        ("write('old', b'er', flags=os.O_APPEND, sync=None)", {"old": "old"}),
        ("write('old', b'er', flags=os.O_APPEND)", {"old": "older"}),
        ("os.rename('old', 'new')", {"old": "old"}),
        ("os.rename('old', 'new'); sync_names()", {"new": "old"}),
        ("os.rename('old', 'new'); write('new', b'er', flags=os.O_APPEND)", {"new": "older"}),
        ("write('a', b'1'); os.rename('a', 'old')", {"old": "old", "a": "1"}),
        ("write('a', b'1'); os.rename('a', 'old'); sync_names()", {"old": "1"}),
        ("os.unlink('old')", {"old": "old"}),
        ("os.unlink('old'); sync_names()", {}),
        ("os.unlink('old'); write('old', b'1', sync=None)", {"old": "old"}),
        ("os.unlink('old'); write('old', b'1')", {"old": "1"}),
        ("os.truncate('old', 1)", {"old": "o"}),
        ("os.truncate('old', 1); write('old', b'!!', flags=os.O_APPEND, sync=None)", {"old": "o"}),
        ("f = write('a', b'12'); os.ftruncate(f, 1); os.write(f, b'34')", {"old": "old", "a": "1"}),
        ("write('old', b'1', flags=os.O_TRUNC, sync=None)", {"old": ""}),
        ("os.mkdir('in'); write('in/a', b'1', sync=None); sync_names()", {"old": "old"}),
        ("os.mkdir('in'); write('in/a', b'1')", {"old": "old", "in/a": "1"}),
        ("os.mkdir('in'); write('in/a', b'1', sync=None); sync_names('in')", {"old": "old", "in/a": ""}),
        ("os.mkdir('in'); write('in/a', b'1'); os.rename('in/a', 'in/b')", {"old": "old", "in/a": "1"}),
        ("os.mkdir('in'); write('a', b'1'); os.rename('a', 'in/a')", {"old": "old", "a": "1"}),
        (
            "os.mkdir('in'); write('a', b'1'); os.rename('a', 'in/a'); sync_names('in')",
            {"old": "old", "in/a": "1"},
        ),
        ("write('log', b'said', sync=None)", {"old": "old", "log": "said"}),
        ("write('a b', b'1'); sync_names()", {"old": "old", "a b": "1"}),
    ],
)
def test_what_a_process_has_left(tmp_path: Path, does: str, left: dict[str, str]) -> None:
    """A process that is killed behind some calls leaves what these have made durable."""
    with disk_with_old(tmp_path) as disk:
        killed_behind(disk, does)
        disk.lose_power()
        assert texts(disk) == left
        again = disk.lose_power()
        assert again == Lost(), "what is left is on the disk"


def test_what_is_written_during_an_fsync_is_not_synced_by_it(tmp_path: Path) -> None:
    with disk_with_old(tmp_path) as disk:
        disk.slow(sync=STUCK)
        does = """
import threading
file = write('a', b'1', sync=None)
syncs = threading.Thread(target=os.fsync, args=[file]); syncs.start()
sys.stdin.read(1)
os.write(file, b'2')
print(flush=True)
syncs.join()
"""
        with subprocess.Popen(
            program(does), cwd=disk.root, env=environment(disk), stdin=PIPE, stdout=PIPE
        ) as process:
            assert process.stdin
            assert process.stdout
            eventually(lambda: disk.slowed, "it syncs")
            process.stdin.write(b"!")
            process.stdin.flush()
            process.stdout.readline()
            disk.heal()
            process.wait(60.0)
        assert disk.syncs == 1
        assert disk.lose_power().cut == {"a": 1}
        assert texts(disk) == {"old": "old", "a": "1"}


def test_the_last_line_of_a_log_may_be_cut(tmp_path: Path) -> None:
    """An event of which a part is written did not happen."""
    with disk_with_old(tmp_path) as disk:
        killed_behind(disk, "write('a', b'1')")
        with disk._log.open("r+") as log:
            log.truncate(disk._log.stat().st_size - 1)
        disk.lose_power()
        assert texts(disk) == {"old": "old"}


@contextmanager
def disk_with_old(folder: Path) -> Iterator[Disk]:
    """A disk with one file, of a process that does not run yet."""
    missing.need("cc")
    root = folder / "root"
    root.mkdir()
    (root / "old").write_text("old")
    with Disk(root) as disk:
        yield disk


def environment(disk: Disk) -> dict[str, str]:
    variables = {**os.environ, **disk.environment}
    preload(variables, compiled(SHIM))
    return variables


def program(does: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", WRITER + does + KILL]


def killed_behind(disk: Disk, does: str) -> None:
    done = subprocess.run(
        program(does), cwd=disk.root, env=environment(disk), capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def texts(disk: Disk) -> dict[str, str]:
    """What each file has, by its name."""
    files = (path for path in disk.root.rglob("*") if path.is_file())
    return {str(path.relative_to(disk.root)): path.read_text() for path in files}


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what brings one."""
    source = tmp_path / "some.c"
    source.write_text("int answer(void) { return 42; }")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing, match="no cc here: `apt-get install gcc libc6-dev` brings it"):
        compiled(source)
