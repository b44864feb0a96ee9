"""Random interleavings of two groups' relays: every timer ends once in each group, and nothing is left."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from relay.core.instants import SECOND
from relay.core.outcomes import Verb, Verdict
from relay.core.timers import ClaimedTimer, NewTimer
from tests.chaos import count
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.desk import BILLING, Desk, Reader

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

GROUPS = ("billing", "audit")
TIMERS = 40
STEPS = 250


class Storm:
    """Its steps; `held` are deliveries that their readers still believe in, stale ones too."""

    def __init__(self, fan: Desk, chance: Random) -> None:
        self.fan, self.chance, self.seconds = fan, chance, 0.0
        self.readers = [fan.reader(f"{group}-{n}", group) for group in GROUPS for n in range(2)]
        self.held: list[tuple[Reader, ClaimedTimer]] = []
        self.acked: dict[str, Counter[str]] = {group: Counter() for group in GROUPS}
        self.latest: dict[tuple[str, str], tuple[Reader, ClaimedTimer]] = {}

    async def take(self) -> None:
        reader = self.chance.choice(self.readers)
        for timer in await reader.take(limit=self.chance.choice((1, 3, 50))):
            assert timer.due <= NOW + self.seconds * SECOND, "early"
            self.held.append((reader, timer))
            self.latest[reader.group, timer.timer_id] = reader, timer

    async def end(self, verb: Verb | None = None) -> None:
        """Some delivery ends, one that was taken away perhaps; only the latest holds."""
        if not self.held:
            return
        reader, timer = self.held.pop(self.chance.randrange(len(self.held)))
        verb = verb or self.chance.choice((Verb.ACK, Verb.ACK, Verb.NACK, Verb.RELEASE))
        options: dict[str, Any] = (
            {"retry_after": self.chance.choice((0, SECOND, 90 * SECOND))} if verb is Verb.NACK else {}
        )
        said = await reader.settle(timer, verb, **options)
        is_latest = self.latest.get((reader.group, timer.timer_id)) == (reader, timer)
        assert (said is Verdict.OK) == is_latest, f"{said} for {timer.timer_id}"
        if self.chance.random() < 0.3:
            self.held.append((reader, timer))  # it says so twice
        if is_latest:
            del self.latest[reader.group, timer.timer_id]
            if verb is Verb.ACK:
                self.acked[reader.group][timer.timer_id] += 1

    async def renew(self) -> None:
        if self.held:
            reader, timer = self.chance.choice(self.held)
            said = await reader.extend(timer, received=self.chance.random() < 0.5)
            is_latest = self.latest.get((reader.group, timer.timer_id)) == (reader, timer)
            assert (said is Verdict.OK) == is_latest

    async def freeze(self) -> None:
        """All that a group holds has been idle for too long: whoever comes next takes it."""
        reader = self.chance.choice(self.readers)
        reader.idle(30.0)

    async def pass_time(self) -> None:
        self.seconds += self.chance.choice((0.5, 2.0, 30.0))
        self.fan.later(self.seconds)

    async def promote(self) -> None:
        await self.fan.promote(self.chance.randbytes(16), limit=self.chance.choice((1, 10)))

    async def tidy(self) -> None:
        await self.fan.tidy()

    async def finish(self) -> None:
        """Everything that is left is acknowledged."""
        for _ in range(20):
            self.seconds += 200.0
            self.fan.later(self.seconds)
            for reader in self.readers:
                reader.idle(30.0)
                for timer in await reader.take(limit=500):
                    assert await reader.settle(timer) is Verdict.OK
                    self.acked[reader.group][timer.timer_id] += 1


@pytest.mark.parametrize("seed", range(count(4, 60)))
async def test_every_timer_ends_once_in_each_group(
    redis_server: RunningServer, keyspace: Keyspace, seed: int
) -> None:
    chance = Random(seed)
    fan = Desk(redis_server, keyspace.topic(), BILLING)
    storm = Storm(fan, chance)
    for reader in storm.readers:
        await reader.claim()
    names = [f"t{n}" for n in range(TIMERS)]
    await fan.store.schedule(
        fan.topic, [NewTimer(name, b"x", NOW + chance.randrange(60) * SECOND) for name in names]
    )
    steps = [storm.take, storm.end, storm.renew, storm.freeze, storm.pass_time, storm.promote, storm.tidy]
    for _ in range(STEPS):
        await chance.choices(steps, weights=(6, 8, 3, 1, 2, 1, 1))[0]()
    await storm.finish()
    assert storm.acked == {group: Counter(names) for group in GROUPS}
    await fan.tidy()
    assert (fan.left(), fan.raw.xlen(fan.stream)) == ((0, 0, 0), 0)
    assert [reader.traces() for reader in storm.readers] == [(0, 0)] * 4
    assert [reader.pending() for reader in storm.readers] == [[]] * 4
    await fan.close()
