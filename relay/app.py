"""The composition root: puts the parts of the daemon together, and takes them down in order."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from relay import __version__
from relay.api.access import Access
from relay.api.call_time import CallTime
from relay.api.people.actions import Actions
from relay.api.recurring.calendars import CalendarCalls
from relay.api.recurring.calls import RecurrenceCalls
from relay.callers import Callers, callers_by
from relay.console.app import AT, Console, Front
from relay.core.endpoints.secrets import mask
from relay.core.errors import CannotListen, ServiceError, StoreUnavailable
from relay.core.journal import Journals
from relay.core.ports import Stores
from relay.core.trust.actions import RELAY
from relay.declared.applying import apply
from relay.declared.reading import Declared, read_declared
from relay.engine.clock import SystemClock
from relay.engine.engine import Engine
from relay.engine.event_loop import loop_factory, recent_stall
from relay.engine.reports.hint_refusals import HintRefusals
from relay.engine.reports.journal_trims import JournalTrims
from relay.pages import announcer_by, console_by
from relay.rpc import server as rpc
from relay.rpc.push import push
from relay.settings import Settings, doubtful
from relay.settings.keys import key_names
from relay.store.codec.contents import PLAIN, Contents
from relay.store.dispatch.promotions import KnownGroups, RedisPromotions
from relay.store.dispatch.stream_groups import RedisGroups
from relay.store.histories import RedisHistories
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.forecasts import RedisForecasts
from relay.store.partitions.heartbeats import RedisHeartbeats
from relay.store.partitions.layouts import RedisLayouts
from relay.store.partitions.moves import RedisMoves
from relay.store.partitions.recurrences import RedisRecurrences
from relay.store.partitions.timers import PartitionedTimers
from relay.store.partitions.topics import PartitionedTopics
from relay.store.server.connect import guess
from relay.store.server.fitness import check_durability, check_server
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server, ServerReports
from relay.store.timeline.calendars import RedisCalendars
from relay.store.timeline.clocks import RedisClocks
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from relay.telemetry.logs.log_limits import suppressed
from relay.telemetry.logs.log_setup import set_up_logs
from relay.telemetry.metrics.catalogue import (
    CLOCK_STEPPED_BACK,
    CONNECTIONS_REFUSED,
    FILES_REFUSED,
    FILES_TAKEN_OVER,
    UNREADABLE,
)
from relay.telemetry.metrics.instruments import Instruments
from relay.telemetry.metrics.provider import Metrics
from relay.telemetry.otel_env import METRICS, exporters
from relay.telemetry.traces.tracing import Tracing
from relay.trust.files import Watch
from relay.trust.keyring import FileKeyring
from relay.web.probes import probes
from relay.web.routes import JsonApi
from relay.web.server import HttpServer, serve_http, start_http

log = logging.getLogger(__name__)

HEALTH_INTERVAL = 1.0
"""Seconds within which grpc.health.v1 reports a change."""

STOP_TIMEOUT = 5.0
"""Seconds that the gRPC server has to end its calls after the drain."""

START_RETRY = 0.1
"""Seconds between two tries to reach Redis at the start."""


@dataclass(frozen=True, slots=True)
class Listening:
    """The addresses that a relay serves on, with the ports that were chosen; `api` is empty if it is off."""

    grpc: str
    http: str
    api: str
    console: str = ""
    """Where the console is, empty if it is off."""


Started = Callable[[Listening], None]


def run(settings: Settings, *, started: Started | None = None, if_taken: str = "") -> int:
    """Run the daemon until SIGTERM or SIGINT; return the exit code.

    `started` is called once all listeners are bound. `if_taken` is the end of a sentence that says what else
    helps if an address is taken. The code is 0, 1 if the relay can't serve, and 4 if it can't because Redis
    is away.
    """
    set_up_logs(settings.log.level, settings.log.format)
    for sentence in doubtful(os.environ):
        log.warning(sentence)
    failures: list[ServiceError] = []
    try:
        anyio.run(serve, settings, started, backend_options={"loop_factory": loop_factory})
    except* ServiceError as group:
        failures += leaves(group)
    for failure in failures:
        log.critical("%s%s", failure, if_taken if isinstance(failure, CannotListen) else "")
    if not failures:
        return 0
    return 4 if all(isinstance(failure, StoreUnavailable) for failure in failures) else 1


def leaves(group: BaseExceptionGroup[ServiceError]) -> list[ServiceError]:
    """Yield the errors in a tree of exception groups."""
    found: list[ServiceError] = []
    for failure in group.exceptions:
        found += leaves(failure) if isinstance(failure, BaseExceptionGroup) else [failure]
    return found


async def serve(settings: Settings, started: Started | None = None) -> None:
    """Start everything, call `started`, wait for a signal, drain, and stop. Raises `ServiceError` if it can't
    start."""
    declared = declared_by(settings)
    async with traced() as tracing, measured() as metrics, open_server(settings, metrics) as server:
        count = metrics.instruments
        watch = Watch(partial(taken_over, count))
        callers = callers_by(settings, server, metrics, watch)
        keyring = keyring_by(settings, watch)
        tracing.late = count.late
        hints = RedisHints(server, on_refused_hint=HintRefusals(count, SystemClock(), "SUBSCRIBE"))
        policies = settings.policies()
        layouts = RedisLayouts(server, lambda topic: policies(topic).partitions)
        contents = contents_by(settings, keyring)
        engine = put_together(settings, server, hints, layouts, count, tracing, contents)
        if keyring is not None:
            keyring.changed = partial(keys_changed, contents, engine)
        metrics.look = engine.look
        metrics.gauges.suppressed = suppressed
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            what = await unless_told_to_stop(signals, partial(fit_server, settings, server))
            if what is None:
                return
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hints.run)
                tasks.start_soon(server.follow)
                tasks.start_soon(watch.run)
                tasks.start_soon(callers.run)
                tasks.start_soon(layouts.run)
                await tasks.start(engine.run)
                if metrics.pushers:
                    tasks.start_soon(pushed, metrics)
                answers = probes(engine, metrics, needs_redis=settings.http.ready_needs_redis)
                unreadable = partial(count.count, UNREADABLE)
                refused = partial(count.count, CONNECTIONS_REFUSED, "http")
                web = partial(
                    serve_http, bounds=settings.http.bounds, count=refused, tls=callers.listeners.http_tls
                )
                http = await tasks.start(web, answers, settings.http.listen)
                call_time = CallTime(settings.call_timeout, recent_stall)
                by_itself = callers.access.actions.by(RELAY)
                if await unless_told_to_stop(signals, partial(declare, declared, engine, by_itself)) is None:
                    tasks.cancel_scope.cancel()
                    return
                announcer = announcer_by(settings, engine, server)
                pages = (
                    console_by(settings, engine, server, count, call_time, callers, announcer.instance)
                    if settings.serves_console
                    else None
                )
                json_api = await start_api(tasks, engine, count, settings, call_time, callers, pages)
                api = await rpc.start(
                    engine,
                    binding=callers.listeners.binding,
                    bounds=settings.grpc.bounds,
                    call_time=call_time,
                    unreadable=unreadable,
                    admit=callers.listeners.admit_rpc,
                    access=callers.access,
                    bounds_of_callers=callers.bounds,
                )
                tasks.start_soon(tell_health, engine, api)
                tasks.start_soon(push, engine, unreadable)
                tasks.start_soon(announcer.run)
                # Modules and settings stay: a full collection that looked at them all would stop every
                # loop for about 50 ms.
                gc.freeze()
                log.info(
                    "relay is serving",
                    extra={
                        "version": __version__,
                        "grpc": api.address,
                        "http": http,
                        "api": json_api.address if json_api else "off",
                        "redis": what,
                        "console": AT if json_api is not None and pages is not None else "off",
                    },
                )
                if started is not None:
                    started(listening(api, http, json_api, pages))
                told = "outlasting the applications" if settings.stop_last else "draining"
                log.info(told, extra={"signal": (await anext(signals)).name})
                cut_short = True
                async with anyio.create_task_group() as draining:
                    draining.start_soon(hurry, signals, draining.cancel_scope)
                    if pages is not None:
                        pages.end()
                    await stop(engine, api, json_api, settings.drain_timeout, last=settings.stop_last)
                    cut_short = False
                    draining.cancel_scope.cancel()
                if cut_short:
                    await stop(engine, api, json_api, 0.0)
                tasks.cancel_scope.cancel()
    log.info("relay has stopped")


def listening(api: rpc.RpcServer, http: str, json_api: HttpServer | None, pages: Console | None) -> Listening:
    """The addresses that a relay serves on."""
    if json_api is None:
        return Listening(api.address, http, "")
    scheme = "https" if json_api.is_tls else "http"
    there = "" if pages is None else f"{scheme}://{json_api.address}{AT}"
    return Listening(api.address, http, json_api.address, there)


def taken_over(count: Instruments, setting: str, taken: bool) -> None:
    """Count files that have changed."""
    count.count(FILES_TAKEN_OVER if taken else FILES_REFUSED, setting)


def open_server(settings: Settings, metrics: Metrics) -> Server:
    """Make the way to Redis, which reports to the metrics and the log. Raises `UnfitServer`."""
    count, clock, policies = metrics.instruments, SystemClock(), settings.policies()
    return Server(
        settings.redis.location,
        key_names(settings.redis),
        timeout=settings.redis.command_timeout,
        write_ttl=settings.redis.write_ttl,
        name=settings.called,
        journals=Journals(lambda topic: policies(topic).journal_keeps, JournalTrims(count, clock)),
        reports=ServerReports(
            count.round_trip, HintRefusals(count, clock, "PUBLISH"), partial(count.count, CLOCK_STEPPED_BACK)
        ),
    )


def put_together(
    settings: Settings,
    server: Server,
    hints: RedisHints,
    layouts: RedisLayouts,
    count: Instruments,
    tracing: Tracing,
    contents: Contents = PLAIN,
) -> Engine:
    """Make the engine over its stores."""
    policies, known_groups = settings.policies(), KnownGroups()
    topics = RedisTopics(server, largest=policies.largest, contents=contents)
    carrier = Carrier(server, lambda topic: policies(topic).durability)
    timers = RedisStore(server, largest=policies.largest, arrive=carrier.arrive, contents=contents)
    stores = Stores(
        PartitionedTimers(timers, topics, layouts, server, carrier),
        PartitionedTopics(topics, layouts, carrier),
        hints,
        server.places,
        layouts,
        RedisMoves(server, layouts, carrier),
        RedisPromotions(server, policies, known_groups=known_groups),
        RedisGroups(server, policies, known_groups=known_groups),
        RedisHeartbeats(server),
        RedisRecurrences(server, carrier, contents),
        RedisCalendars(server),
        RedisClocks(server),
        RedisForecasts(server, contents),
        RedisHistories(server),
    )
    return Engine(stores, policies, count, tracing=tracing)


@asynccontextmanager
async def traced() -> AsyncIterator[Tracing]:
    """Make the tracing of this relay, if OpenTelemetry's variables ask for it. Raises `WrongVariable`."""
    names = exporters(os.environ)
    if not names:
        yield Tracing()
        return
    from relay.telemetry.traces.export import Exporting  # only a relay that traces pays for the import

    exporting = Exporting(names)
    log.info("tracing is on", extra={"exporters": names})
    try:
        yield exporting.tracing
    finally:
        with anyio.CancelScope(shield=True):
            await exporting.close()


