"""Recurrences as they lie in Redis."""

from __future__ import annotations

import json

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
