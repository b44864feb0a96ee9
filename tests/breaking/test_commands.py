"""What is done to a server by commands: memory is full; scripts are forgotten, endless, killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest
import redis

from chaos.faults.memory import MemoryFull
from chaos.faults.scripts import ForeignScript, ScriptsFlushed, ScriptsKilled
from chaos.ledger import Ledger
from chaos.world import World
from tests.servers import RunningServer, start_server
from tests.worlds.waiting import eventually

LONG = "local n = 0; for each = 1, 2e7 do n = n + each end; return 1"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with start_server("valkey") as server:
        yield server


@pytest.fixture
def world(server: RunningServer, tmp_path: Path) -> Iterator[World]:
    """A server, and nobody at it."""
    servers = SimpleNamespace(masters=[server])
    with closing(Ledger(tmp_path, "nemesis")) as ledger:
        world = SimpleNamespace(servers=servers, ledger=ledger, note=lambda *_, **__: None)
        yield cast("World", world)


def test_memory_is_full_until_it_is_healed(server: RunningServer, world: World) -> None:
    fault = MemoryFull()
    fault.strike(world, Random(1))
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        server.control.set("a", "1")
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        server.control.eval("return redis.call('SET', 'a', '1')", 0)
    fault.heal(world)
    assert server.control.set("a", "1")


def test_scripts_are_forgotten(server: RunningServer, world: World) -> None:
    sha = server.control.script_load("return 1")
    assert server.control.evalsha(sha, 0) == 1
    ScriptsFlushed().strike(world, Random(1))
    with pytest.raises(redis.exceptions.NoScriptError):
        server.control.evalsha(sha, 0)


def test_a_foreign_script_is_endless_until_it_is_killed(server: RunningServer, world: World) -> None:
    fault = ForeignScript()
    fault.strike(world, Random(1))
    with pytest.raises(redis.ResponseError, match="BUSY"):
        server.control.eval("return 1", 0)
    fault.heal(world)
    assert server.control.eval("return 1", 0) == 1
    assert server.control.config_get("lua-time-limit") == {"lua-time-limit": "60000"}


def test_scripts_are_killed(server: RunningServer, world: World) -> None:
    """One that runs for long and has written nothing; its caller is told. Afterwards it runs to its end."""
    fault = ScriptsKilled()
    fault.strike(world, Random(1))
    with pytest.raises(redis.ResponseError, match="SCRIPT KILL"):
        server.control.eval(LONG, 0)
    eventually(lambda: fault.killed, "the killer has heard of it")
    fault.heal(world)
    assert server.control.eval(LONG, 0) == 1
