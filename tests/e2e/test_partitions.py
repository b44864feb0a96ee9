"""A topic of four partitions with whole relays, of which one has never heard of partitions."""

from __future__ import annotations

import pytest

from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

TOPIC = "orders"
PARTS = [TOPIC, *(f"{TOPIC}#{n}" for n in range(1, 4))]
FOUR = {"RELAY_TOPICS__orders__PARTITIONS": "4"}
SLEEPY = {"RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "600", "RELAY_TOPICS__orders__MAX_POLLING_INTERVAL": "600"}
"""Longer than anything is waited for: what comes has woken its relay."""


def waiting(stage: Stage) -> list[int]:
    """The timers of each partition."""
    return [stage.client.zcard(f"timers_timeline:{part}") for part in PARTS]


def test_relays_of_either_setting_work_together(stage: Stage) -> None:
    """The topic is born with four partitions. A relay that takes it for one of one partition learns better:
    what either schedules, moves and cancels is delivered by the other, woken by hints, and once."""
    born, plain = stage.relay("born", {**FOUR, **SLEEPY}), stage.relay("plain", SLEEPY)
    makers = [stage.producer(born), stage.producer(plain)]
    ids = [f"t{n}" for n in range(60)]
    makers[0].schedule_many(TOPIC, ids, {}, delay=3600.0)
    assert min(waiting(stage)) > 0, "in all partitions"
    assert stage.client.get(f"timers_leases:{TOPIC}") == b"1 4"
    assert makers[1].cancel(TOPIC, ids[0])
    assert makers[1].get(TOPIC, ids[0]) is None
    assert makers[0].get(TOPIC, ids[1]) is not None
    for relay in (born, plain):
        stage.application(relay, TOPIC, name=f"of {relay.name}")
    makers[1].schedule_many(TOPIC, ids[1:30], {})
    makers[0].schedule_many(TOPIC, ids[30:], {})
    eventually(lambda: sum(waiting(stage)) == 0, "all are committed")
    assert [len(stage.journal.starts(timer_id)) for timer_id in ids] == [0, *[1] * 59]
    for number, part in enumerate(PARTS):
        assert stage.client.hlen(f"timers_payloads:{part}") == 0
        assert stage.client.hlen(f"timers_leases:{part}#{number}") == 0
    assert not [line for relay in (born, plain) for line in relay.lines() if line["level"] == "error"]


@pytest.mark.slow
def test_a_relay_that_dies_loses_nothing_of_any_partition(stage: Stage) -> None:
    """Its leases run out in each, and another relay delivers what it held."""
    settings = {**FOUR, "RELAY_TOPICS__orders__LEASE_TTL": "2"}
    first = stage.relay("first", settings)
    gate = stage.gate()
    stage.application(first, TOPIC, name="held")
    ids = [f"t{n}" for n in range(40)]
    stage.producer(first).schedule_many(TOPIC, ids, {"gate": str(gate)})
    eventually(lambda: all(stage.journal.starts(timer_id) for timer_id in ids), "all are under way")
    first.kill()
    gate.touch()
    stage.application(stage.relay("second", settings), TOPIC, name="heir")
    eventually(lambda: sum(waiting(stage)) == 0, "all are committed")


@pytest.mark.slow
def test_relays_share_the_partitions_out(stage: Stage) -> None:
    """Each polls some, and the others' every ten minutes. A relay whose application is busy calls for help,
    and one that dies is missed: nothing waits for ten minutes."""
    settings = {**FOUR, **SLEEPY, "RELAY_TOPICS__orders__LEASE_TTL": "300"}
    relays = [stage.relay(name, settings) for name in ("one", "two")]
    one_place = ("--concurrency", "1", "--prefetch", "0")
    apps = [stage.application(relay, TOPIC, *one_place, name=f"of {relay.name}") for relay in relays]
    eventually(lambda: stage.client.zcard(f"timers_leases:{TOPIC}#relays") == 2, "both beat")
    maker = stage.producer(relays[0])
    maker.schedule_many(TOPIC, [f"a{n}" for n in range(40)], {})
    eventually(lambda: sum(waiting(stage)) == 0, "all are committed")

    gate = stage.gate()
    maker.schedule_many(TOPIC, ["held"], {"gate": str(gate)})
    eventually(lambda: stage.journal.starts("held"), "one application is busy")
    (held,) = stage.journal.starts("held")
    ids = [f"b{n}" for n in range(40)]
    maker.schedule_many(TOPIC, ids, {})
    eventually(lambda: sum(waiting(stage)) == 1, "all others are committed")
    assert held.pid not in {event.pid for timer_id in ids for event in stage.journal.starts(timer_id)}
    gate.touch()
    eventually(lambda: sum(waiting(stage)) == 0, "the held one is committed")

    relays[1].kill()
    apps[1].kill()
    maker.schedule_many(TOPIC, [f"c{n}" for n in range(40)], {})
    eventually(lambda: sum(waiting(stage)) == 0, "all are committed")
    eventually(lambda: stage.client.zcard(f"timers_leases:{TOPIC}#relays") == 1, "the dead one is forgotten")


@pytest.mark.slow
def test_a_redis_that_loses_everything(stage: Stage) -> None:
    """It comes back empty, and the relay goes on. What it stores from then on is delivered by a relay that
    starts later, from every partition, though that one's setting says nothing of partitions."""
    first = stage.relay("first", FOUR)
    maker = stage.producer(first)
    maker.schedule_many(TOPIC, ["before"], {}, delay=3600.0)
    stage.client.flushall()
    ids = [f"t{n}" for n in range(40)]
    maker.schedule_many(TOPIC, ids, {}, delay=0.0)
    assert min(waiting(stage)) > 0, "in all partitions"
    eventually(lambda: stage.client.get(f"timers_leases:{TOPIC}") == b"1 4", "the layout is back")
    first.kill()
    stage.application(stage.relay("second"), TOPIC, name="heir")
    eventually(lambda: sum(waiting(stage)) == 0, "all are committed")
