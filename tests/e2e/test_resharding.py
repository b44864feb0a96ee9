"""A topic whose number of partitions changes under whole relays, while it is used."""

from __future__ import annotations

import json
import random
import time
import urllib.request
from collections.abc import Iterable
from typing import Any

import pytest

from tests.chaos import count
from tests.worlds.relay.processes import Ran, Relay, command
from tests.worlds.relay.restless import Restless
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import always, eventually

pytestmark = pytest.mark.slow

TOPIC = "orders"
SETTINGS = {
    "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "1",
    "RELAY_REDIS__WRITE_TTL": "10",  # seconds: no call is given up that only has to wait on a busy machine
}
HOURS = 7200.0
SLOWLY = ("--max-rate", "1000/s")
"""A step takes a second or so, and what goes on beside it meets it."""


def ask(relay: Relay, *arguments: str) -> Ran:
    return command(*arguments, "--target", relay.target, timeout=300.0)


def reshard(relay: Relay, partitions: int, *options: str) -> Ran:
    """Change the number; it succeeds."""
    ran = ask(relay, "topics", "reshard", TOPIC, "--partitions", str(partitions), *options)
    assert ran.code == 0, ran.err
    return ran


def standing(relay: Relay) -> dict[str, object]:
    (found,) = ask(relay, "stats", TOPIC, "--json").documents
    return found


def waiting(stage: Stage, partitions: int) -> list[int]:
    """How many timers each partition has."""
    parts = [TOPIC, *(f"{TOPIC}#{n}" for n in range(1, partitions))]
    return [stage.client.zcard(f"timers_timeline:{part}") for part in parts]


def dead(relay: Relay) -> list[str]:
    """The timers of all dead letters."""
    letters = ask(relay, "dead", "list", TOPIC, "--limit", "1000", "--json").documents
    return sorted(letter["timer_id"] for letter in letters)


def layout(stage: Stage) -> object:
    """What Redis says of the topic's partitions."""
    return stage.client.get(f"timers_leases:{TOPIC}")


