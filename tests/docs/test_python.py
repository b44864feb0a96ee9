"""The pages' Python compiles, imports what is there, and does what it looks like."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import grpc.aio
import pytest

import relay.client
from relay.client import PushHandlers, RelayClient, SyncRelayClient
from relay.client.testing import InMemoryRelay, Outcome
from tests.docs import pages
from tests.worlds.relay.processes import ROOT, Process, free_address
from tests.worlds.relay.stage import Stage, one_relay
from tests.worlds.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.docs.pages import Block
    from tests.servers import RunningServer

pytestmark = pytest.mark.checkout

OURS = pages.run_by(__file__)
PROGRAMS = [block for block in OURS if re.search(r"^asyncio\.run\(", block.text, re.MULTILINE)]
SUITES = [block for block in OURS if re.search(r"def test_|@pytest\.fixture", block.text)]
WORKERS = [block for block in OURS if "redis.Redis()" in block.text]
REST = [block for block in OURS if block not in (*PROGRAMS, *SUITES, *WORKERS)]
PAYLOAD = json.dumps({"to": "a@example.org"}).encode()


def place(block: Block) -> str:
    return block.place


@pytest.mark.parametrize("block", [*pages.blocks("python"), *pages.blocks("py")], ids=place)
def test_it_compiles_and_imports_what_is_there(block: Block) -> None:
    compile(block.text, block.place, "exec")
    if "pyspark" in block.text and find_spec("pyspark") is None:
        return  # tests/pipeline runs it
    for line in block.text.splitlines():
        if not line.startswith(("import ", "from ")):
            continue
        if find_spec(line.split()[1].partition(".")[0]) is not None:  # Sentry is not here
            exec(line, {})


def run(block: Block) -> dict[str, Any]:
    """What the block defines."""
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(block.text, block.place, "exec", dont_inherit=True), names)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("block", PROGRAMS, ids=place)
def test_a_program_handles_a_timer_and_ends_in_order(block: Block, stage: Stage) -> None:
    """It runs as it is, beside a relay that knows where it listens if it does."""
    at = free_address()
    (topic,) = re.findall(r"\.on\(\"(\w+)\"", block.text)
    pushed = {
        f"RELAY_TOPICS__{topic}__DELIVERY__MODE": "push",
        f"RELAY_TOPICS__{topic}__DELIVERY__TARGET": at,
    }
    relay = stage.relay(settings=pushed if "PushHandlers" in block.text else {})
    program = stage.directory / "program.py"
    program.write_text(block.text.replace("127.0.0.1:7460", at), encoding="utf-8")
    process = stage.join(Process((), stage.directory / "program.log", {"RELAY_TARGET": relay.target}))
    process.arguments = [sys.executable, str(program)]
    process.spawn()
    with SyncRelayClient(relay.target) as timers:
        timers.schedule(topic, PAYLOAD, delay=0)
    eventually(lambda: "reminding a@example.org" in process.output(), "the handler has printed")
    stage.wait_empty(topic)
    assert process.terminate() == 0


@pytest.mark.slow
def test_the_suites_pass(tmp_path: Path) -> None:
    """Each block as a test module of its own."""
    assert len(SUITES) >= 4
    for number, block in enumerate(SUITES):
        used = (
            "\n\nasync def test_fixture(relay):\n    assert relay\n" if "def test_" not in block.text else ""
        )
        (tmp_path / f"test_{number}.py").write_text(block.text + used, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "anyio_mode=auto"]
    done = subprocess.run(
        [*command, "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, tmp_path],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert f"{len(SUITES)} passed" in done.stdout


@pytest.mark.parametrize("block", WORKERS, ids=place)
def test_a_worker_takes_an_entry(
    block: Block, valkey: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = b'{"timer_id":"t-1"}\nhello'
    here = block._replace(text=block.text.replace("redis.Redis()", f"redis.Redis(port={valkey.port})"))
    with valkey.client() as client:
        client.lpush("timers_ready:thumbnails", entry)
        run(here)["server"].close()
        assert client.keys("*thumbnails*") == []
    assert capsys.readouterr().out == ("t-1 b'hello'\n" if "print" in block.text else "")


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """A relay that the page's functions may call."""
    with one_relay() as relay:
        yield relay.target


