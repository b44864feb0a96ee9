"""One-line breaks of what a load relies on, with a run or without, and the scenarios that notice each."""

from __future__ import annotations

from functools import partial

from relay.core.timers import OnConflict
from tests.lua import test_insert as insert
from tests.lua import test_replace as replace
from tests.lua.killers_failure import Scenario
from tests.worlds.scripts.rules import Break

OF_INSERT = {
    "the run's ledger not read": Break("bulk/insert", "run-ledger-read", "if true then"),
    "the run's ledger not written": Break("bulk/insert", "run-ledger-written"),
    "the run's ledger written first": Break(
        "bulk/insert",
        "timers-before-ledger",
        "if #decided > 0 then redis.call('SADD', ledger, unpack(decided)) end\n@1",
    ),
    "the run's ledger never expires": Break("bulk/insert", "run-ledger-expires"),
    "long ids as they are": Break("lib/bulk_columns", "long-ids-hashed", "if false then"),
    "insert spares nothing": Break("bulk/insert", "living-spared", "if false then"),
    "insert always spares": Break("bulk/insert", "spare-asked-for", "local spare = true\nmode = 'c'"),
    "the later row stands for the earliest": Break(
        "bulk/insert", "earliest-row-stands", "due >= score", old="due <= score"
    ),
    "a row that is due with the earliest replaces": Break(
        "bulk/insert", "earliest-row-stands", "due < score", old="due <= score"
    ),
    "the earlier row stands for the latest": Break(
        "bulk/insert", "latest-row-stands", "due <= score", old="due >= score"
    ),
    "a row that is due with the latest replaces": Break(
        "bulk/insert", "latest-row-stands", "due > score", old="due >= score"
    ),
    "what was spared comes later": Break(
        "bulk/insert",
        "spared-is-decided",
        "if not (spare and found[n]) then decided[#decided + 1] = name end",
    ),
    "insert begins with a delete": Break("lib/bulk_columns", "bulk-begins-with-zadd", "@2\n@1", lines=2),
    "insert leaves the lease": Break("lib/bulk_columns", "bulk-clears-records"),
    "envelopes of other inserted rows": Break(
        "lib/bulk_columns", "envelope-by-row", "envelopes[k / 2 + 1]", old="envelopes[n]"
    ),
    "scores of other inserted rows": Break(
        "lib/bulk_columns", "score-by-row", "scores[k / 2 + 1], id", old="scores[n], id"
    ),
    "inserted timers never expire": Break("lib/bulk_columns", "expiring-get-records", "if false then"),
    "no hint from insert": Break("lib/bulk_columns", "bulk-hints"),
    "what is inserted not in the journal": Break(
        "lib/bulk_columns", "bulk-addition-noted", "note(EXTENDED,", old="note(SCHEDULED,"
    ),
    "what is replaced not in the journal": Break(
        "lib/bulk_columns", "bulk-replacement-noted", "if false then"
    ),
    "replace spares what lives": Break(
        "bulk/replace",
        "whole-batch-replaces",
        "if not redis.call('ZSCORE', timeline, ids[n]) then chosen[#chosen + 1] = n end",
    ),
}

earliest: Scenario = partial(insert.test_which_row_stands, on_conflict=OnConflict.KEEP_EARLIEST)
latest: Scenario = partial(insert.test_which_row_stands, on_conflict=OnConflict.KEEP_LATEST)

KILLERS: dict[str, tuple[Scenario, ...]] = {
    "the run's ledger not read": (
        insert.test_what_was_delivered_stays_away,
        insert.test_what_was_cancelled_or_moved_stays_so,
        insert.test_a_lease_of_this_runs_timer_stands,
    ),
    "the run's ledger not written": (insert.test_what_was_delivered_stays_away,),
    "the run's ledger written first": (insert.test_a_ledger_that_is_refused,),
    "the run's ledger never expires": (insert.test_new_timers_are_inserted,),
    "long ids as they are": (insert.test_long_ids, insert.test_what_the_cold_store_was_told_of),
    "insert spares nothing": (insert.test_what_lives_is_spared,),
    "insert always spares": (insert.test_runs_are_apart,),
    "the later row stands for the earliest": (earliest,),
    "a row that is due with the earliest replaces": (earliest,),
    "the earlier row stands for the latest": (latest,),
    "a row that is due with the latest replaces": (latest,),
    "what was spared comes later": (insert.test_what_lives_is_spared,),
    "insert begins with a delete": (
        insert.test_a_full_redis_beside_a_lease,
        replace.test_a_full_redis_takes_nothing,
    ),
    "insert leaves the lease": (
        insert.test_new_timers_are_inserted,
        replace.test_what_lives_is_replaced,
    ),
    "envelopes of other inserted rows": (insert.test_a_batch_of_the_largest_size,),
    "scores of other inserted rows": (insert.test_a_batch_of_the_largest_size,),
    "inserted timers never expire": (
        insert.test_timers_that_expire,
        replace.test_the_same_as_by_schedule,
    ),
    "no hint from insert": (
        insert.test_an_earlier_head_is_hinted,
        replace.test_an_earlier_head_is_hinted,
    ),
    "what is inserted not in the journal": (
        insert.test_the_journal_has_what_is_inserted,
        replace.test_the_journal_has_both,
    ),
    "what is replaced not in the journal": (
        insert.test_the_journal_has_what_is_inserted,
        replace.test_the_journal_has_both,
    ),
    "replace spares what lives": (
        replace.test_what_lives_is_replaced,
        replace.test_the_same_as_by_schedule,
    ),
}
