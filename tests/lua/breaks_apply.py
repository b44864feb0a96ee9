"""One-line breaks of what a stream relies on, and the scenarios that notice each."""

from __future__ import annotations

from functools import partial

from tests.lua import test_apply as apply
from tests.lua import test_apply_ops as ops
from tests.lua.killers_failure import Scenario
from tests.worlds.scripts.rules import Break

OF_APPLY = {
    "an older batch is taken": Break("bulk/apply", "newer-batch-refuses"),
    "the op of another row": Break(
        "bulk/apply", "op-by-row", "string.sub(ops, 1, 1)", old="string.sub(ops, n, n)"
    ),
    "an absent timer comes later": Break(
        "bulk/apply",
        "absent-is-decided",
        "if op == 's' or found[n] then entries[#entries + 1], entries[#entries + 2] = name, '' end",
    ),
    "an absent timer moved": Break("bulk/apply", "absent-not-moved", "else op = found[n] and op or 's'"),
    "a move ends the expiry": Break(
        "bulk/apply", "moved-keeps-expiry", "0", old="understand(tonumber(found[n]), records[n]).expires"
    ),
    "a move writes a payload": Break("lib/bulk_columns", "moved-keeps-payload", "if true then"),
    "an applied cancel not in the journal": Break(
        "bulk/apply", "applied-cancel-noted", "note(EXTENDED,", old="note(CANCELLED,"
    ),
    "an applied cancel leaves the record": Break("bulk/apply", "applied-cancel-clears-record"),
    "an applied cancel leaves the payload": Break("bulk/apply", "applied-cancel-clears-payload"),
    "an applied cancel leaves the timer": Break("bulk/apply", "applied-cancel-removes"),
    "a sweep not told of an applied cancel": Break("bulk/apply", "applied-cancel-marked"),
    "the ledger of another batch counts": Break("bulk/apply", "older-ledger-void", "same = newest"),
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

in_the_journal: Scenario = partial(ops.test_the_journal_has_what_was_changed, beside=False)
record_of_cancelled: Scenario = partial(ops.test_a_record_goes, op="c")
full_before: Scenario = partial(apply.test_a_full_redis_takes_nothing, before=True)

KILLERS: dict[str, tuple[Scenario, ...]] = {
    "the op of another row": (ops.test_each_row_by_its_op,),
    "an absent timer comes later": (ops.test_what_is_not_there,),
    "an absent timer moved": (ops.test_what_is_not_there,),
    "a move ends the expiry": (ops.test_a_move_keeps_the_expiry,),
    "a move writes a payload": (ops.test_each_row_by_its_op,),
    "an applied cancel not in the journal": (in_the_journal,),
    "an applied cancel leaves the record": (record_of_cancelled,),
    "an applied cancel leaves the payload": (ops.test_a_payload_alone_goes_with_a_cancel,),
    "an applied cancel leaves the timer": (ops.test_each_row_by_its_op, ops.test_a_full_redis),
    "a sweep not told of an applied cancel": (ops.test_a_sweep_is_told_of_a_cancel,),
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
