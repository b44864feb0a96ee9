"""Whether a rule fires too often, or never."""

from __future__ import annotations

from itertools import islice, pairwise

from relay.core.errors import InvalidField
from relay.core.recurring.rule import Rule
from relay.rules.nominal import Instants

_SAMPLE = 1_000


def check_pace(rule: Rule, instants: Instants, now: int, shortest: int) -> None:
    """Raise `InvalidField` where two neighbours lie closer than `shortest` microseconds, or where the rule
    never fires from `now` on."""
    field = "rule.cron" if rule.cron else "rule.rrule" if rule.rrule else "rule.every"
    fires = [nominal.instant for nominal in islice(instants.after(now), _SAMPLE) if not nominal.left_out]
    if not fires:
        raise InvalidField(field, "never fires from now on")
    if any(later - earlier < shortest for earlier, later in pairwise(fires)):
        raise InvalidField(field, f"fires more often than every {shortest / 1e6:g} s, which the topic allows")
