"""Timers that both sides move and cancel while relays and faststream-redis-timers deliver them."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from relay.core.audit import Promise
from tests.e2e.calls import Call, calls
from tests.e2e.mixed import TOPIC, Mixed
from tests.e2e.peer import Publisher, publisher
from tests.worlds.relay.processes import Event
from tests.worlds.relay.producer import Producer
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

SEED = 3
TIMERS = 200
INTENTS = 5
"""How often each timer is given a new intent, at most."""
WORK = 0.2
"""Seconds that a handler of the peer's takes. One at a relay takes until the mover has moved."""
SLACK = 10.0
"""Seconds that a busy machine may need from a claim to its handler, and from there to the commit."""


@dataclass
class Intent:
    """What somebody wanted of a timer: to be delivered with this version, or (None) not at all."""

    version: int | None
    by_peer: bool
    sent: float
    answered: float = 0.0

    def met_by(self, call: Call) -> bool:
        """Whether it was given while that handler ran."""
        return call.start <= self.sent and (call.end is None or call.end >= self.answered)

    def may_be_undone_by(self, call: Call) -> bool:
        """Whether that handler's outcome can have been written after it was given."""
        return call.start <= self.answered and (call.end is None or call.end >= self.sent - SLACK)


@dataclass
class Mover:
    """Schedules and cancels by way of the relay and of the peer, and keeps book of it."""

    relay: Producer
    peer: Publisher
    directory: Path
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    intents: dict[str, list[Intent]] = field(default_factory=dict)

    def follow(self, starts: Sequence[Event]) -> None:
        """Move or cancel what has just begun to be handled."""
        for event in starts:
            version = int((event.headers or {}).get("version", 0))
            if len(self.intents[event.timer_id]) < INTENTS:
                cancelled = self.chance.random() < 0.25
                self.give(event.timer_id, cancel=cancelled)
                if cancelled and self.chance.random() < 0.5:
                    self.give(event.timer_id, cancel=False)
            self._gate(event.timer_id, version).touch()

    def _gate(self, timer_id: str, version: int) -> Path:
        """What the handler of this version waits for."""
        return self.directory / f"{timer_id}-{version}"

    def give(self, timer_id: str, *, cancel: bool) -> None:
        """Give a timer its next intent."""
        intents = self.intents.setdefault(timer_id, [])
        version = len(intents) + 1
        side = self.chance.choice((self.relay, self.peer))
        intents.append(Intent(None if cancel else version, side is self.peer, time.time()))
        if cancel:
            side.cancel(TOPIC, timer_id)
        else:
            delay = self.chance.choice((0.0, 0.2))
            asks = {"gate": str(self._gate(timer_id, version))}
            side.schedule(TOPIC, timer_id, asks, delay=delay, headers={"version": str(version)})
        intents[-1].answered = time.time()


@pytest.mark.parametrize("workers", [0, 1], ids=["its publisher only", "its worker too"])
def test_newest_intent_wins(stage: Stage, workers: int) -> None:
    """Of 200 timers that are moved and cancelled while they are handled, each one's last intent stands,
    whoever gave it, and though a relay held the timer. Only a commit of the peer's can undo one."""
    mixed = Mixed(stage, relays=1, workers=workers, sleep=WORK, concurrency=20)
    with publisher(stage.server.url) as peer:
        mover = Mover(stage.producer(mixed.relays[0]), peer, stage.directory)
        for number in range(TIMERS):
            mover.give(f"t{number}", cancel=False)
        seen = 0

        def all_quiet() -> bool:
            nonlocal seen
            fresh = stage.journal.events("start")[seen:]
            seen += len(fresh)
            mover.follow(fresh)
            return (
                not fresh and stage.left(TOPIC)[:2] == (0, 0) and len(stage.journal.events("start")) == seen
            )

        eventually(all_quiet, "all timers have had their intents", 200.0)
    left_behind = mixed.drained()
    undone, met = judge(mover.intents, calls(stage.journal), mixed.peers)
    total = sum(map(len, mover.intents.values()))
    print(f"{total} intents, {met} met a relay's delivery; {undone} undone; {len(left_behind)} records left")
    assert met > TIMERS // 10, "the races took place"
    doubted = [Promise.NEVER_EARLY, Promise.AT_LEAST_ONCE]  # the publisher moves timers, and has no journal
    stage.judged(TOPIC, exclusive=False, doubted=doubted)
    assert undone == 0 or workers
    for timer_id in left_behind:
        last = mover.intents[timer_id][-1]
        assert workers or (last.by_peer and last.version is None), f"{timer_id}: who left its record? {last}"


def judge(
    intents: Mapping[str, Sequence[Intent]], made: Mapping[str, Sequence[Call]], peers: set[int]
) -> tuple[int, int]:
    """How many last intents were undone by a commit of the peer's, and how many intents met a delivery of
    a relay's; fails for any other intent that did not win."""
    undone = met = 0
    for timer_id, given in intents.items():
        of_one = made.get(timer_id, [])
        met += sum(intent.met_by(call) for intent in given for call in of_one if call.pid not in peers)
        for older, newer in pairwise(given):
            late = [c for c in of_one if c.version == older.version and c.start > newer.answered + SLACK]
            assert not late, f"{timer_id}: {older} was delivered although {newer} had been stored"
        last = given[-1]
        if last.version is None:
            assert all(call.start <= last.answered + SLACK for call in of_one), f"{timer_id}: {last}"
        elif not any(call.version == last.version and call.end for call in of_one):
            undoers = [c for c in of_one if c.pid in peers and last.may_be_undone_by(c)]
            assert undoers, f"{timer_id}: {last} was lost, and no commit of the peer's explains it: {of_one}"
            undone += 1
    return undone, met
