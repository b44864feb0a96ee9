"""The console of a relay, and what it tells the consoles of others, put together from its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from relay import __version__
from relay.api.call_time import CallTime
from relay.api.history.calls import HistoryCalls
from relay.api.looking.moving import TimerMoves
from relay.api.looking.partitions import PartitionCalls
from relay.api.looking.people import ActionCalls
from relay.api.looking.searching import TimerSearches
from relay.api.recurring.calls import RecurrenceCalls
from relay.api.timers import TimerCalls
from relay.api.topics import TopicCalls
from relay.callers import Callers
from relay.console.alerts import Alerts
from relay.console.app import Console
from relay.console.live import Live, NodeVitals
from relay.console.requests import Desk, TopicSetting
from relay.console.trends import Trends
from relay.core.endpoints.announcement import Announcement
from relay.engine.engine import Engine
from relay.engine.upkeep.announcer import Announcer
from relay.settings import Settings
from relay.settings.origins import origins
from relay.store.server.fitness import name_of
from relay.store.server.server import Server
from relay.store.timeline.announcements import RedisAnnouncements
from relay.telemetry.metrics.instruments import Instruments


def console_by(
    settings: Settings,
    engine: Engine,
    server: Server,
    count: Instruments,
    call_time: CallTime,
    callers: Callers,
    instance: str,
) -> Console:
    """Make the console. `instance` is this relay's among those that are announced."""
    access, alerts = callers.access, Alerts()

    def settings_of(topic: str) -> list[TopicSetting]:
        return [TopicSetting(*each) for each in origins(settings, topic)]

    desk = Desk(
        TopicCalls(engine, access),
        TimerCalls(engine, access),
        HistoryCalls(engine, access),
        RecurrenceCalls(engine, access),
        TimerSearches(engine, access),
        TimerMoves(engine, access),
        PartitionCalls(engine, access),
        ActionCalls(access),
        access,
        Live(engine, count, partial(vitals, server), RedisAnnouncements(server).living),
        Trends(engine, count, alerts.look),
        alerts,
        settings_of,
        relay_name=settings.called,
        instance=instance,
        trace_url=settings.console.trace_url,
        opens_sealed=bool(settings.sealing.keyring),
    )
    return Console(
        desk,
        count.http_request,
        call_time,
        allowed_hosts=settings.api.hosts,
        admit=callers.listeners.admit_web,
        bounds_of_callers=callers.bounds,
    )


def announcer_by(settings: Settings, engine: Engine, server: Server) -> Announcer:
    """Make what tells other relays of this one."""

    def describe(instance: str, up: int) -> Announcement:
        state, pushed = engine.state(), engine.pushed()
        return Announcement(
            instance,
            settings.called,
            __version__,
            up=up,
            streams=sum(many for topic, many in state.consumers.items() if topic not in pushed),
            held=sum(many for topic, many in state.in_flight.items() if topic not in pushed),
            pushes=len(pushed),
            push_held=sum(many for topic, many in state.in_flight.items() if topic in pushed),
        )

    return Announcer(RedisAnnouncements(server), describe)


async def vitals(server: Server) -> list[NodeVitals]:
    """How the nodes of Redis are. An INFO to each. Raises `StoreError`."""
    slots = server.slots
    return [
        NodeVitals(
            place,
            name_of(told),
            int(told.get("used_memory", 0)),
            int(told.get("maxmemory", 0)),
            slots.get(place, 0),
            int(told.get("connected_clients", 0)),
            int(told.get("instantaneous_ops_per_sec", 0)),
            int(told.get("connected_slaves", 0)),
            ", ".join(troubles(told)),
        )
        for place, told in (await server.info()).items()
    ]


def troubles(told: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a node, by its INFO."""
    if told.get("loading"):
        yield "it loads its data"
    if told.get("rdb_last_bgsave_status", "ok") != "ok":
        yield "the last snapshot failed"
    if told.get("aof_enabled") and told.get("aof_last_write_status", "ok") != "ok":
        yield "the append-only file can't be written"
    if evicted := int(told.get("evicted_keys", 0)):
        yield f"it has evicted {evicted} keys"
    if told.get("role") == "slave":
        yield "it is a replica"
