"""One-line breaks of what a stream relies on, and the scenarios that notice each."""

from __future__ import annotations

from functools import partial

from tests.lua import test_apply as apply
from tests.lua import test_apply_ops as ops
from tests.lua import test_apply_versions as versions
from tests.lua.killers_failure import Scenario
from tests.worlds.scripts.rules import Break

OF_APPLY = {
    "an older batch is taken": Break("bulk/apply", "newer-batch-refuses"),
    "a late row taken": Break("bulk/apply", "version-compared", "if true then"),
    "a row of the same version taken": Break("bulk/apply", "version-compared", "<=", old="<"),
    "the version of another row": Break(
        "bulk/apply", "version-of-row", "versions, 1, 19", old="versions, at, at + 18"
    ),
    "the older of two versions counts": Break("bulk/apply", "both-hashes-read", "one < two", old="one > two"),
    "versions of before not read": Break(
        "bulk/apply", "both-hashes-read", "one", old="one > two and one or two"
    ),
    "a later move forgotten": Break("bulk/apply", "later-move-remembered", "return op, version"),
    "a cancel remembers the later move": Break(
        "bulk/apply", "later-move-remembered", "", old="op == 's' and "
    ),
    "a later move not tried": Break("bulk/apply", "later-move-compared"),
    "the older hash written to": Break("bulk/apply", "later-versions-written", "if false then"),
    "versions known for ever": Break("bulk/apply", "versions-take-turns", "if not began then"),
    "older versions stay": Break("bulk/apply", "older-versions-go"),
    "no beginning of versions": Break("bulk/apply", "beginning-noted"),
    "versions not remembered": Break("bulk/apply", "versions-remembered"),
    "versions never expire": Break("bulk/apply", "versions-expire"),
    "an absent move remembered": Break(
        "bulk/apply", "absent-move-not-remembered", "", old=" and (op ~= 'm' or found[n])"
    ),
    "a newer row of the batch is known": Break(
        "bulk/apply", "newer-version-is-another-row", "if decided then"
    ),
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
    "the batch's ledger not read": Break("bulk/apply", "batch-ledger-read", "local decided = false"),
    "the batch's ledger written first": Break(
        "bulk/apply",
        "timers-before-batch-ledger",
        "if newest and not same then redis.call('UNLINK', ledger) end\nadd_chosen()",
    ),
    "the older ledger stays": Break("bulk/apply", "older-ledger-goes"),
    "the batch's ledger not written": Break("bulk/apply", "batch-ledger-written"),
    "the batch's ledger never expires": Break("bulk/apply", "batch-ledger-expires"),
}

row_and_move: Scenario = partial(
    versions.test_a_row_and_the_move_behind_it, between=None, payload=b"1", remembered=3
)
between: Scenario = partial(versions.test_a_row_and_the_move_behind_it, between=2, payload=b"2", remembered=3)
in_the_journal: Scenario = partial(ops.test_the_journal_has_what_was_changed, beside=False)
record_of_cancelled: Scenario = partial(ops.test_a_record_goes, op="c")
full_before: Scenario = partial(apply.test_a_full_redis_takes_nothing, before=True)

KILLERS: dict[str, tuple[Scenario, ...]] = {
    "a late row taken": (versions.test_a_late_row_loses,),
    "a row of the same version taken": (versions.test_what_was_delivered_stays_away,),
    "the version of another row": (versions.test_a_late_row_loses,),
    "the older of two versions counts": (versions.test_the_newest_of_both_hashes,),
    "versions of before not read": (versions.test_the_newest_of_both_hashes,),
    "a later move forgotten": (row_and_move,),
    "a cancel remembers the later move": (versions.test_a_cancel_and_the_move_behind_it,),
    "a later move not tried": (between,),
    "the older hash written to": (versions.test_evenre_known_for_their_time,),
    "versions known for ever": (versions.test_evenre_known_for_their_time,),
    "older versions stay": (versions.test_evenre_known_for_their_time,),
    "no beginning of versions": (versions.test_evenre_known_for_their_time,),
    "versions not remembered": (versions.test_a_late_row_loses, versions.test_what_was_delivered_stays_away),
    "versions never expire": (versions.test_a_stream_that_rests,),
    "an absent move remembered": (versions.test_a_move_that_finds_nothing,),
    "a newer row of the batch is known": (versions.test_two_rows_of_a_batch_in_two_calls,),
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
