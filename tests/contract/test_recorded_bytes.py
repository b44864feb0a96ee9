"""Relays of different versions share one topic: what was recorded is read the same, and written the same.

Each step of a recorded history begins with the bytes that an older relay left, is made by the code of now,
and has to leave the bytes that the older relay would have left. `recording.py` says how it was recorded.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from relay.client.calls.channel import FORECAST, FORGET_SUBJECT, LIST_TOPICS, METHODS, TIMER_HISTORY
from relay.store.keys import KeyNames
from tests.contract.dispatch_recording import DISPATCH, POLICIES, history
from tests.contract.dispatch_recording import STEPS as DISPATCH_STEPS
from tests.contract.dispatch_recording import restore as restore_dispatched
from tests.contract.dispatch_recording import stored as stored_dispatched
from tests.contract.recording import REDIS, STEPS, TOPIC, Step, plain, restore, stored, understood
from tests.contract.wire_recording import TOPICS, WIRE, overheard
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.desk import Desk

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

RECORDED: list[dict[str, Any]] = json.loads(REDIS.read_text(encoding="utf-8"))
NOTHING = {"now": NOW, "timeline": {}, "payloads": {}, "leases": {}, "dead": [], "journal": [], "pause": ""}
BEFORE = [NOTHING, *(each["stored"] for each in RECORDED)]


@pytest.fixture
async def bench(scripted_server: RunningServer, keyspace: Keyspace) -> AsyncIterator[Bench]:
    bench = Bench(scripted_server, keyspace.adopt(TOPIC))
    bench.keep = 1_000_000
    yield bench
    await bench.close()


def test_the_names_of_keys() -> None:
    """Those of a topic, as any other writer spells them."""
    assert KeyNames().of("t") == (
        "timers_timeline:t",
        "timers_payloads:t",
        "timers_leases:t",
        "timers_dead:t",
        "timers_pause:t",
        "timers_journal:t",
    )


def test_every_step_was_recorded() -> None:
    """In this order."""
    assert [each["step"] for each in RECORDED] == [step.__name__ for step in STEPS]


@pytest.mark.parametrize("place", range(len(STEPS)), ids=lambda place: STEPS[place].__name__)
async def test_a_step_from_what_an_older_relay_left(bench: Bench, place: int) -> None:
    """The same answer, the same bytes under every key, and the same journal."""
    step: Step = STEPS[place]
    restore(bench, BEFORE[place])
    assert plain(await step(bench)) == RECORDED[place]["answer"]
    assert stored(bench) == RECORDED[place]["stored"]


@pytest.mark.parametrize("place", range(len(STEPS)), ids=lambda place: STEPS[place].__name__)
async def test_what_an_older_relay_left_is_read(bench: Bench, place: int) -> None:
    """Timers, dead letters and the journal say what they said then."""
    restore(bench, RECORDED[place]["stored"])
    assert plain(await understood(bench)) == RECORDED[place]["understood"]


BEHIND: dict[str, list[dict[str, Any]]] = json.loads(DISPATCH.read_text(encoding="utf-8"))
MOVED = [(kind, place) for kind, steps in BEHIND.items() for place in range(2, len(steps))]


@pytest.mark.parametrize("kind", BEHIND)
async def test_what_is_stored_behind_the_timeline(
    scripted_server: RunningServer, keyspace: Keyspace, kind: str
) -> None:
    """A ready list, and a stream with what its group keeps."""
    keyspace.adopt(TOPIC)
    assert await history(scripted_server, kind) == BEHIND[kind]


@pytest.mark.parametrize(("kind", "place"), MOVED, ids=lambda each: str(each))
async def test_a_step_behind_the_timeline(
    valkey: RunningServer, keyspace: Keyspace, kind: str, place: int
) -> None:
    """From what an older relay left there."""
    desk = Desk(valkey, keyspace.adopt(TOPIC), POLICIES[kind])
    restore_dispatched(desk, BEHIND[kind][place - 1]["stored"])
    recorded = BEHIND[kind][place]
    assert plain(await DISPATCH_STEPS[kind][place](desk)) == recorded["answer"]
    assert stored_dispatched(desk) == recorded["stored"]
    await desk.close()


def test_every_call_was_recorded() -> None:
    """All but the one that tells of other tests' topics, too, that which tells of recurrences as well as of
    timers, that which sealed topics alone have, that which tells of entries of the journal, and those of
    recurrences, whose answers tell of the time zones that this machine has."""
    calls = {each.get("call") for each in json.loads(WIRE.read_text(encoding="utf-8"))}
    left = {method.path for method in METHODS if "RecurrenceService" not in method.path} - calls
    assert left == {LIST_TOPICS.path, FORECAST.path, FORGET_SUBJECT.path, TIMER_HISTORY.path}


async def test_what_goes_over_the_wire(valkey: RunningServer, keyspace: Keyspace) -> None:
    """A client of now says what an older one said, and hears what it would have heard; so does a stream."""
    for topic in TOPICS:
        keyspace.adopt(topic)
    said = await overheard(valkey)
    for there, recorded in zip(said, json.loads(WIRE.read_text(encoding="utf-8")), strict=True):
        assert there == recorded