@asynccontextmanager
async def measured() -> AsyncIterator[Metrics]:
    """Make the metrics of this relay, which are pushed, too, if OpenTelemetry's variables ask for it. Raises
    `WrongVariable`."""
    names = exporters(os.environ, METRICS)
    if not names:
        metrics = Metrics()
        yield metrics
        metrics.close()
        return
    from relay.telemetry.metrics import pushing

    metrics = Metrics(pushing.pushers(names))
    log.info("metrics are pushed", extra={"exporters": names})
    try:
        yield metrics
    finally:
        with anyio.CancelScope(shield=True):
            await pushing.close(metrics)


async def pushed(metrics: Metrics) -> None:
    """Push until cancelled."""
    from relay.telemetry.metrics import pushing

    await pushing.push(metrics)


async def start_api(
    tasks: TaskGroup,
    engine: Engine,
    count: Instruments,
    settings: Settings,
    call_time: CallTime,
    callers: Callers,
    pages: Console | None,
) -> HttpServer | None:
    """Serve the JSON API, and the console beside it; None if the API is switched off. Raises
    `CannotListen`."""
    if not settings.serves_api:
        return None
    limit, hosts = settings.api.max_body_bytes, settings.api.hosts
    app = JsonApi(
        engine,
        count.http_request,
        call_time,
        max_body_bytes=limit,
        allowed_hosts=hosts,
        admit=callers.listeners.admit_web,
        access=callers.access,
        bounds_of_callers=callers.bounds,
    )
    if pages is not None:
        tasks.start_soon(pages.run)
    return await start_http(
        tasks,
        app if pages is None else Front(app, pages),
        settings.api.listen,
        setting="api.listen",
        bounds=settings.api.bounds,
        count=partial(count.count, CONNECTIONS_REFUSED, "api"),
        tls=callers.listeners.api_tls,
    )