def ids(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{n}" for n in range(count)]


def handled(stage: Stage, timer_ids: Iterable[str], what: str) -> None:
    """All have been handled to the end, each by one delivery."""
    wanted = list(timer_ids)
    eventually(lambda: set(wanted) <= stage.journal.ended().keys(), what, 200.0)
    starts = stage.journal.events("start")
    seen = [event.timer_id for event in starts]
    assert {timer_id: seen.count(timer_id) for timer_id in wanted if seen.count(timer_id) != 1} == {}


def test_up_and_down_again_beside_everything(stage: Stage) -> None:
    """From 1 to 4 partitions and back by two relays, while callers schedule, move and cancel timers through
    both, handlers are at work, and dead letters wait: nothing is lost, and nothing comes twice."""
    relays = [stage.relay(name, SETTINGS) for name in ("one", "two")]
    producers = [stage.producer(relay) for relay in relays]
    for relay in relays:
        stage.application(relay, TOPIC, name=f"of {relay.name}")
    far, dying, held = ids("far", 2000), ids("dying", 60), ids("held", 20)
    gate = stage.gate()
    producers[0].schedule_many(TOPIC, far, {}, delay=HOURS)
    producers[0].schedule_many(TOPIC, dying, {"reject": True})
    producers[0].schedule_many(TOPIC, held, {"gate": str(gate)})
    eventually(lambda: dead(relays[0]) == sorted(dying), "they are dead")
    eventually(lambda: all(stage.journal.starts(each) for each in held), "they are under way")
    callers = [Restless(producers, TOPIC, seed=n, name=f"restless{n}") for n in (1, 2)]
    with callers[0], callers[1]:
        assert reshard(relays[0], 4, *SLOWLY).out == f"{TOPIC} has 4 partitions\n"
        assert layout(stage) == b"5 4"
        assert min(waiting(stage, 4)) > 0, "in all partitions"
        gate.touch()  # what was claimed in one partition ends in others
        handled(stage, held, "what was under way is over")
        assert ask(relays[1], "dead", "redrive", TOPIC, "--all").code == 0
        assert reshard(relays[1], 1, *SLOWLY).out == f"{TOPIC} has 1 partition\n"
    assert layout(stage) == b"9 1"
    assert waiting(stage, 4)[1:] == [0, 0, 0]
    wanted = callers[0].wanted | callers[1].wanted
    unwanted = callers[0].unwanted | callers[1].unwanted
    assert wanted
    assert unwanted
    eventually(lambda: wanted <= stage.journal.ended().keys(), "what was wanted is handled", 200.0)
    assert not unwanted & stage.journal.ended().keys()
    eventually(lambda: dead(relays[0]) == sorted(dying), "they are dead again")
    eventually(lambda: standing(relays[0])["timers"] == len(far), "only what is far from due is left")
    producers[1].schedule_many(TOPIC, far, {})
    handled(stage, far, "what was moved is handled")
    eventually(lambda: standing(relays[0])["timers"] == 0, "nothing is left")
    stage.judged(TOPIC, accepted=[*far, *dying, *held])


def test_a_pause_goes_with_the_topic(stage: Stage) -> None:
    """Partitions that come into use are paused, too, and one resume ends it for all."""
    relay = stage.relay(settings=SETTINGS)
    stage.application(relay, TOPIC)
    producer = stage.producer(relay)
    assert ask(relay, "pause", TOPIC).code == 0
    producer.schedule_many(TOPIC, ids("before", 40), {})
    reshard(relay, 4)
    producer.schedule_many(TOPIC, ids("after", 40), {})
    assert min(waiting(stage, 4)) > 0, "in all partitions"
    always(lambda: not stage.journal.events("start"), "nothing is delivered", 1.0)
    assert (standing(relay)["paused"], standing(relay)["due"]) == (True, 80)
    assert ask(relay, "resume", TOPIC).code == 0
    handled(stage, [*ids("before", 40), *ids("after", 40)], "all have come")
    assert ask(relay, "pause", TOPIC).code == 0
    reshard(relay, 2)
    assert ask(relay, "resume", TOPIC).code == 0
    reshard(relay, 4)  # the partitions that come again know of a pause that is over
    producer.schedule_many(TOPIC, ids("again", 40), {})
    handled(stage, ids("again", 40), "no pause is left anywhere")


def test_a_relay_dies_in_the_midst_of_a_move(stage: Stage) -> None:
    """The other one ends it: every timer and dead letter is there, once."""
    first, second = (stage.relay(name, SETTINGS) for name in ("first", "second"))
    producer = stage.producer(second)
    far, dying = ids("far", 4000), ids("dying", 40)
    producer.schedule_many(TOPIC, far, {}, delay=HOURS)
    application = stage.application(second, TOPIC)
    producer.schedule_many(TOPIC, dying, {"reject": True})
    eventually(lambda: dead(second) == sorted(dying), "they are dead")
    assert application.terminate() == 0
    told = reshard(first, 2, "--max-rate", "100", "--no-wait")
    assert told.out == f"{TOPIC} moves from 1 to 2 partitions\n"
    eventually(lambda: waiting(stage, 2)[1] > 0, "some have been moved")
    first.kill()
    assert standing(second)["moving_to"] == 2
    assert producer.get(TOPIC, far[0]) is not None
    assert producer.cancel(TOPIC, far[1])
    (ended,) = reshard(second, 2, "--json").documents
    assert (ended["partitions"], ended["timers"], ended["dead"]) == (2, len(far) - 1, len(dying))
    assert sum(waiting(stage, 2)) == len(far) - 1
    assert min(waiting(stage, 2)) > 1000, "in both"
    assert dead(second) == sorted(dying)
    stage.application(second, TOPIC, name="again")
    producer.schedule_many(TOPIC, far, {})
    handled(stage, far, "all are handled")


def test_relays_that_die_in_every_move(stage: Stage) -> None:
    """Up and down, with a relay killed and started again at any moment of each move, beside callers: what
    they wanted is handled, what they did not is not, and the rest is there, once."""
    settings = {**SETTINGS, "RELAY_DEFAULTS__LEASE_TTL": "8", "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "50"}
    relays = [stage.relay(name, settings) for name in ("one", "two")]
    producers = [stage.producer(relay) for relay in relays]
    for relay in relays:
        stage.application(relay, TOPIC, name=f"of {relay.name}")
    far, dying, chance = ids("far", 1000), ids("dying", 60), random.Random(5)
    producers[0].schedule_many(TOPIC, far, {}, delay=HOURS)
    producers[0].schedule_many(TOPIC, dying, {"reject": True})
    eventually(lambda: dead(relays[0]) == sorted(dying), "they are dead")
    callers = [Restless(producers, TOPIC, seed=n, name=f"restless{n}") for n in (1, 2)]
    with callers[0], callers[1]:
        for partitions in (2, 1, 2, 4, 8, 4, 2, 1)[: count(2, 8)]:
            reshard(chance.choice(relays), partitions, "--max-rate", "500/s", "--no-wait")
            time.sleep(chance.uniform(0.0, 1.0))  # any moment will do
            victim = chance.choice(relays)
            victim.kill()
            victim.start()
            reshard(relays[0], partitions)
    wanted = callers[0].wanted | callers[1].wanted
    eventually(lambda: wanted <= stage.journal.ended().keys(), "what was wanted is handled", 200.0)
    assert not (callers[0].unwanted | callers[1].unwanted) & stage.journal.ended().keys()
    eventually(lambda: standing(relays[0])["timers"] == len(far), "only what is far from due is left")
    assert dead(relays[0]) == sorted(dying)
    producers[1].schedule_many(TOPIC, far, {})
    handled(stage, far, "what was moved is handled")


def test_by_http(stage: Stage) -> None:
    """A call begins one step, whoever asks, and says how the topic stands."""
    relay = stage.relay(settings=SETTINGS)
    stage.producer(relay).schedule_many(TOPIC, ids("far", 40), {}, delay=HOURS)
    request = urllib.request.Request(
        f"http://{relay.api}/v1/topics/{TOPIC}:reshard",
        data=b'{"partitions": 8, "max_rate": 1}',
        headers={"content-type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60.0) as answer:
        topic = json.load(answer)["topic"]
    assert (topic.get("partitions"), topic["moving_to"]) == (None, 2)
    assert standing(relay)["moving_to"] == 2
    told = ask(relay, "topics", "reshard", TOPIC, "--partitions", "1", "--no-wait")
    assert (told.code, told.err.startswith(f"relay: {TOPIC} moves from 1 to 2 partitions;")) == (1, True)


def test_audits_in_the_midst_of_moves(stage: Stage) -> None:
    """Timers that are on their way are not taken for lost, whenever somebody asks. In the end the journals of
    all partitions that there were prove every promise."""
    relay = stage.relay(settings=SETTINGS)
    producer = stage.producer(relay)
    application = stage.application(relay, TOPIC)
    far = ids("far", 3000)
    producer.schedule_many(TOPIC, far, {}, delay=HOURS)
    seen = 0
    with Restless([producer], TOPIC, seed=1, name="restless"):
        for partitions in (2, 4, 2, 1):
            reshard(relay, partitions, "--max-rate", "500/s", "--no-wait")
            while " ".join(str(layout(stage)).split()[1:]).count(" "):
                audited = audit(stage, relay)
                assert audited["verdict"] == "proved", audited
                seen += 1
    assert seen > 1
    producer.schedule_many(TOPIC, far, {})
    handled(stage, far, "what was moved is handled")
    eventually(lambda: standing(relay)["timers"] == 0, "nothing is left")
    assert application.terminate() == 0
    audited = audit(stage, relay, "--at-rest")
    kinds = audited["journal"]["kinds"]
    assert (audited["verdict"], audited["open"]) == ("proved", 0)
    assert kinds["LEFT"] == kinds["ARRIVED"] > 4000
    stage.judged(TOPIC, accepted=far)


def audit(stage: Stage, relay: Relay, *options: str) -> Any:
    """What the command says of the topic's journals."""
    ran = command(
        "audit", TOPIC, "--exclusive", "--json", *options, settings={"RELAY_REDIS__URL": stage.server.url}
    )
    assert ran.code in (0, 1, 2), ran.err
    (document,) = ran.documents
    return document
