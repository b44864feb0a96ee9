"""One row, from its first server to its verdict."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos import ledger
from chaos.judging.journal import SecondOpinion, second_opinion
from chaos.judging.judge import Judge
from chaos.ledger import Ledger
from chaos.nemesis import Nemesis
from chaos.rows import LEASE_TTL, Row
from chaos.topologies import MAKE, Servers
from chaos.under.clocks import Clocks
from chaos.under.disk import Disk
from chaos.witness import Witness
from chaos.world import TOPIC, Line, World
from relay import __version__
from tests.servers import server_id
from tests.worlds.relay.processes import ROOT, Process, Relay, command
from tests.worlds.waiting import eventually

NAMES = "one", "two"
"""The relays."""
CLIENTS = 2
CALLERS = *(f"client-{n}" for n in range(1, CLIENTS + 1)), "operator"
RECURRENCES = 5
OPERATORS_PATIENCE = 5.0
"""Seconds that a call of the operator may take."""
SETTINGS = {
    "RELAY_DEFAULTS__JOURNAL": "true",  # for the second opinion
    "RELAY_DEFAULTS__JOURNAL_MAX_LENGTH": "100000000",
    "RELAY_DEFAULTS__LEASE_TTL": str(LEASE_TTL),
    "RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "1",
    "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "1000",  # applications are killed all the time
    "RELAY_DRAIN_TIMEOUT": "5",
}
WRITING = 900.0
"""Seconds within which callers that were told to end have ended."""
STILL, LONGEST = 40.0, 600.0
"""Seconds without a delivery, and seconds in all, after which what is missing counts as lost."""

Tell = Callable[[str], None]
Result = dict[str, Any]


def end_by_sigterm() -> None:
    """Have SIGTERM end this process in order, and with it all processes of the row."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def run(row: Row, seed: int, tell: Tell, *, code: Path | None = None, keep: Path | None = None) -> Result:
    """Play the row, and judge it. `code` is where relays import Relay from, if not from this clone; `keep` is
    a new folder for the ledgers and the logs, which are removed otherwise."""
    began = time.monotonic()
    # Not under a long path: a server's configuration may name a Unix socket there.
    directory = keep or Path(tempfile.mkdtemp(prefix="relay-chaos-"))
    directory.mkdir(exist_ok=True)
    try:
        with the_world(row, directory, code, seed) as world:
            nemesis = Nemesis(world, row.faults(), row.number, seed)
            row.prepare(world)
            until_loaded(world)
            nemesis.run(tell)
            tell("all faults are over")
            end_load(world)
            judge = wait_for_the_rest(world, tell)
            if judge.waiting and row.clocks:
                judge = run_by_hand(world, judge, tell)
            second = second_opinion(world.servers.url, directory, judge, may_lose=row.may_lose)
        judge = Judge(ledger.read(directory), LEASE_TTL)
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    return result(row, seed, judge, second, nemesis.done, time.monotonic() - began)


@contextmanager
def the_world(row: Row, directory: Path, code: Path | None, seed: int) -> Iterator[World]:
    """All of it, running, with its load."""
    with ExitStack() as stack:
        servers = MAKE[row.topology](config_of(row))
        stack.callback(servers.close)
        disks = (
            {each.port: stack.enter_context(Disk.under(each)) for each in servers.all} if row.disks else {}
        )
        clocks = Clocks(directory / "clocks", servers.all) if row.clocks else None
        own = Ledger(directory, "nemesis")
        witness = stack.enter_context(Witness(servers.all, own))
        world = World(directory, servers, own, witness, LEASE_TTL, disks=disks, clocks=clocks)
        if row.lines:
            world.to_servers = {name: lines_to(stack, servers) for name in NAMES}
        world.relays = [a_relay(stack, row, world, name, code) for name in NAMES]
        if row.lines:
            world.to_relays = {each.name: a_line(stack, port_of(each.target)) for each in world.relays}
        world.applications = [an_application(stack, world, each) for each in world.relays]
        world.until_whole()
        targets = ",".join(each.target for each in world.relays)
        world.clients = [a_client(stack, row, world, targets, n, seed) for n in range(1, CLIENTS + 1)]
        world.clients = [*world.clients, an_operator(stack, row, world, targets)]
        yield world


def config_of(row: Row) -> Mapping[str, str]:
    """The servers' configuration."""
    own: dict[str, str] = {"appendfsync": row.sync, **row.config}
    if row.topology == "cluster":
        own |= {"cluster-node-timeout": "1000", "cluster-allow-replica-migration": "no"}
    return own


# ------------------------------------------------------------------------------ processes


def a_relay(stack: ExitStack, row: Row, world: World, name: str, code: Path | None) -> Relay:
    url, lines = world.servers.url, world.to_servers.get(name)
    settings = dict(SETTINGS)
    if row.topology == "cluster":
        settings["RELAY_DEFAULTS__PARTITIONS"] = "4"
        if lines:
            pairs = ",".join(f"127.0.0.1:{port}=127.0.0.1:{line.port}" for port, line in lines.items())
            url = f"{url}?addresses={pairs}"
    elif lines:
        (line,) = lines.values()  # Sentinels name their servers themselves
        url = line.url
    relay = Relay(world.directory, name, url, None, settings)
    relay.root = code or ROOT
    if world.clocks:
        world.clocks.give("relay", name, relay.settings)
    stack.callback(relay.kill)
    relay.start()
    return relay


def an_application(stack: ExitStack, world: World, relay: Relay) -> Process:
    name, line = f"of-{relay.name}", world.to_relays.get(relay.name)
    target = f"127.0.0.1:{line.port}" if line else relay.target
    return a_process(stack, world, "application", name, "--target", target)


