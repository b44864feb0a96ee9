"""Recurrences as they lie in Redis."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relay.core.recurring.recurrence import Recurrence
from relay.core.recurring.rule import Rule
from relay.store.codec.recurrence_text import read_rule, write_rule

CLOSED = Recurrence("r", Rule(every=1, leave_out=("2026-12-24",), calendars=("de", "fr")), b"x")


def test_the_names_of_calendars_come_back() -> None:
    assert read_rule("r", write_rule(CLOSED)) == CLOSED
    assert json.loads(write_rule(CLOSED))["rule"] == {
        "every": 1,
        "leave_out": ["2026-12-24"],
        "calendars": ["de", "fr"],
    }


def test_a_rule_without_calendars_is_written_as_before_there_were_any() -> None:
    """Relays of two versions put the same, and find it unchanged."""
    assert write_rule(Recurrence("r", Rule(every=1))) == b'{"rule":{"every":1}}'


@pytest.mark.parametrize(
    "said",
    [
        {"rule": {"cron": 5}},
        {"rule": {"every": "90s"}},
        {"rule": {"every": True}},
        {"rule": {"calendars": "de"}},
        {"rule": {"leave_out": [20261224]}},
        {"rule": {"gap": ["skip"]}},
        {"rule": {"every": 1}, "window": "1h"},
        {"rule": {"every": 1}, "max_runs": None},
        {"rule": {"every": 1}, "overlap": "queue"},
    ],
)
def test_what_another_version_writes_otherwise_is_not_read(said: dict[str, Any]) -> None:
    """A relay leaves the recurrence as it is, and goes on with the others."""
    with pytest.raises(ValueError, match=r"is not a valid|is not what"):
        read_rule("r", json.dumps(said).encode())