@pytest.mark.slow
@pytest.mark.usefixtures("one_try")
@pytest.mark.parametrize("block", REST, ids=place)
async def test_its_functions_work(block: Block, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that take a client or nothing are called with a real relay; handlers get a timer in memory."""
    monkeypatch.setenv("RELAY_TARGET", target)
    names = run(block)
    ours = [found for found in names.values() if getattr(found, "__module__", "") == "page"]
    for function in filter(inspect.isfunction, ours):
        parameters = set(inspect.signature(function).parameters)
        if parameters == {"client"}:
            await called(function)
        elif not parameters and inspect.iscoroutinefunction(function):
            await function()
        elif not parameters:
            await asyncio.to_thread(function)
    end = names.get("client")
    topics = re.findall(r"\.on\(\"(\w+)\"", block.text)
    if isinstance(end, RelayClient) and topics:
        async with InMemoryRelay(end) as relay:
            for topic in topics:
                await end.schedule(topic, PAYLOAD, delay=0)
            outcomes = {delivered.outcome for delivered in await relay.run_due()}
            assert outcomes <= {Outcome.ACK, Outcome.RESCHEDULE}
            assert outcomes


async def called(function: Callable[[RelayClient], Awaitable[None]]) -> None:
    """With a client that is open; or, where the function itself runs the client, one that is stopped then."""
    client = RelayClient()
    if "run" not in function.__code__.co_names:
        async with client:
            await function(client)
        return

    @client.on("page")
    async def stop(_: object) -> None:
        client.stop()

    async with RelayClient() as other:
        await other.schedule("page", b"", delay=0)
    await asyncio.wait_for(function(client), 60)


async def test_outcomes_are_what_the_comments_say() -> None:
    on_its_page = [block for block in REST if block.page == "docs/reference/client.md"]
    (block,) = [block for block in on_its_page if "raise Reject(" in block.text]
    client = RelayClient()
    client.on("t")(run(block)["handle"])
    async with InMemoryRelay(client) as relay:
        for tenant in ("north", "south", "east", "west"):
            await client.schedule("t", b"", delay=0, headers={"tenant": tenant}, timer_id=tenant)
        await client.schedule("t", b"", delay=0, timer_id="nobody's")
        ended = {delivered.timer_id: delivered.outcome for delivered in await relay.run_due()}
        assert ended["north"] is Outcome.NACK
        assert ended["east"] is Outcome.RESCHEDULE
        assert ended["west"] is Outcome.ACK
        assert {dead.timer_id: dead.reason for dead in relay.dead} == {
            "south": "failed",
            "nobody's": "rejected",
        }


async def test_handlers_on_a_server_of_ones_own() -> None:
    (block,) = [block for block in REST if "push.add_to(server)" in block.text]
    server, at = grpc.aio.server(), free_address()
    server.add_insecure_port(at)
    running = asyncio.create_task(run(block)["main"](PushHandlers(), server))
    async with grpc.aio.insecure_channel(at) as channel:
        await asyncio.wait_for(channel.channel_ready(), 60)
    await server.stop(0)
    await asyncio.wait_for(running, 60)


def test_each_public_name_of_the_client_has_an_example() -> None:
    """In a block that is run, on the page of its names: beside its import."""
    code = "\n".join(block.text for block in REST if block.page == "docs/reference/client-names.md")
    used = re.sub(r"^from .*$", "", code, flags=re.MULTILINE)
    assert [name for name in relay.client.__all__ if not re.search(rf"\b{name}\b", used)] == []
