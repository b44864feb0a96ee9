"""What each call meets before the engine, put together from the settings: names of callers, policy, bounds,
records."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio

from relay.api.access import Access
from relay.api.people.actions import Actions
from relay.api.people.policy_record import PolicyRecord
from relay.core.trust.access import AccessPolicy
from relay.core.trust.usage import Bounds
from relay.engine.clock import SystemClock
from relay.engine.reports.action_trims import ActionTrims
from relay.listeners import Listeners, listeners_by
from relay.settings import Settings
from relay.store.server.server import Server
from relay.store.timeline.actions import RedisActions
from relay.telemetry.metrics.catalogue import ACTIONS_UNWRITTEN, DENIED, HELD_BACK, OVER_BOUND
from relay.telemetry.metrics.instruments import Instruments
from relay.telemetry.metrics.provider import Metrics
from relay.trust.files import Watch
from relay.trust.policy_file import PolicyFile

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Callers:
    """What each call meets before it reaches the engine. `bounds` are None without a policy."""

    listeners: Listeners
    access: Access
    bounds: Bounds | None
    _policies: PolicyRecord

    async def run(self) -> None:
        """Fetch keys and record policies until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.listeners.run)
            tasks.start_soon(self._policies.run, self.access.actions)


def callers_by(settings: Settings, server: Server, metrics: Metrics, watch: Watch) -> Callers:
    """Read all files that say who may call, and have them watched. Raises `BadFile`, which names the
    setting."""
    count = metrics.instruments
    listeners = listeners_by(settings, count, watch)
    policies, bounds = PolicyRecord(), bounds_by(settings, count)
    access = access_by(settings, watch, metrics, policies, bounds)
    access.actions = actions_by(settings, server, count)
    return Callers(listeners, access, bounds, policies)


def bounds_by(settings: Settings, count: Instruments) -> Bounds | None:
    """What holds callers to bounds; None without a policy."""
    if not settings.policy_file:
        return None

    def over(principal: str, bound: str) -> None:
        count.count(OVER_BOUND, principal, bound)
        log.info("a call was over a bound", extra={"principal": principal, "bound": bound})

    return Bounds(
        SystemClock().now, over, lambda principal, seconds: count.count(HELD_BACK, principal, n=seconds)
    )


def access_by(
    settings: Settings, watch: Watch, metrics: Metrics, record: PolicyRecord, bounds: Bounds | None
) -> Access:
    """What callers may do, by the policy in the file that the settings name, and from then on by the one
    that it holds, as `bounds` go by it. Raises `BadFile`."""
    access = Access(denied=partial(metrics.instruments.count, DENIED))
    if settings.policy_file and bounds is not None:
        path = Path(settings.policy_file)

        def use(policy: AccessPolicy) -> None:
            access.use(policy)
            bounds.use(policy)
            record.hear(str(path), policy.digest)

        file = PolicyFile(path, use)
        metrics.gauges.policy_stale = lambda: file.stale
        watch.add(file.source)
    return access


def actions_by(settings: Settings, server: Server, count: Instruments) -> Actions:
    """What records what people do."""
    keeps, trimmed = settings.action_log_max_length, ActionTrims(count, SystemClock())
    return Actions(
        RedisActions(server, keeps=keeps, trimmed=trimmed),
        settings.called,
        unwritten=partial(count.count, ACTIONS_UNWRITTEN),
    )