async def stop(
    engine: Engine,
    api: rpc.RpcServer,
    json_api: HttpServer | None,
    drain_timeout: float,
    *,
    last: bool = False,
) -> None:
    """Stop in this order: say so, claim nothing more, let applications finish, release leases, close.

    With `last`, go on before that until the applications have drained; one timeout bounds both.
    """
    end = anyio.current_time() + drain_timeout
    if last:
        await engine.outlast(drain_timeout)  # see 0036
        log.info("draining")
    await api.say_healthy(False)
    await engine.drain(max(end - anyio.current_time(), 0.0))
    with anyio.move_on_after(STOP_TIMEOUT):  # a call that hangs must not keep the process
        async with anyio.create_task_group() as stopping:
            stopping.start_soon(partial(api.stop, grace=1.0))
            if json_api is not None:
                stopping.start_soon(json_api.stop)


async def hurry(signals: AsyncIterator[signal.Signals], drain: anyio.CancelScope) -> None:
    """Let a second signal end the wait for applications: leases that are left are released at once."""
    log.warning("drain cut short", extra={"signal": (await anext(signals)).name})
    drain.cancel()


async def unless_told_to_stop(
    signals: AsyncIterator[signal.Signals], start: Callable[[], Awaitable[str]]
) -> str | None:
    """Return what `start` returns; None if a signal came first.

    The first process of a container has no default action for SIGTERM. So a SIGTERM that comes while the
    relay waits for Redis would be lost, and the relay would serve until it is killed.
    """
    stopped = False
    answer: str | None = None

    async def listen() -> None:
        nonlocal stopped
        told = await anext(signals)
        stopped = True
        log.info("told to stop before it served", extra={"signal": told.name})
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        answer = await start()
        tasks.cancel_scope.cancel()
    return None if stopped else answer


