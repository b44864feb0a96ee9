"""A storm of errors leaves a readable log, and a count of what is not in it."""

from __future__ import annotations

import logging

import pytest

from relay.telemetry.logs.log_limits import BURST, MOST_PLACES, SELDOM, LogLimits


class Written:
    """Says things at a time of its own, and keeps what got through."""

    def __init__(self) -> None:
        self.storms = LogLimits()
        self.now = 1e9

    def say(self, line: int, *, name: str = "relay.x", level: int = logging.ERROR, words: str = "m") -> bool:
        record = logging.LogRecord(name, level, "/x.py", line, words, (), None)
        record.created = self.now
        self.last = record
        return self.storms.filter(record)

    @property
    def count(self) -> int:
        """What the last line says was left out."""
        return int(getattr(self.last, "suppressed", 0))


def test_a_storm_is_cut_and_counted() -> None:
    """Ten at once, then one a second, which tells of those before it."""
    log = Written()
    assert [log.say(1) for _ in range(100)] == [True] * BURST + [False] * (100 - BURST)
    log.now += 1.0
    assert (log.say(1), log.count) == (True, 100 - BURST)
    assert not log.say(1)
    log.now += 1.0
    assert (log.say(1), log.count) == (True, 1)
    assert log.storms.suppressed == 100 - BURST + 1


def test_a_storm_hides_nothing_else() -> None:
    """Another statement, of the same module or of another, has its own say."""
    log = Written()
    for _ in range(100):
        log.say(1)
    assert log.say(2)
    assert log.say(1, name="relay.y")
    assert log.count == 0


def test_what_changes_in_the_words_does_not_help() -> None:
    log = Written()
    assert sum(log.say(1, words=f"timer {n}") for n in range(100)) == BURST
    assert sum(log.say(0, words=f"timer {n}") for n in range(100)) == 100, "who has no line is known by words"


def test_a_quiet_place_may_speak_again() -> None:
    log = Written()
    for _ in range(BURST):
        log.say(1)
    log.now += 100.0
    assert sum(log.say(1) for _ in range(100)) == BURST


def test_a_clock_that_steps_back_silences_nobody_for_long() -> None:
    log = Written()
    for _ in range(100):
        log.say(1)
    log.now -= 3_600.0
    assert not log.say(1)
    log.now += 1.0
    assert log.say(1)


def test_debugging_is_not_cut() -> None:
    log = Written()
    assert all(log.say(1, level=logging.DEBUG) for _ in range(100))


@pytest.mark.parametrize(
    "name", ["opentelemetry.exporter", "relay.rpc.unreadable", "relay.web.connection", "uvicorn.error"]
)
def test_what_others_cause_is_said_once_a_minute(name: str) -> None:
    """By an exporter whose collector is away, and about what strangers send."""
    log = Written()
    assert [log.say(1, name=name) for _ in range(3)] == [True, False, False]
    log.now += SELDOM
    assert (log.say(1, name=name), log.count) == (True, 2)


def test_memory_is_bounded_and_debts_are_kept() -> None:
    log = Written()
    for _ in range(BURST + 5):
        log.say(1)
    for line in range(2, 2 * MOST_PLACES):
        log.say(line)
    assert len(log.storms._places) == MOST_PLACES
    log.now += 1.0
    log.say(1)
    assert log.count == 5
