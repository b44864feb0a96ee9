"""How fast a topic was delivered: ended deliveries, a second of the time in which any was under way."""

from __future__ import annotations

from relay.engine.delivery.shown_rates import MINUTES, ShownRates


def test_one_after_the_other() -> None:
    """A rate of what was done, however seldom that is."""
    rates = ShownRates()
    assert rates.rate("t", 0.0) is None
    for n in range(10):
        rates.ended("t", 1, 60.0 * n, 60.0 * n + 0.02)
        assert round(rates.rate("t", 60.0 * n + 1) or 0, 6) == 50.0
    assert rates.rate("another", 600.0) is None


def test_work_side_by_side_takes_its_time_once() -> None:
    """A hundred that went out together and end one by one."""
    rates = ShownRates()
    for n in range(1, 101):
        rates.ended("t", 1, 0.0, n * 0.01)
    assert round(rates.rate("t", 2.0) or 0, 6) == 100.0


def test_the_best_of_the_last_minutes() -> None:
    """A slower time does not count until the better one is long ago, nor does a moment without work."""
    rates = ShownRates()
    rates.ended("t", 500, 0.0, 1.0)
    for minute in range(1, MINUTES):
        rates.ended("t", 5, 60.0 * minute, 60.0 * minute + 1.0)
        assert rates.rate("t", 60.0 * minute + 2.0) == 500.0
    rates.ended("t", 5, 60.0 * MINUTES, 60.0 * MINUTES + 1.0)
    assert rates.rate("t", 60.0 * MINUTES + 2.0) == 5.0
    assert rates.rate("t", 60.0 * 2 * MINUTES - 1.0) == 5.0
    assert rates.rate("t", 60.0 * 2 * MINUTES + 2.0) is None
