"""The state of a relay as its loops know it, read from memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from relay.engine.clock import Clock
from relay.engine.delivery.dispatcher import Dispatcher
from relay.engine.delivery.lease_keeper import LeaseKeeper
from relay.engine.delivery.settler import Settler
from relay.engine.redis_health import RedisHealth
from relay.telemetry.metrics.gauges import RelayState


def relay_state(
    dispatcher: Dispatcher,
    settler: Settler,
    keeper: LeaseKeeper,
    redis_health: RedisHealth,
    clock_steps: Mapping[str, float],
    clock: Clock,
) -> RelayState:
    """Return the current state."""
    leased: Counter[str] = Counter()
    in_flight: Counter[str] = Counter()
    consumers: Counter[str] = Counter()
    sessions = dispatcher.sessions()
    for session in sessions:
        for topic in session.topics:
            consumers[topic] += 1
            leased[topic] += 0
            in_flight[topic] += 0
        if len(session.topics) == 1:  # then the leases need not be read
            leased[session.topics[0]] += len(session.leases)
            in_flight[session.topics[0]] += session.in_flight
        else:
            leased.update(lease.topic for lease in session.leases.values())
            in_flight.update(lease.topic for lease in session.leases.values() if lease.sent)
    now = clock.now()
    return RelayState(
        leased=leased,
        in_flight=in_flight,
        consumers=consumers,
        capacity=sum(session.max_outstanding for session in sessions),
        free=sum(max(session.free, 0) for session in sessions),
        unwritten=settler.unwritten,
        heartbeats={"lease_keeper": max(now - keeper.last_tick, 0.0)},
        connected={view.place: view.trouble is None for view in redis_health.views},
        last_answers={view.place: max(now - view.last_word, 0.0) for view in redis_health.views},
        clock_steps=clock_steps,
    )
