"""Recurrences that scripts say again and again: what has not changed is read once, what has is read anew."""

from __future__ import annotations

from dataclasses import replace

from relay.core.recurring.recurrence import Recurrence, Standing
from relay.core.recurring.rule import Rule
from relay.store.codec.contents import PLAIN
from relay.store.codec.kept_recurrences import SHORT, kept_of
from relay.store.codec.recurrence_text import write_rule, write_standing

DAILY = Recurrence("daily", Rule(cron="0 9 * * *"), b"p")
STANDING = Standing(version=1, next=5, settled=4)


def read(wanted: Recurrence, standing: Standing) -> tuple[Recurrence, Standing]:
    said = [wanted.recurrence_id.encode(), write_rule(wanted), write_standing(standing), b"1"]
    (kept,), unread = kept_of(PLAIN, "t", said)
    assert not unread
    return kept.recurrence, kept.standing


def test_what_has_not_changed_is_read_once() -> None:
    first, again = read(DAILY, STANDING), read(DAILY, STANDING)
    assert first == again == (DAILY, STANDING)
    assert (first[0] is again[0], first[1] is again[1]) == (True, True)


def test_what_has_changed_is_read_anew() -> None:
    read(DAILY, STANDING)
    for wanted in (replace(DAILY, payload=b"q"), replace(DAILY, recurrence_id="other")):
        assert read(wanted, STANDING)[0] == wanted
    later = replace(STANDING, version=2, next=6)
    assert read(DAILY, later) == (DAILY, later)


def test_what_is_long_is_not_remembered() -> None:
    large, told = replace(DAILY, payload=b"p" * SHORT), replace(STANDING, note="n" * SHORT)
    first, again = read(large, told), read(large, told)
    assert first == again == (large, told)
    assert (first[0] is again[0], first[1] is again[1]) == (False, False)
