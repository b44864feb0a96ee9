"""Keeps recurrences, fast, as relays keep them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from bench.harness.server import Server
from relay.core.recurring.recurrence import Recurrence, Standing
from relay.store.codec.recurrence_text import write_rule, write_standing
from relay.store.keys import KeyNames

AT_ONCE = 1_000


async def keep(server: Server, topic: str, recurrences: Iterable[tuple[Recurrence, Standing]]) -> None:
    """Keep recurrences that have a next instant, each with where it stands."""
    rules, standings, ticks, names = (
        KeyNames().key(name, topic) for name in ("rules", "standings", "ticks", "names")
    )
    left = iter(recurrences)
    while batch := list(islice(left, AT_ONCE)):
        pipe = server.redis.pipeline(transaction=False)
        for wanted, standing in batch:
            name = wanted.recurrence_id
            pipe.hset(rules, name, write_rule(wanted))
            pipe.hset(standings, name, write_standing(standing))
            pipe.zadd(ticks, {name: standing.next or 0})
            pipe.zadd(names, {name: 0})
        await pipe.execute()
