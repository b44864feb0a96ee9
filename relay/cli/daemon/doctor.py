"""`relay doctor`: checks a Redis and a configuration, and says in plain words what is wrong."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import anyio
import typer

from relay.cli.daemon import doctor_findings, doctor_nodes, healthcheck
from relay.cli.daemon.doctor_calendars import calendars
from relay.cli.daemon.doctor_findings import Finding
from relay.cli.terminal import output
from relay.cli.terminal.exits import FAILURE, OK, UNAVAILABLE
from relay.cli.terminal.redis_connection import advice, unheeded
from relay.client.credentials import Credentials
from relay.client.errors import InvalidArgument
from relay.core.dispatch import Dispatch
from relay.core.durability import MOST_REPLICAS, Durability
from relay.core.endpoints.redis_url import parse
from relay.core.endpoints.secrets import mask
from relay.core.errors import ServiceError, StoreError, StoreRefused, StoreUnavailable, UnfitServer
from relay.core.policy import TargetTls
from relay.settings import Settings, SettingsError, doubtful, load
from relay.settings.keys import key_names
from relay.store import examine
from relay.store.census import census
from relay.store.dispatch.promotions import RedisPromotions
from relay.store.examine import ServerFacts
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.layouts import RedisLayouts, look_up
from relay.store.partitions.topics import PartitionedTopics
from relay.store.server.connect import guess
from relay.store.server.explain import explain, explained
from relay.store.server.fitness import lacking
from relay.store.server.hints import deafness
from relay.store.server.probing.commands import BASE, BEHIND, Feature, lack_of
from relay.store.server.server import Server, ServerReports
from relay.store.timeline.topics import RedisTopics

MOST_TOPICS = 500
"""The most topics that are checked; each costs a few round trips."""

HEALTH_TIMEOUT = 3.0

COLOURS = {"ok": "green", "note": "yellow", "wrong": "red"}


def doctor(config: Path | None, as_json: bool, *, push: bool = True) -> None:
    """Check everything that can be; exits with 1 if anything is wrong, with 4 if Redis can't be reached.

    With `push` the applications that relays push to are called, too.
    """
    counts = {"ok": 0, "note": 0, "wrong": 0}
    is_away = False

    async def run() -> None:
        nonlocal is_away
        async for finding in examined(config, push=push):
            counts[finding.result] += 1
            is_away = is_away or finding.is_away
            _print(finding, as_json)

    anyio.run(run)
    if not as_json:
        typer.echo(f"{counts['wrong']} wrong, {counts['note']} to note, {counts['ok']} ok", err=True)
    raise typer.Exit(UNAVAILABLE if is_away else FAILURE if counts["wrong"] else OK)


def _print(finding: Finding, as_json: bool) -> None:
    message = mask(finding.message)
    if as_json:
        document = {"check": finding.check, "result": finding.result, "message": message}
        output.document({**document, **finding.figures})
        return
    word = typer.style(f"{finding.result:5}", fg=COLOURS[finding.result])
    typer.echo(f"{word}  {finding.check:11}  {output.safe(message)}")


async def examined(config: Path | None, *, push: bool = True) -> AsyncIterator[Finding]:
    """Yield all findings as they are made."""
    try:
        settings = load(config)
    except SettingsError as error:
        for problem in error.problems:
            yield Finding("settings", "wrong", problem)
        return
    for sentence in (*doubtful(os.environ), *unheeded(settings)):
        yield Finding("settings", "note", sentence)
    where = config or "defaults and RELAY_… variables"
    yield Finding("settings", "ok", f"{where}: {len(settings.topics)} topics have an entry of their own")
    async for finding in _redis(settings):
        yield finding
    pushed = settings.policies().pushed().values() if push else ()
    targets = {(policy.target, policy.target_tls) for policy in pushed}
    for target, tls in sorted(targets, key=str):
        yield await anyio.to_thread.run_sync(_pushed, target, tls)


async def _redis(settings: Settings) -> AsyncIterator[Finding]:
    url, timeout = settings.redis.location, settings.redis.start_timeout
    refused_hints: list[str] = []
    try:
        server = Server(
            url,
            key_names(settings.redis),
            connections=2,
            timeout=timeout,
            journals=examine.TRIAL_JOURNALS,
            reports=ServerReports(refused_hint=refused_hints.append),
        )
    except (UnfitServer, ValueError) as failure:
        yield Finding("redis", "wrong", str(failure))
        return
    async with server:
        try:
            async with explained():
                nodes = await examine.facts(server)
        except UnfitServer as failure:
            yield Finding("redis", "wrong", str(failure))
            return
        except StoreRefused as failure:
            words = str(lack_of(str(failure.__cause__ or failure)) or failure)
            yield Finding("redis", "wrong", f"{settings.redis.url} can't be used: {words}{advice(settings)}")
            return
        except StoreError as failure:
            hint = guess(url, str(failure))
            is_away = isinstance(failure, StoreUnavailable)
            words = f"{settings.redis.url} can't be used: {failure}{hint}{advice(settings)}"
            yield Finding("redis", "wrong", words, is_away=is_away)
            return
        async for finding in _reached(settings, server, nodes, refused_hints):
            yield finding


async def _reached(
    settings: Settings, server: Server, nodes: Sequence[ServerFacts], refused_hints: Sequence[str]
) -> AsyncIterator[Finding]:
    """Yield what there is to say of a server, or of nodes, that can be reached."""
    async for finding in _fitness(settings, server, nodes):
        yield finding
    names, unread = set(settings.topics), None
    try:
        names |= set(await RedisTopics(server).topics())
    except ServiceError as failure:  # the node that has the set of topics may be away
        unread = failure
    try:
        async for finding in _use(settings, server, refused_hints):
            yield finding
        if unread is not None:
            raise unread
        async for finding in _kept(settings, server, sorted(names)):
            yield finding
    except StoreUnavailable as failure:
        words = f"went away while it was looked at: {explain(failure)}"
        yield Finding("redis", "wrong", words, is_away=True)
        if not server.is_cluster:
            return
    except ServiceError as failure:
        yield Finding("redis", "wrong", f"refuses what the rest needs: {failure}")
    async for finding in _spread(settings, server, nodes, sorted(names)):
        yield finding


async def _fitness(
    settings: Settings, server: Server, nodes: Sequence[ServerFacts]
) -> AsyncIterator[Finding]:
    """Yield what the server says about itself, and which nodes say nothing."""
    names = ", ".join(dict.fromkeys(facts.name for facts in nodes))
    what = f"a Cluster, of which {len(nodes)} masters answer" if server.is_cluster else "a master"
    yield Finding("redis", "ok", f"{names} at {settings.redis.url}, {what}")
    every = [*doctor_nodes.missing(server.slots, nodes)]
    every += [finding for facts in nodes for finding in doctor_findings.fitness(settings, facts)]
    for finding in dict.fromkeys(every):
        yield finding
    async for finding in _commands(settings, server):
        yield finding
    async for finding in _durability(settings, server, nodes):
        yield finding


async def _commands(settings: Settings, server: Server) -> AsyncIterator[Finding]:
    """Yield which commands the server does not give, and what they are needed for."""
    behind = {policy.dispatch for policy in settings.policies().promoted().values()}
    needs = [*BASE, Feature.MOVES, *(BEHIND[each] for each in behind if each in BEHIND)]
    try:
        lacks = await lacking(server, needs)
    except StoreError as failure:
        yield Finding("commands", "note", f"can't be looked at: {explain(failure)}")
        return
    for finding in doctor_findings.commands(lacks):
        yield finding


async def _durability(
    settings: Settings, server: Server, nodes: Sequence[ServerFacts]
) -> AsyncIterator[Finding]:
    """Yield which levels the server can give, in a Cluster every node, and which settings ask for others."""

    async def lack(level: Durability) -> str:
        return next(filter(None, (await server.lacks(level)).values()), "")

    policies = settings.policies()
    replicas = min(MOST_REPLICAS, *(facts.replicas for facts in nodes))
    levels = [Durability(fsync=True)] + [Durability(replicas=replicas)] * (replicas > 0)
    try:
        given = {str(level): await lack(level) for level in levels}
        yield doctor_findings.durability(given, replicas)
        for setting, level in policies.durabilities().items():
            if lacks := await lack(level):
                yield doctor_findings.not_durable(setting, lacks)
            elif parse(settings.redis.location).master:
                for finding in doctor_findings.may_come_back(setting, level, nodes[0]):
                    yield finding
    except StoreError as failure:
        yield Finding("durability", "note", f"can't be looked at: {explain(failure)}")


async def _use(settings: Settings, server: Server, refused_hints: Sequence[str]) -> AsyncIterator[Finding]:
    """Yield what a try of each operation shows."""
    ahead, trip = await examine.clock(server)
    yield doctor_findings.clock(ahead)
    yield doctor_findings.latency(trip)
    policies = settings.policies()
    journal = any(policy.journal for policy in (policies.default, *policies.own.values()))
    refused = await examine.refusals(server, tuple(settings.topics), journal=journal)
    for dispatch, policy in {each.dispatch: each for each in policies.promoted().values()}.items():
        has_journal = any(p.journal for p in policies.promoted().values() if p.dispatch is dispatch)
        refused += await examine.refusals_behind(server, policy, journal=has_journal)
    for what, why in refused:
        advice = "give the user what docs/how-to/redis.md lists"
        yield Finding("permissions", "wrong", f"Redis does not let us {what}: {why}; {advice}")
    if not refused:
        yield Finding("permissions", "ok", "all that a relay does works, tried on a topic of its own")
    problems = [f"Redis does not let scripts publish them: {why}" for why in refused_hints[:1]]
    for finding in doctor_findings.wake_hints([*problems, *await deafness(server)]):
        yield finding


async def _kept(settings: Settings, server: Server, names: Sequence[str]) -> AsyncIterator[Finding]:
    """Check what is kept for these topics."""
    async for finding in _topics(settings, server, names):
        yield finding
    async for finding in calendars(server, names[:MOST_TOPICS]):
        yield finding


async def _topics(settings: Settings, server: Server, names: Sequence[str]) -> AsyncIterator[Finding]:
    """Check each of these topics; one line stands for all that are fine."""
    topics = PartitionedTopics(RedisTopics(server), RedisLayouts(server), Carrier(server))
    policies = settings.policies()
    promotions = RedisPromotions(server, policies)
    if len(names) > MOST_TOPICS:
        words = f"there are {len(names)}; only the first {MOST_TOPICS} were looked at"
        yield Finding("topics", "note", words)
    quiet = True
    for name in names[:MOST_TOPICS]:
        policy, layout = policies(name), await look_up(server, name)
        foreign = [
            found
            for part in layout.partitions
            for found in await examine.foreign_types(server, part, journal=policy.journal, policy=policy)
        ]
        for finding in doctor_findings.foreign(foreign):
            quiet = False
            yield finding
        if foreign:
            continue
        stats, marks = await topics.stats(name), await examine.sweep_marks(server, layout)
        beyond = await examine.out_of_use(server, layout)
        for finding in doctor_findings.partitions(layout, policy, stats, server.places, beyond):
            yield finding
        swept = doctor_findings.unfinished(name, marks, stats.now) if marks is not None else ()
        unusable = doctor_findings.unusable(stats, server.keys)
        for finding in (*unusable, *doctor_findings.dispatched(stats), *swept):
            quiet = False
            yield finding
        if policy.dispatch is not Dispatch.LEASE:
            for finding in doctor_findings.behind(name, await promotions.state(name)):
                quiet = False
                yield finding
    if quiet:
        yield Finding("topics", "ok", f"{len(names[:MOST_TOPICS])}, with nothing overdue, paused or dead")


async def _spread(
    settings: Settings, server: Server, nodes: Sequence[ServerFacts], names: Sequence[str]
) -> AsyncIterator[Finding]:
    """Yield what each node has and holds. Nodes that are away, and what Redis refuses, are left out here."""
    counted = await census(server, names[:MOST_TOPICS], [facts.place for facts in nodes])
    for finding in doctor_nodes.spread(nodes, counted, settings.policies()):
        yield finding


def _pushed(target: str, tls: TargetTls) -> Finding:
    """Check whether an application that a relay would dial can be called."""
    shown = Credentials(ca=tls.ca, certificate=tls.certificate, key=tls.key)
    try:
        status, reason = healthcheck.ask(target, HEALTH_TIMEOUT, wait=False, shown=shown)
    except InvalidArgument as error:
        return Finding("push", "wrong", f"delivery.tls: {error.message}")
    if status == "SERVING":
        return Finding("push", "ok", f"the application at {target} is SERVING")
    if status == "UNIMPLEMENTED":
        return Finding("push", "note", f"the application at {target} answers, without grpc.health.v1")
    if status:
        return Finding("push", "wrong", f"the application at {target} is {status}: its timers wait")
    return Finding(
        "push", "wrong", f"the application at {target} can't be reached: {reason}; its timers wait"
    )
