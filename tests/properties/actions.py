"""What anybody may do in the world, and how often."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from relay.core.instants import SECOND
from relay.core.outcomes import Limits, Verb
from relay.core.timers import OnConflict
from tests.worlds.scripts.asking import LEASE

HOUR = 3600 * SECOND
OFFSETS = st.sampled_from([0, 1, -10 * SECOND, SECOND, LEASE - 1, LEASE, LEASE + 1, HOUR])
WAITS = st.sampled_from([1, SECOND, LEASE + 1, 2 * HOUR, 0])
BACK = st.sampled_from([0, 0, HOUR, 1, SECOND, LEASE])
VERBS = [*Verb, Verb.RELEASE, Verb.NACK, Verb.NACK, Verb.REJECT]
QUARTERS = st.sampled_from([1, 3, 0])  # of a microsecond: what a clock with nanoseconds adds
RETRIES = st.sampled_from([0, None, SECOND, HOUR])
EXPIRIES = st.sampled_from([None, None, None, 1, SECOND, LEASE, HOUR])
IDS = st.sampled_from(["a", "é"])
PICKS = st.lists(st.integers(0, 1000), min_size=1, max_size=3)
BOOLEANS = st.booleans()
# What a condition asks: nothing, pending, the due time that a relay tells, another one, both good ones.
CONDITIONS = st.sampled_from(["", "", "", "pending", "due", "other", "both"])
KEEPS = st.sampled_from([OnConflict.KEEP_EARLIEST, OnConflict.KEEP_LATEST])
PAUSES = st.sampled_from([SECOND, LEASE, HOUR, 3 * HOUR])
LONGER = st.sampled_from([0, SECOND, HOUR, None])  # than a pause: how long after its begin a run ends
LIMITS = st.sampled_from(
    [
        Limits(),
        Limits(keep=True),
        Limits(keep=True, keep_expired=True),
        Limits(max_attempts=2, keep=True),
        Limits(max_attempts=1),
        Limits(max_claims=2, keep=True),
        Limits(max_claims=1),
        Limits(max_age=LEASE, keep=True),
        Limits(max_attempts=3, max_claims=3, max_age=HOUR, keep=True),
    ]
)


def action(name: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


# One rule draws them all, by weight: rules of their own would be switched off at random, and few
# runs would come to a second delivery.
WEIGHTS = {
    action("schedule", timer_id=IDS, offset=OFFSETS, delayed=BOOLEANS, expires_after=EXPIRIES): 3,
    action(
        "change",
        timer_id=IDS,
        offset=OFFSETS,
        create=BOOLEANS,
        condition=CONDITIONS,
        max_waiting=st.integers(0, 2),
    ): 2,
    action("meet", timer_id=IDS, offset=OFFSETS, keep=KEEPS): 2,
    action("debounce", timer_id=IDS, pause=PAUSES, at_most=LONGER, calls=st.integers(1, 2)): 3,
    action("cancel", timer_id=IDS, condition=CONDITIONS): 2,
    action("run", timer_id=IDS): 3,
    action("publish", timer_id=IDS, offset=OFFSETS, at_deadline=BOOLEANS): 2,
    action("work", timer_id=IDS, skew=st.sampled_from([0, -HOUR, HOUR]), quarters=QUARTERS): 3,
    action("commit", timer_id=IDS): 1,
    action("litter", timer_id=IDS): 2,
    action("claim", relay=st.integers(0, 1), limit=st.sampled_from([10, 1]), wait=WAITS, limits=LIMITS): 10,
    action(
        "settle",
        picks=PICKS,
        verb=st.sampled_from(VERBS),
        retry_after=RETRIES,
        flags=st.tuples(BOOLEANS, BOOLEANS),
        back=BACK,
        limits=LIMITS,
    ): 10,
    action("renew", picks=PICKS, received=BOOLEANS): 4,
    action("late", picks=PICKS, verb=st.sampled_from([*Verb, None]), received=BOOLEANS): 4,
    action("redrive", picks=PICKS): 3,
    action("purge", picks=PICKS): 1,
    action("trim", most=st.integers(1, 2)): 2,
    action("pause", duration=st.sampled_from([SECOND, HOUR, None, 0])): 1,
    action("resume"): 1,
    action("look_for_orphans"): 1,
    action("repair", rescued=BOOLEANS): 1,
    action("step_back", back=BACK): 2,
}
ACTIONS = st.sampled_from([each for each, weight in WEIGHTS.items() for _ in range(weight)]).flatmap(
    lambda a: a
)
