"""One-line breaks of what is decided where timers of one id meet, and the scenarios that notice each."""

from __future__ import annotations

from functools import partial

from relay.core.timers import Change, OnConflict
from tests.lua import test_intents as intents
from tests.lua.killers_failure import Scenario
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.rules import Break

OF_INTENTS = {
    "the later one stands for the earliest": Break(
        "timeline/schedule", "earliest-stands", ".due >= score", old=".due <= score"
    ),
    "one that is due with the earliest replaces": Break(
        "timeline/schedule", "earliest-stands", ".due < score", old=".due <= score"
    ),
    "the earliest by the end of a lease": Break(
        "timeline/schedule", "earliest-stands", ".score <= score", old=".due <= score"
    ),
    "the earlier one stands for the latest": Break(
        "timeline/schedule", "latest-stands", ".due <= score", old=".due >= score"
    ),
    "one that is due with the latest replaces": Break(
        "timeline/schedule", "latest-stands", ".due > score", old=".due >= score"
    ),
    "a run has no limit": Break("timeline/schedule", "first-limit-holds", "limit = nil"),
    "each call has its own limit": Break(
        "timeline/schedule", "first-limit-holds", "limit = value", old="limit = limit_of(n, id) or value"
    ),
    "the limit is not of this call's time": Break(
        "timeline/schedule", "first-limit-holds", "value / 1e6", old="(now_us + value) / 1e6"
    ),
    "a limit that limits nothing": Break("timeline/schedule", "run-is-limited"),
    "the due time told without the limit": Break("timeline/schedule", "limited-due-told"),
    "runs overlook their own call": Break("timeline/schedule", "run-sees-own-call"),
    "a run goes on whatever the score": Break(
        "timeline/schedule",
        "foreign-score-ends-run",
        "return score and",
        old="return score and tonumber(score) == tonumber(found[n]) and",
    ),
    "the limit is not written": Break(
        "timeline/schedule", "limit-written", "id, pack(r)", old="id, r.limit and limit_text(r) or pack(r)"
    ),
    "a living occurrence replaced by itself": Break("timeline/schedule", "living-occurrence-stays"),
    "any timer taken for the occurrence": Break(
        "timeline/schedule",
        "living-occurrence-stays",
        "there and 'UNCHANGED'",
        old="there and standing(n, id).occurrence == occurrence and 'UNCHANGED'",
    ),
    "the given occurrence is not kept": Break("timeline/schedule", "given-occurrence-kept"),
}

MOVES: Scenario = intents.test_each_call_moves_it
IN_A_CALL: Scenario = intents.test_a_run_in_one_call


def stands(intent: OnConflict, due: int, change: Change) -> Scenario:
    return partial(intents.test_which_one_stands, intent=intent, due=NOW + due, change=change)


earlier = stands(OnConflict.KEEP_EARLIEST, 6, Change.REPLACED)
with_the_earliest = stands(OnConflict.KEEP_EARLIEST, 7, Change.UNCHANGED)
later = stands(OnConflict.KEEP_LATEST, 8, Change.REPLACED)
with_the_latest = stands(OnConflict.KEEP_LATEST, 7, Change.UNCHANGED)

KILLERS: dict[str, tuple[Scenario, ...]] = {
    "the later one stands for the earliest": (earlier, intents.test_several_of_one_id_in_a_call),
    "one that is due with the earliest replaces": (with_the_earliest,),
    "the earliest by the end of a lease": (intents.test_one_that_waits_for_its_next_attempt_keeps_it,),
    "the earlier one stands for the latest": (later, intents.test_several_of_one_id_in_a_call),
    "one that is due with the latest replaces": (with_the_latest,),
    "a run has no limit": (MOVES, IN_A_CALL),
    "each call has its own limit": (MOVES, intents.test_the_first_limit_of_a_run_holds),
    "the limit is not of this call's time": (MOVES,),
    "a limit that limits nothing": (MOVES, IN_A_CALL),
    "the due time told without the limit": (MOVES,),
    "runs overlook their own call": (IN_A_CALL,),
    "a run goes on whatever the score": (
        partial(intents.test_a_foreign_writer_ends_the_run, at=NOW / 1e6 + 7),
    ),
    "the limit is not written": (MOVES,),
    "a living occurrence replaced by itself": (
        intents.test_a_repeat_of_a_living_occurrence,
        intents.test_occurrences_in_one_call,
    ),
    "any timer taken for the occurrence": (intents.test_occurrences_in_one_call,),
    "the given occurrence is not kept": (intents.test_a_repeat_of_a_living_occurrence,),
}