def a_client(stack: ExitStack, row: Row, world: World, targets: str, number: int, seed: int) -> Process:
    options = {
        "targets": targets,
        "seed": seed * CLIENTS + number,
        "timers": -(-row.timers // CLIENTS),
        "seconds": row.timers / row.rate,
        "level": asked_level(row),
        "patience": row.patience,
    }
    return a_process(stack, world, "client", f"client-{number}", *on_a_command_line(options))


def an_operator(stack: ExitStack, row: Row, world: World, targets: str) -> Process:
    options = {
        "targets": targets,
        "recurrences": RECURRENCES,
        "level": asked_level(row),
        "patience": OPERATORS_PATIENCE,
    }
    return a_process(stack, world, "operator", "operator", *on_a_command_line(options))


def asked_level(row: Row) -> str:
    """What each call asks for; nothing, where that is what the topic has anyway."""
    return "" if row.level == "stored" else row.level


def on_a_command_line(options: Mapping[str, object]) -> list[str]:
    return [part for name, value in options.items() for part in (f"--{name}", str(value))]


def a_process(stack: ExitStack, world: World, module: str, name: str, *options: str) -> Process:
    arguments = [f"chaos.load.{module}", "--ledgers", str(world.directory), "--name", name, *options]
    process = Process(arguments, world.directory / f"{name}.log", {})
    if world.clocks and module == "application":
        world.clocks.give("application", name, process.settings)
    stack.callback(process.kill)
    process.spawn()
    return process


def lines_to(stack: ExitStack, servers: Servers) -> dict[int, Line]:
    return {each.port: a_line(stack, each.port) for each in servers.all}


def a_line(stack: ExitStack, port: int) -> Line:
    return stack.enter_context(Line(port))


def port_of(target: str) -> int:
    return int(target.rpartition(":")[2])


# ------------------------------------------------------------------------- begin and end


def until_loaded(world: World) -> None:
    """Until each caller was answered, and each handler has begun: what breaks before that breaks nothing, and
    processes take seconds to start. Raises AssertionError."""
    handlers = [f"of-{each.name}" for each in world.relays]
    eventually(lambda: said(world, "answer", CALLERS) == len(CALLERS), "all callers are answered")
    eventually(lambda: said(world, "begin", handlers) == len(handlers), "all handlers have begun")


def end_load(world: World) -> None:
    """Until all timers are written and all callers have had their last answer. Raises AssertionError."""
    callers = world.clients[:CLIENTS]
    eventually(lambda: said(world, "written", CALLERS) == CLIENTS, "all timers are written", WRITING)
    for each in world.clients:
        each.signal(signal.SIGTERM)
    eventually(lambda: said(world, "done", CALLERS) == len(CALLERS), "all callers have ended", WRITING)
    for each in callers:
        assert each.wait() == 0, each.output()[-2000:]


def said(world: World, kind: str, names: Iterable[str]) -> int:
    """How many of these have written such a line."""
    paths = [world.directory / f"{name}.jsonl" for name in names]
    return sum(any(entry["kind"] == kind for entry in ledger.lines(path)) for path in paths if path.exists())


def wait_for_the_rest(world: World, tell: Tell) -> Judge:
    """The judge, once nothing is waited for any more, or nothing has come for a while."""
    began = last = time.monotonic()
    seen = -1
    while True:
        judge = Judge(ledger.read(world.directory), LEASE_TTL)
        if judge.is_over:
            return judge
        tell(f"waits for {len(judge.missing)} timers")
        if len(judge.deliveries) != seen:
            last, seen = time.monotonic(), len(judge.deliveries)
        elif time.monotonic() - last > STILL:
            return judge
        if time.monotonic() - began > LONGEST:
            return judge
        time.sleep(2.0)


def run_by_hand(world: World, judge: Judge, tell: Tell) -> Judge:
    """The judge, once timers were run that wait for a retry. A server's clock that steps back by an hour
    leaves them waiting for that long, and `relay run` is the way out; what is not there stays lost."""
    for name in judge.waiting:
        ran = command("run", TOPIC, name, "--target", world.relays[0].target)
        if ran.code == 0:
            world.ledger.write("by hand", id=name)
    return wait_for_the_rest(world, tell)


def result(
    row: Row, seed: int, judge: Judge, second: SecondOpinion, faults: Mapping[str, int], seconds: float
) -> Result:
    """The row's line in the file of results."""
    verdict = judge.verdict
    lost = verdict.lost_explained + verdict.undone_explained
    kept = not verdict.broken and (row.may_lose or not lost)
    if row.calm:
        kept = kept and not (verdict.twice + verdict.uncounted + verdict.overcounted)
    agrees = second.agrees(judge)
    return {
        "row": row.name,
        "seed": seed,
        "ok": kept and agrees,
        "agrees": agrees,
        "faults": dict(faults),
        "verdict": asdict(verdict),
        "second": asdict(second),
        "asked": {"timers": row.timers, "faults": row.number, "rate": row.rate, "sync": row.sync},
        "topology": row.topology,
        "level": row.level,
        "lease_ttl": LEASE_TTL,
        "machine": machine(judge),
        "seconds": round(seconds, 1),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def machine(judge: Judge) -> dict[str, Any]:
    """What the row ran on, and how busy that was: medians and the worst second."""
    loads = [entry for entry in judge.entries if entry["kind"] == "load"]
    told: dict[str, Any] = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "relay": __version__,
        "server": server_id("valkey"),
    }
    for what in ("busy", "stolen", "waiting"):
        parts = [entry[what] for entry in loads] or [0.0]
        told[what] = {"median": round(statistics.median(parts), 2), "most": max(parts)}
    return told
