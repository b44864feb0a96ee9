"""What is counted is what Prometheus reads, under bounded names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from relay.core.timers import TopicStats
from relay.telemetry.metrics.catalogue import (
    ALL,
    CLAIMED,
    DEAD,
    DELIVERED,
    EXPIRED,
    HELD_BACK,
    JOURNAL_TRIMMED,
    LATENESS,
    OF_RELAY,
    ORPHANS,
    OVER_BOUND,
    RELEASED,
    RETRIED,
    SCHEDULED,
    SETTLED,
    SILENT,
    STALE,
    STORE_ERRORS,
    UNDELIVERABLE,
    UNHEARD,
    InstrumentKind,
    InstrumentSpec,
)
from relay.telemetry.metrics.gauges import RelayState
from relay.telemetry.metrics.instruments import OTHER, Instruments
from relay.telemetry.metrics.provider import Metrics

Labels = frozenset[tuple[str, str]]


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    metrics = Metrics()
    yield metrics
    metrics.close()


def samples(metrics: Metrics) -> dict[tuple[str, Labels], float]:
    """What there is beside the gauges, which are always there."""
    content, _ = metrics.render()
    gauges = {sanitized(spec.name) for spec in OF_RELAY} | {"target_info"}
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(content.decode())
        for sample in family.samples
        if not any(family.name.startswith(name) for name in gauges)
    }


def sanitized(name: str) -> str:
    return name.replace(".", "_")


def exposed_names(spec: InstrumentSpec) -> set[str]:
    """The names under which Prometheus knows it."""
    name = sanitized(spec.name) + {"s": "_seconds", "By": "_bytes"}.get(spec.unit, "")
    if spec.kind is InstrumentKind.HISTOGRAM:
        return {name + suffix for suffix in ("_bucket", "_count", "_sum")}
    return {name + ("_total" if spec.kind is InstrumentKind.COUNTER else "")}


def labels(**values: str) -> Labels:
    return frozenset(values.items())


def test_counters(metrics: Metrics) -> None:
    count = metrics.instruments
    count.count(SCHEDULED, "t", n=3)
    count.count(SCHEDULED, "t", n=4)
    count.count(CLAIMED, "t", n=2)
    count.count(DELIVERED, "t", n=2)
    count.count(SETTLED, "t", "ack")
    count.count(RELEASED, "t", n=5)
    count.count(RETRIED, "t", n=2)
    count.count(DEAD, "t", "attempts", n=3)
    count.count(EXPIRED, "t", n=4)
    count.count(JOURNAL_TRIMMED, "t", n=5)
    count.count(STALE, "t", n=6)
    count.count(SILENT, "t", n=7)
    count.count(ORPHANS, "t", n=8)
    count.count(UNDELIVERABLE, "t", n=9)
    count.count(UNHEARD, "PUBLISH")
    count.count(STORE_ERRORS, "StoreUnavailable")
    assert samples(metrics) == {
        ("relay_timers_scheduled_total", labels(topic="t")): 7,
        ("relay_timers_claimed_total", labels(topic="t")): 2,
        ("relay_timers_delivered_total", labels(topic="t")): 2,
        ("relay_timers_settled_total", labels(topic="t", outcome="ack")): 1,
        ("relay_timers_released_total", labels(topic="t")): 5,
        ("relay_timers_retried_total", labels(topic="t")): 2,
        ("relay_timers_dead_total", labels(topic="t", reason="attempts")): 3,
        ("relay_timers_expired_total", labels(topic="t")): 4,
        ("relay_journal_trimmed_total", labels(topic="t")): 5,
        ("relay_timers_stale_total", labels(topic="t")): 6,
        ("relay_timers_silent_total", labels(topic="t")): 7,
        ("relay_timers_orphans_total", labels(topic="t")): 8,
        ("relay_timers_undeliverable_total", labels(topic="t")): 9,
        ("relay_wake_hints_refused_total", labels(command="PUBLISH")): 1,
        ("relay_store_errors_total", labels(error_type="StoreUnavailable")): 1,
    }


def test_nothing_counted_makes_no_series(metrics: Metrics) -> None:
    metrics.instruments.count(CLAIMED, "t", n=0)
    metrics.instruments.lateness("t", [])
    assert samples(metrics) == {}


def test_lateness_takes_a_batch_and_bounds_are_inclusive(metrics: Metrics) -> None:
    metrics.instruments.lateness("t", [-0.1, 0.001, 0.0011, 7.0])
    metrics.instruments.lateness("t", [1e6])
    found = samples(metrics)
    buckets = {
        dict(key)["le"]: value
        for (name, key), value in found.items()
        if name == "relay_lateness_seconds_bucket"
    }
    assert len(buckets) == len(LATENESS.bounds) + 1
    assert [buckets[le] for le in ("0.001", "0.002", "5.0", "10.0", "14400.0", "+Inf")] == [2, 3, 3, 4, 4, 5]
    assert found["relay_lateness_seconds_count", labels(topic="t")] == 5
    assert found["relay_lateness_seconds_sum", labels(topic="t")] == pytest.approx(1_000_007.0021)


def test_topics_beyond_the_limit_fold_into_one(metrics: Metrics) -> None:
    """Topics need no configuration, so anybody can make new ones; series must not grow with them."""
    for number in range(150):
        metrics.instruments.count(CLAIMED, f"t{number}")
        metrics.instruments.lateness(f"t{number}", [0.0])
    found = samples(metrics)
    claimed = {
        dict(key)["topic"]: n for (name, key), n in found.items() if name == "relay_timers_claimed_total"
    }
    assert len(claimed) == 101
    assert claimed[OTHER] == 50
    assert found["relay_lateness_seconds_count", labels(topic=OTHER)] == 50


def test_principals_beyond_the_limit_fold_into_one(metrics: Metrics) -> None:
    for number in range(150):
        metrics.instruments.count(OVER_BOUND, f"token:{number}", "max_calls")
        metrics.instruments.count(HELD_BACK, f"token:{number}", n=0.5)
    found = samples(metrics)
    assert len([name for name, _ in found if name == "relay_calls_over_bound_total"]) == 101
    assert found["relay_calls_over_bound_total", labels(principal=OTHER, bound="max_calls")] == 50
    assert found["relay_streams_held_back_seconds_total", labels(principal=OTHER)] == 25


def test_two_daemons_in_one_process_do_not_meet(metrics: Metrics) -> None:
    other = Metrics()
    other.instruments.count(CLAIMED, "t")
    other.close()
    assert samples(metrics) == {}


def test_every_instrument_is_described() -> None:
    assert len({spec.name for spec in ALL}) == len(ALL)
    for spec in ALL:
        assert spec.name.startswith(("relay.", "process.", "http.server."))
        assert spec.unit.startswith("{") or spec.unit in ("s", "By")
        assert spec.description.endswith(".")
        assert bool(spec.bounds) == (spec.kind is InstrumentKind.HISTOGRAM)


def test_instruments_work_on_any_provider() -> None:
    """Without the SDK, as in tests of the engine, they cost and do nothing."""
    from opentelemetry.metrics import NoOpMeterProvider

    instruments = Instruments(NoOpMeterProvider())
    instruments.count(CLAIMED, "t")
    instruments.lateness("t", [1.0])


def test_gauges_of_topics_beyond_the_limit_are_sums_or_the_worst() -> None:
    """Under the same names as the counters; and a relay of its own has none of it."""
    metrics = Metrics()
    now = 1_000_000_000
    topics = [TopicStats(f"t{n}", now, 2, 1, now - n * 1_000_000, 3, None, None) for n in range(100)]
    beyond = [
        TopicStats("x", now, 5, 4, now - 7_000_000, 1, None, None, coming=(1, 2, 3)),
        TopicStats("y", now, 6, 2, now - 9_000_000, 2, None, now + 5, coming=(4, 4, 4)),
        TopicStats("z", now, 0, 0, None, 0, None, None),
    ]
    metrics.gauges.show(RelayState(leased={"t0": 2, "x": 3, "y": 4}), [*topics, *beyond])
    content, _ = metrics.render()
    found = {
        (sample.name, sample.labels["topic"]): sample.value
        for family in text_string_to_metric_families(content.decode())
        for sample in family.samples
        if "topic" in sample.labels
    }
    assert len({topic for _, topic in found}) == 101
    assert [
        sample.value
        for family in text_string_to_metric_families(content.decode())
        for sample in family.samples
        if sample.name == "relay_forecast_due" and sample.labels["topic"] == OTHER
    ] == [5, 6, 7]
    assert found["relay_topic_waiting", OTHER] == 11
    assert found["relay_topic_due", OTHER] == 6
    assert found["relay_topic_dead", OTHER] == 3
    assert found["relay_topic_paused", OTHER] == 1
    assert found["relay_topic_oldest_due_age_seconds", OTHER] == 9.0
    assert found["relay_topic_next_due_timestamp_seconds", OTHER] == (now - 9_000_000) / 1e6
    assert (found["relay_topic_leased", OTHER], found["relay_topic_leased", "t0"]) == (7, 2)
    assert found["relay_topic_oldest_due_age_seconds", "t0"] == 0.0
    metrics.close()


def test_what_is_not_there_is_not_told() -> None:
    """A topic without timers has no next one; and topics that could not be read are missing, not 0."""
    metrics = Metrics()
    metrics.gauges.show(RelayState(), [TopicStats("t", 5, 0, 0, None, 0, None, None)])
    assert b'relay_topic_waiting{topic="t"} 0.0' in metrics.render()[0]
    assert b"relay_topic_next_due" not in metrics.render()[0]
    metrics.gauges.show(RelayState(connected={"": False}), ())
    assert b"relay_topic_waiting" not in metrics.render()[0]
    assert b"relay_store_connected 0.0" in metrics.render()[0]
    metrics.close()


def test_many_of_one_length() -> None:
    """Count, sum and bucket are those of each by itself."""
    metrics = Metrics()
    metrics.instruments.handled("orders", 0.5, 3)
    metrics.instruments.handled("orders", 2.0, 1)
    text = metrics.render()[0].decode()
    assert 'relay_handler_duration_seconds_count{topic="orders"} 4.0' in text
    assert 'relay_handler_duration_seconds_sum{topic="orders"} 3.5' in text