def declared_by(settings: Settings) -> Declared:
    """Read the recurrences that the settings name a file of. Raises `SettingsError`."""
    return read_declared(Path(settings.recurrences.file)) if settings.recurrences.file else Declared()


def keyring_by(settings: Settings, watch: Watch) -> FileKeyring | None:
    """Read the keyring that the settings name, and watch it. Raises `BadFile`."""
    if not settings.sealing.keyring:
        return None
    keyring = FileKeyring(Path(settings.sealing.keyring))
    watch.add(keyring.source)
    return keyring


def contents_by(settings: Settings, keyring: FileKeyring | None) -> Contents:
    """How contents are stored, by the settings."""
    return Contents(keyring, settings.policies().seals)


def keys_changed(contents: Contents, engine: Engine) -> None:
    """Use the keyring's new keys at once, for subjects as well."""
    if contents.subjects is not None:
        contents.subjects.keys_changed()
    engine.keys_changed()


async def declare(declared: Declared, engine: Engine, actions: Actions) -> str:
    """Put recurrences and calendars. Raises `SettingsError`."""
    access = Access(actions=actions)
    await apply(declared, RecurrenceCalls(engine, access), CalendarCalls(engine, access))
    return "done"


async def fit_server(settings: Settings, server: Server) -> str:
    """Wait up to `start_timeout` for Redis; return its name and version.

    Raises `StoreUnavailable` if it can't be reached, `UnfitServer` if Relay can't use it, or if it can't give
    the durability that a topic is to have.
    """
    server.load_scripts()
    trouble = "no answer"
    with anyio.move_on_after(settings.redis.start_timeout):
        while True:
            try:
                what = await check_server(server, allow_eviction=settings.redis.allow_eviction)
                await check_durability(server, settings.policies().durabilities())
                return what
            except StoreUnavailable as failure:
                trouble = str(failure)
                await anyio.sleep(START_RETRY)
    raise StoreUnavailable(
        f"Redis at {settings.redis.url} can't be reached within redis.start_timeout "
        f"({settings.redis.start_timeout:g} s): {mask(trouble)}"
        f"{guess(settings.redis.location, trouble)}"
    )


async def tell_health(engine: Engine, api: rpc.RpcServer) -> None:
    """Keep what grpc.health.v1 answers up to date."""
    told: bool | None = None
    while True:
        healthy = not engine.ready()
        if healthy is not told:
            await api.say_healthy(healthy)
            told = healthy
        await anyio.sleep(HEALTH_INTERVAL)
