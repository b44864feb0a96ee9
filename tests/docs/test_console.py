"""What the pages tell people to type works, and prints what the pages show.

Each page has a directory, a Valkey and a relay of its own. `BEFORE` makes what a page takes for granted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from relay.client import NewTimer, Reject, SyncRelayClient
from tests.docs import pages
from tests.docs.console import PATIENCE, Terminal, Timers, end_all
from tests.e2e import node
from tests.missing import need, skip
from tests.servers import binary
from tests.worlds.relay.processes import ROOT, Relay, free_address
from tests.worlds.relay.stage import Stage

pytestmark = [pytest.mark.slow, pytest.mark.checkout]

PAGES = sorted({block.page for block in pages.run_by(__file__)})
BY_DEV = ("docs/tutorial/first-timer.md", "examples/javascript/README.md")
"""Pages that start a relay by themselves."""


@pytest.fixture
def terminal(stage: Stage) -> Iterator[Terminal]:
    """A terminal for a page; the addresses of the page's relay are free ones here."""
    grpc, http, api = (free_address() for _ in range(3))
    settings = {
        "RELAY_TARGET": grpc,
        "RELAY_GRPC__LISTEN": grpc,
        "RELAY_HTTP__LISTEN": http,
        "RELAY_API__LISTEN": api,
    }
    instead = {"127.0.0.1:7451": grpc, "127.0.0.1:7452": http, "127.0.0.1:7453": api}
    directory = stage.directory / "page"
    directory.mkdir()
    (directory / "examples").symlink_to(ROOT / "examples")
    terminal = Terminal(directory, settings, {**instead, "/tmp/": f"{directory}/"})
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.mark.usefixtures("one_try")  # or what is made before a page may be made twice
@pytest.mark.parametrize("page", PAGES)
async def test_the_page_tells_the_truth(page: str, stage: Stage, terminal: Terminal) -> None:
    blocks = [block for block in pages.blocks() if block.page == page]
    if "curl" in "".join(block.text for block in blocks):
        need("curl")
    if page not in BY_DEV:
        terminal.environ["RELAY_REDIS__URL"] = stage.server.url
        before, settings = BEFORE.get(page, (nothing, {}))
        here = {name: value for name, value in terminal.environ.items() if name.startswith("RELAY_")}
        await before(stage, stage.relay(settings={**here, **settings}), terminal)
    elif page == "examples/javascript/README.md":
        in_javascript(terminal)
    terminal.replay(blocks, "tests/docs/test_console.py")
    terminal.close()


async def nothing(*_: object) -> None:
    """The page needs only its relay."""


def in_javascript(terminal: Terminal) -> None:
    """The commands run beside the example's files, with its packages installed."""
    try:
        terminal.environ["PATH"] = f"{Path(node.node()).parent}{os.pathsep}{terminal.environ['PATH']}"
    except node.NpmFailed as failure:
        skip(f"npm package ({failure})", "npm ci --prefix examples/javascript")
    terminal.at = ROOT / "examples" / "javascript"
    terminal.instead |= {".venv/bin/relay": "relay", "127.0.0.1:50051": free_address()}


def invoices(numbers: Iterable[int]) -> Timers:
    return {f"invoice-{number}": b'{"invoice": %d}' % number for number in numbers}


async def before_operating(stage: Stage, relay: Relay, terminal: Terminal) -> None:
    """A thousand dead invoices, four of them rejected; reminders for later; reports that nobody takes."""
    numbers = range(4051, 5051)
    for number in numbers:
        if number % 250 == 0:
            await end_all(relay.target, "invoices", invoices([number]), how=Reject("no such customer"))
    terminal.instead["1795275682863-0"] = first_dead(stage)
    rest = invoices(number for number in numbers if number % 250)
    await end_all(relay.target, "invoices", rest, how=ConnectionError())
    with SyncRelayClient(relay.target, timeout=PATIENCE) as timers:
        for topic, count, delay in (("reminders", 23, 3600), ("reports", 4, 0)):
            timers.schedule_batch(
                [NewTimer(topic=topic, payload=b"", timer_id=f"r-{n}", delay=delay) for n in range(count)]
            )
    stage.client.zadd("timers_timeline:reports", {f"r-{n}": time.time() - 90 for n in range(4)})


def first_dead(stage: Stage) -> str:
    """The dead_id of the oldest dead letter of `invoices`."""
    ((found, _),) = cast("list[tuple[bytes, object]]", stage.client.xrange("timers_dead:invoices", count=1))
    return found.decode()


async def before_audit(stage: Stage, relay: Relay, terminal: Terminal) -> None:
    """The journal of a hundred timers that were acknowledged."""
    await end_all(relay.target, "orders", {f"order-{n}": b"" for n in range(100)})


async def before_journal(stage: Stage, relay: Relay, terminal: Terminal) -> None:
    """Three records of one timer: where a handler is quick, its receipt is written with its outcome."""
    deadline = time.monotonic() + 60
    while stage.client.xlen("timers_journal:invoices") != 3:
        assert time.monotonic() < deadline
        stage.client.delete("timers_journal:invoices")
        await end_all(relay.target, "invoices", {"inv-42": b""})


async def before_failure(stage: Stage, relay: Relay, terminal: Terminal) -> None:
    """One dead invoice, under the name that the page uses."""
    await end_all(relay.target, "invoices", {"inv-42": b""}, how=ConnectionError())
    terminal.instead["1767225605123-0"] = first_dead(stage)


def in_wheel() -> Path | None:
    """The redis-cli that comes with a server from pip."""
    server = binary("redis-6")
    beside = server and server.with_name("redis-cli")
    return beside if beside and beside.exists() else None


async def before_dispatch(stage: Stage, relay: Relay, terminal: Terminal) -> None:
    """An entry in the ready list; redis-cli asks this test's server, and prints as it does on a terminal."""
    found = in_wheel() or need("redis-cli")
    terminal.instead["redis-cli "] = f"{found} --no-raw -p {stage.server.port} "
    with SyncRelayClient(relay.target, timeout=PATIENCE) as timers:
        timers.schedule("thumbnails", b"hello", timer_id="t-1", delay=0)


async def before_http_examples(stage: Stage, relay: Relay, terminal: Terminal) -> None:
    """The variable that names the API to the scripts."""
    terminal.environ["API"] = f"http://{relay.api}"


ONE_ATTEMPT = {"RELAY_TOPICS__invoices__RETRY__MAX_ATTEMPTS": "1", "RELAY_DEFAULTS__JOURNAL": "false"}

BEFORE: Mapping[str, tuple[Callable[[Stage, Relay, Terminal], Awaitable[None]], dict[str, str]]] = {
    "docs/how-to/audit.md": (before_audit, {}),
    "docs/how-to/dispatch.md": (before_dispatch, {"RELAY_TOPICS__thumbnails__DISPATCH": "list"}),
    "docs/explanation/failure.md": (before_failure, ONE_ATTEMPT),
    "docs/reference/journal.md": (before_journal, {}),
    "docs/reference/command-line.md": (before_operating, ONE_ATTEMPT),
    "examples/http/README.md": (before_http_examples, {}),
}
