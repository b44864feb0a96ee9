"""The console of a relay, put together from its settings."""

from __future__ import annotations

from functools import partial

from relay.api.call_time import CallTime
from relay.api.history.calls import HistoryCalls
from relay.api.looking.partitions import PartitionCalls
from relay.api.looking.people import ActionCalls
from relay.api.looking.searching import TimerSearches
from relay.api.recurring.calls import RecurrenceCalls
from relay.api.timers import TimerCalls
from relay.api.topics import TopicCalls
from relay.callers import Callers
from relay.console.app import Console
from relay.console.live import Live, NodeVitals
from relay.console.requests import Desk, TopicSetting
from relay.console.trends import Trends
from relay.engine.engine import Engine
from relay.settings import Settings
from relay.settings.origins import origins
from relay.store.server.fitness import name_of
from relay.store.server.server import Server
from relay.telemetry.metrics.instruments import Instruments


def console_by(
    settings: Settings,
    engine: Engine,
    server: Server,
    count: Instruments,
    call_time: CallTime,
    callers: Callers,
) -> Console:
    """Make the console."""
    access = callers.access

    def settings_of(topic: str) -> list[TopicSetting]:
        return [TopicSetting(*each) for each in origins(settings, topic)]

    desk = Desk(
        TopicCalls(engine, access),
        TimerCalls(engine, access),
        HistoryCalls(engine, access),
        RecurrenceCalls(engine, access),
        TimerSearches(engine, access),
        PartitionCalls(engine, access),
        ActionCalls(access),
        access,
        Live(engine, count, partial(vitals, server)),
        Trends(engine, count),
        settings_of,
        relay_name=settings.called,
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


async def vitals(server: Server) -> list[NodeVitals]:
    """How the nodes of Redis are. An INFO to each. Raises `StoreError`."""
    return [
        NodeVitals(place, name_of(told), int(told.get("used_memory", 0)), int(told.get("maxmemory", 0)))
        for place, told in (await server.info()).items()
    ]
