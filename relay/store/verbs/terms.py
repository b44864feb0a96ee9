"""Arguments that several scripts take, as texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relay.core.instants import to_score
from relay.core.outcomes import Limits
from relay.core.timers import NO_CONDITION, REPLACE, Condition, Debounce, Intent, OnConflict
from relay.core.trust.principals import ANONYMOUS, caller

KEEPS = {OnConflict.KEEP_EARLIEST: "<", OnConflict.KEEP_LATEST: ">", OnConflict.KEEP_EXISTING: "c"}
"""How the scripts are told which timer stands, where that is not the new one."""


def limit_words(limits: Limits) -> tuple[str | int, ...]:
    """Write limits as a script takes an argument of the type `limits`."""
    return (
        limits.max_attempts,
        limits.max_claims,
        limits.max_age,
        "1" if limits.keep else "",
        "1" if limits.keep_expired else "",
    )


def when_words(
    due: int | None,
    delay: int | None,
    expires: int | None = None,
    expires_after: int | None = None,
    intent: Intent = REPLACE,
    condition: Condition = NO_CONDITION,
    occurrence: bytes = b"",
) -> str:
    """Write when a timer is due, and on what terms; see `timeline/schedule.lua`."""
    when = f"+{delay or 0}" if due is None else repr(to_score(due))
    if occurrence:
        when += f";o{occurrence.hex()}"
    if expires is not None:
        when += f";e{to_score(expires)!r}"
    elif expires_after is not None:
        when += f";x{expires_after}"
    if intent is not REPLACE:
        when += f";{intent_words(intent)}"
    if condition is not NO_CONDITION:
        when += f";{condition_words(condition)}"
    return when


def intent_words(intent: Intent) -> str:
    """Write what becomes of a timer that has the new one's id, which is not only replaced."""
    if isinstance(intent, Debounce):
        return "b" if intent.at_most is None else f"b{intent.at_most}"
    return KEEPS[intent]


def condition_words(condition: Condition) -> str:
    """Write a condition as the scripts' `refuses` takes it."""
    due = "" if condition.due is None else f"d{to_score(condition.due)!r}"
    content = condition.content and f"h{condition.content}"
    return content + ("p" if condition.only_pending else "") + ("l" if condition.only_leased else "") + due


def flag(is_set: bool) -> str:
    """Write a flag as the scripts take it."""
    return "1" if is_set else ""


def by_hand() -> str:
    """The caller for whom the running task works, for the journal; empty if that is nobody who is known."""
    principal = caller.get()
    return "" if principal is ANONYMOUS else principal.name


Words = Sequence[bytes]
"""A reply of words, one for each timer."""

Mixed = list[Any]
"""A reply of words and numbers in turn."""
