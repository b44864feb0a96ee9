"""The numbers of a real relay after real traffic: exactly what the test did, for whoever reads them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pytest
from google.protobuf.duration_pb2 import Duration
from prometheus_client.parser import text_string_to_metric_families

from relay.v1 import timer_pb2
from tests.collector import Collector, collecting
from tests.deploy.queries import RULES, dashboard_queries, metrics_in, rule_queries
from tests.prometheus import promtool, scraping
from tests.worlds.relay.processes import Relay
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

TOPIC, OTHER = "orders", "mails"
SETTINGS: Mapping[str, str] = {
    "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "3",
    "RELAY_DEFAULTS__RETRY__INITIAL": "0",
    "RELAY_DEFAULTS__MAX_POLLING_INTERVAL": "0.2",
}
DISPATCHED = {
    "RELAY_TOPICS__jobs__DISPATCH": "list",
    "RELAY_TOPICS__jobs__JOURNAL": "true",
    "RELAY_TOPICS__news__DISPATCH": "stream",
    "RELAY_TOPICS__news__STREAM__GROUP": "billing",
}
RARE = {"relay_journal_trimmed_total", "relay_store_errors_total"}
RARE |= {"relay_list_returned_total", "relay_stream_dropped_total", "relay_timers_parked_total"}
RARE |= {"relay_actions_trimmed_total", "relay_actions_unwritten_total"}
RARE |= {"relay_files_refused_total", "relay_calls_over_bound_total"}
"""What no traffic of `test_numbers` brings about; `test_redis_away` has the latter."""

OF_THE_MOVER = {"relay_outbox_lag_seconds", "relay_outbox_rows"}
"""What another process has; see `tests/outbox/test_commands.py`."""

COUNTED: Mapping[str, float] = {
    'relay_timers_scheduled_total{topic="orders"}': 102,  # "late" comes twice, and "never" once
    'relay_timers_claimed_total{topic="orders"}': 117,
    'relay_timers_delivered_total{topic="orders"}': 117,  # 101, and 10 + 3 × 2 again
    'relay_timers_retried_total{topic="orders"}': 16,
    'relay_timers_settled_total{outcome="ack",topic="orders"}': 95,
    'relay_timers_settled_total{outcome="nack",topic="orders"}': 19,
    'relay_timers_settled_total{outcome="reject",topic="orders"}': 2,
    'relay_timers_stale_total{topic="orders"}': 1,
    'relay_timers_dead_total{reason="attempts",topic="orders"}': 3,
    'relay_timers_dead_total{reason="rejected",topic="orders"}': 2,
    'relay_timers_expired_total{topic="orders"}': 1,
    'relay_timers_released_total{topic="mails"}': 4,
    'relay_lateness_seconds_count{topic="orders"}': 101,
    'relay_handler_duration_seconds_count{topic="orders"}': 117,
    'relay_schedule_duration_seconds_count{topic="orders"}': 7,  # 5 calls of ours, and one of the handler's
    'relay_topic_waiting{topic="mails"}': 4,
    'relay_topic_dead{topic="orders"}': 5,
    'relay_topic_due{topic="orders"}': 0,
    'relay_topic_paused{topic="orders"}': 0,
    'relay_consumers{topic="orders"}': 1,
    'relay_lateness_seconds_count{topic="jobs"}': 2,
    'relay_list_ready{topic="jobs"}': 2,
    'relay_journal_limit{topic="jobs"}': 1_000_000,
    'relay_stream_entries{topic="news"}': 0,
    'relay_group_oldest_retry_age_seconds{group="billing",topic="news"}': 0,
    "relay_capacity_limit{}": 200,
    "relay_capacity_free{}": 200,
    "relay_store_connected{}": 1,
}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def traffic(stage: Stage, relay: Relay) -> None:
    """A hundred timers of every fate, and four that an application took with it when it died."""
    producer = stage.producer(relay)
    producer.schedule_many("jobs", ["for a worker", "and another"])
    expired = timer_pb2.TimerSpec(
        topic=TOPIC, timer_id="never", delay=Duration(), expire_after=Duration(nanos=1_000_000)
    )
    producer.store(expired)
    producer.schedule_many(TOPIC, [f"fine-{n}" for n in range(84)])
    producer.schedule_many(TOPIC, [f"again-{n}" for n in range(10)], {"nack_until": 2, "retry_after": 0})
    producer.schedule_many(TOPIC, [f"poison-{n}" for n in range(3)], {"nack_until": 99, "retry_after": 0})
    producer.schedule_many(TOPIC, [f"bad-{n}" for n in range(2)], {"reject": True})
    producer.schedule(TOPIC, "late", {"again": 0.05})
    doomed = stage.application(relay, OTHER, name="doomed")
    producer.schedule_many(OTHER, [f"held-{n}" for n in range(3)], {"hang": True})
    producer.schedule(OTHER, "held-3", {"hang": True})
    eventually(lambda: stage.journal.count("start") == 4, "four handlers hang")
    doomed.kill()
    stage.application(relay, TOPIC, "--prefetch", "100")  # else there is more room while deliveries are quick


def values(text: str) -> dict[str, float]:
    """What /metrics says, by name and labels."""
    return {
        sample.name
        + "{"
        + ",".join(f'{k}="{v}"' for k, v in sorted(sample.labels.items()))
        + "}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def differences(ask: Callable[[str], float | None]) -> dict[str, float | None]:
    return {name: ask(name) for name, wanted in COUNTED.items() if ask(name) != wanted}


def none_left(ask: Callable[[], dict[str, float | None]], who: str) -> None:
    """Until nothing differs; else the failure says what."""
    try:
        eventually(lambda: not ask(), f"{who} has all of it")
    except AssertionError:
        assert ask() == {}, f"{who} has counted otherwise"


@pytest.mark.slow
@pytest.mark.checkout
def test_numbers(stage: Stage, collector: Collector) -> None:
    """Pulled by a real Prometheus, pushed to an OTLP receiver: both have what the test did, to the unit."""
    push = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "OTEL_METRIC_EXPORT_INTERVAL": "300"}
    relay = stage.relay(settings={**SETTINGS, **DISPATCHED, **push, "OTEL_BSP_SCHEDULE_DELAY": "50"})
    with scraping([relay.http], RULES) as prometheus:
        traffic(stage, relay)
        none_left(lambda: differences(values(relay.metrics()).get), "the relay")
        none_left(lambda: differences(lambda name: prometheus.one(name.replace("{}", ""))), "Prometheus")
        text = eventually(lambda: complete(relay.metrics()), "a scrape has how topics stand")
        promtool("check", "metrics", text=text)
        every_family_is_described(text)
        every_query_finds_its_metrics(text)
        assert {rule["health"] for rule in prometheus.rules()} == {"ok"}
        by_otlp(collector)
        exemplars(collector)
    assert relay.terminate() == 0
    settled = collector.last("relay.timers.settled", topic=TOPIC, outcome="ack")
    assert settled == 95, "the last numbers leave as the relay stops"


def complete(text: str) -> str:
    """Return the scrape, or nothing where it lacks how topics stand: Redis had not answered in time."""
    return text if "relay_topic_waiting{" in text else ""


def every_family_is_described(text: str) -> None:
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        assert family.name == "target_info" or family.name.startswith(("relay_", "process_", "target"))


def every_query_finds_its_metrics(text: str) -> None:
    """Rules and dashboard ask for nothing that neither a relay nor the mover of the outbox has."""
    there = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    asked = metrics_in([*rule_queries(), *dashboard_queries()])
    assert len(asked) > 15
    assert asked - there - RARE == OF_THE_MOVER


def by_otlp(collector: Collector) -> None:
    def arrived() -> bool:
        return (
            collector.last("relay.timers.settled", topic=TOPIC, outcome="nack") == 19
            and collector.last("relay.timers.released", topic=OTHER) == 4
            and collector.last("relay.lateness", topic=TOPIC) == 101
            and collector.last("relay.topic.dead", topic=TOPIC) == 5
        )

    eventually(arrived, "the collector has it")


def exemplars(collector: Collector) -> None:
    """A bucket leads to a span that is there: of a delivery, of a schedule."""
    for name, of in (
        ("relay.lateness", f"deliver {TOPIC}"),
        ("relay.handler.duration", f"deliver {TOPIC}"),
        ("relay.schedule.duration", f"schedule {TOPIC}"),
    ):
        points = [point for point in collector.points(name) if point.attributes["topic"] == TOPIC]
        given = {(trace, span) for point in points for _, trace, span in point.exemplars}
        assert given, name
        known = partial(spans_of, collector, of)
        eventually(partial(given_among, given, known), f"the spans that {name} names")


def spans_of(collector: Collector, name: str) -> set[tuple[str, str]]:
    return {(span.trace, span.span) for span in collector.spans(name)}


def given_among(given: set[tuple[str, str]], known: Callable[[], set[tuple[str, str]]]) -> bool:
    return given <= known()


@pytest.mark.slow
@pytest.mark.checkout
def test_redis_away(stage: Stage) -> None:
    """A scrape is answered at once, with all that needs no Redis; the alert is on its way; and all is
    there again when Redis is."""
    relay = stage.relay(settings={**SETTINGS, "RELAY_REDIS__COMMAND_TIMEOUT": "6"})
    stage.producer(relay).schedule(TOPIC, "later", delay=1_000)
    waiting = (
        'relay_topic_waiting{topic="orders"}'  # left out of a scrape that Redis has not answered in time
    )
    eventually(lambda: values(relay.metrics()).get(waiting) == 1, "it reads how the topic stands")
    with scraping([relay.http], RULES) as prometheus:
        stage.server.freeze()
        eventually(lambda: values(relay.metrics())["relay_store_connected{}"] == 0, "it notices")
        found = values(relay.metrics())
        assert not [name for name in found if name.startswith("relay_topic_waiting")]
        assert found['relay_timers_scheduled_total{topic="orders"}'] == 1
        assert found['relay_store_errors_total{error_type="StoreUnavailable"}'] >= 1
        assert found["relay_store_last_answer_age_seconds{}"] > 1

        def pending() -> bool:
            states = {rule["name"]: rule.get("state") for rule in prometheus.rules()}
            return states["RelayRedisUnreachable"] in ("pending", "firing")

        eventually(pending, "Prometheus sees that Redis is away")
        stage.server.thaw()
        eventually(lambda: values(relay.metrics()).get(waiting) == 1, "it is back")


def test_a_hanging_read_is_not_waited_for(stage: Stage) -> None:
    """Redis hangs, and nobody has noticed yet: a scrape that waited for it would run into our own timeout."""
    relay = stage.relay(settings={"RELAY_REDIS__COMMAND_TIMEOUT": "300"})
    stage.server.freeze()
    found = values(relay.metrics())
    assert found["relay_store_connected{}"] == 1
    stage.server.thaw()


@pytest.mark.slow
def test_a_scrape_costs_redis_the_same_for_a_thousand_timers(stage: Stage) -> None:
    """One script call for each topic, whatever is in it, and none for a second scrape within the second."""
    quiet = {"RELAY_CONSOLE__ENABLED": "false"}  # its samples are reads, too
    relay = stage.relay(settings={**SETTINGS, **quiet})
    producer = stage.producer(relay)
    producer.schedule_many(TOPIC, [f"t{n}" for n in range(1_000)], delay=1_000)
    producer.schedule(OTHER, "one", delay=1_000)

    def calls() -> int:
        stats = stage.client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))

    relay.metrics()  # the script is known now
    before, began = calls(), time.monotonic()
    seen: list[int] = []
    while not seen or seen[-1] == before or len(seen) < 20:
        relay.metrics()
        seen.append(calls())
    took = time.monotonic() - began
    # A scrape does not wait for a Redis that is slow: it may have read one topic only.
    assert next(each for each in seen if each > before) - before <= 2
    assert seen[-1] - before <= 2 * (took + 1), "a second scrape within the second reads"
