"""What all layers of the suite share: real servers, the key-leak check, no skips where all is required."""

from __future__ import annotations

import os
import signal
import threading
from functools import cache
from typing import TYPE_CHECKING

import pytest
import redis.utils
import typer.main
import typer.testing
from hypothesis import settings

import relay
from tests import missing
from tests.chaos import CHAOS
from tests.keyspace import Keyspace
from tests.servers import KINDS, SCRIPTED, RunningServer, ServerPool, server_id
from tests.turns import in_turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator

    from tests.worlds.relay.stage import Stage

# No example by chance, and none that fails because the machine was busy.
settings.register_profile("relay", derandomize=not CHAOS, deadline=None)
settings.load_profile("relay")

# redis-py parses its own package's metadata for each client, and a test makes a dozen: a third of its time.
redis.utils.get_lib_version = cache(redis.utils.get_lib_version)

# Typer builds all of Relay's commands anew for each call in this process; a real one builds them once.
vars(typer.testing)["_get_command"] = cache(typer.main.get_command)

# A shell starts what it puts into the background with SIGINT ignored, and children inherit that: those
# that are to be ended by Ctrl-C would never end.
in_main = threading.current_thread() is threading.main_thread()
if in_main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REQUIRE_ALL = os.environ.get("RELAY_REQUIRE_ALL") == "1"
SERVER_FIXTURES = {"redis_server", "scripted_server", "valkey", "server_pool", "keyspace"}


def pytest_report_header() -> str:
    return f"relay: {relay.__file__}\nservers: {', '.join(map(server_id, KINDS))}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not CHAOS:
        left_out = [item for item in items if item.get_closest_marker("chaos")]
        items[:] = [item for item in items if not item.get_closest_marker("chaos")]
        config.hook.pytest_deselected(items=left_out)
    for item in items:
        if SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.server)


# ------------------------------------------------- RELAY_REQUIRE_ALL=1: a skip is a failure


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not REQUIRE_ALL or report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"{report.nodeid}: RELAY_REQUIRE_ALL=1 forbids skips. {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The last line before pytest's own: what was skipped, and which command brings what it needs."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.write_line(missing.advice(report.longrepr[2] for report in skipped))


# ----------------------------------------------------------------------------- servers


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"  # grpc.aio knows no other


@pytest.fixture(scope="session", autouse=True)
async def one_loop(anyio_backend: str) -> AsyncIterator[None]:
    """Keep one event loop for all tests of a worker.

    grpc.aio has one completion queue for the process: an event that arrives late, after its loop
    was closed, would fail whichever test runs by then ("Event loop is closed"). The backend is asked
    for by name: else a test that isn't async, where it is a worker's first one, could not set this up.
    """
    yield  # noqa: PT022 (the loop lives as long as this does)


@pytest.fixture(scope="session")
def server_pool() -> Iterator[ServerPool]:
    """The servers that this worker's tests share."""
    pool = ServerPool()
    yield pool
    pool.close()


SERVERS = {"redis_server": KINDS, "scripted_server": SCRIPTED}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Which kinds of server a test meets: see tests/turns.py."""
    for name in SERVERS.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(name, in_turn(metafunc, SERVERS[name]), indirect=True, ids=server_id)


@pytest.fixture
def redis_server(request: pytest.FixtureRequest, server_pool: ServerPool) -> RunningServer:
    """A kind of server whose turn it is, shared by the worker's tests."""
    return server_pool.get(request.param)


@pytest.fixture
def scripted_server(request: pytest.FixtureRequest, server_pool: ServerPool) -> RunningServer:
    """The same, and a server whose scripts run by Lua 5.4."""
    return server_pool.get(request.param)


@pytest.fixture
def valkey(server_pool: ServerPool) -> RunningServer:
    """The embedded Valkey alone, shared by the worker's tests."""
    return server_pool.get("valkey")


@pytest.fixture
def keyspace(server_pool: ServerPool) -> Iterator[Keyspace]:
    """Fresh topic names; fails a test that leaves keys of anything else behind, and flushes the servers."""
    Keyspace(server_pool).flush()  # of what a test without this fixture has left
    space = Keyspace(server_pool)
    yield space
    leaks = space.leaks()
    space.flush()
    if leaks:
        pytest.fail(f"the test left keys behind that carry none of its topics: {leaks}")


@pytest.fixture
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own clients make no second try because the first one's answer takes more than a second: for
    a test that tells them apart, by what is recorded of them or by their answers."""
    from relay.client.calls import timer_calls
    from tests.worlds.waiting import make_one_try

    monkeypatch.setattr(timer_calls, "TRY_TIMEOUT", timer_calls.TRY_TIMEOUT)  # as it is afterwards
    make_one_try()


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Whole relays and their applications, on a server of the test's own."""
    from tests.worlds.relay.stage import Stage, staged

    with staged(Stage) as stage:
        yield stage
