"""One-line breaks of what a stream relies on, and the scenarios that notice each."""

from __future__ import annotations

from functools import partial

from tests.lua import test_apply as apply
from tests.lua.killers_failure import Scenario
from tests.worlds.scripts.rules import Break

OF_APPLY = {
    "an older batch is taken": Break("bulk/apply", "newer-batch-refuses"),
    "the ledger of another batch counts": Break("bulk/apply", "older-ledger-void", "local same = newest"),
    "the batch's ledger not read": Break("bulk/apply", "batch-ledger-read", "if true then"),
    "the batch's ledger written first": Break(
        "bulk/apply",
        "timers-before-batch-ledger",
        "if newest and not same then redis.call('UNLINK', ledger) end\nadd_chosen()",
    ),
    "the older ledger stays": Break("bulk/apply", "older-ledger-goes"),
    "the batch's ledger not written": Break("bulk/apply", "batch-ledger-written"),
    "the batch's ledger never expires": Break("bulk/apply", "batch-ledger-expires"),
}

full_before: Scenario = partial(apply.test_a_full_redis_takes_nothing, before=True)

KILLERS: dict[str, tuple[Scenario, ...]] = {
    "an older batch is taken": (apply.test_an_older_batch_is_refused,),
    "the ledger of another batch counts": (apply.test_a_newer_batch_inserts_all_of_its_rows,),
    "the batch's ledger not read": (
        apply.test_what_was_delivered_stays_away,
        apply.test_what_was_cancelled_or_moved_stays_so,
    ),
    "the batch's ledger written first": (full_before, apply.test_a_ledger_that_is_refused),
    "the older ledger stays": (apply.test_a_newer_batch_inserts_all_of_its_rows,),
    "the batch's ledger not written": (
        apply.test_what_was_delivered_stays_away,
        apply.test_new_timers_are_inserted,
    ),
    "the batch's ledger never expires": (apply.test_new_timers_are_inserted,),
}
