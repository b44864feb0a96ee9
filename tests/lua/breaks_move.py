"""One-line breaks of what keeps a timer in one place while its topic's partitions change, and the scenarios
that notice each."""

from __future__ import annotations

from functools import partial

from relay.core.timers import Debounce, OnConflict
from tests.lua import test_hand_overs as hand_overs
from tests.lua import test_move as moving
from tests.lua.killers_failure import Scenario
from tests.lua.killers_journal import kept
from tests.worlds.scripts.rules import Break

OF_MOVE = {
    "calls by an older layout are taken": Break("lib/layout", "older-layout-refused"),
    "a newer layout is not kept": Break("lib/layout", "newer-layout-kept"),
    "who reads keeps a layout": Break("lib/layout", "readers-write-nothing", "raise(stands)"),
    "a partition that comes into use is taken for not paused": Break(
        "lib/layout", "pause-asked-for-anew", "here.pause_unknown = false"
    ),
    "a partition need not be told if the next layout comes": Break(
        "lib/layout", "pause-asked-for-anew", "not was_in_use", old="(here.pause_unknown or not was_in_use)"
    ),
    "the first partition is to be told of a pause": Break(
        "lib/layout",
        "pause-asked-for-anew",
        "(here.pause_unknown or not was_in_use)",
        old="number ~= '0' and (here.pause_unknown or not was_in_use)",
    ),
    "claims don't wait to be told of a pause": Break("timeline/claim", "unknown-pauses-hold"),
    "a partition is told of an older pause": Break("layout/tell_pause", "newer-pauses-stay", "if true then"),
    "what is on its way is taken for gone": Break("lib/layout", "noted-timers-wait"),
    "what lies on its way is not told": Break("lib/layout", "old-notes-are-told", "return false"),
    "what has just been taken out lies": Break("lib/layout", "old-notes-are-told", "0", old="1000000"),
    "an old partition takes timers in": Break("timeline/schedule", "leaving-takes-nothing-in"),
    "a cancel clears what belongs elsewhere": Break("timeline/cancel", "absent-cancels-go-on"),
    "an outcome is noted where its timer is not": Break(
        "timeline/settle", "absent-outcomes-go-on", "if JOURNAL then"
    ),
    "a renewal is noted where its timer is not": Break(
        "timeline/extend", "absent-leases-go-on", "if JOURNAL then"
    ),
    "a batch over the one on its way": Break("move/leave", "one-batch-at-a-time"),
    "batches of any size": Break("move/leave", "batches-bounded-by-bytes"),
    "two batches of one name": Break(
        "move/leave", "batches-have-later-names", "now_us", old="math.max(last + 1, now_us)"
    ),
    "batches are counted from 1": Break(
        "move/leave", "batches-have-later-names", "last + 1", old="math.max(last + 1, now_us)"
    ),
    "a batch is not noted": Break("move/leave", "batches-are-noted"),
    "any batch is forgotten": Break("lib/move", "other-batches-stay"),
    "a bounded rate goes with a batch": Break("lib/move", "no-other-field-travels", "[trcd]", old="[tcd]"),
    "a batch arrives again": Break("lib/move", "batches-arrive-once"),
    "a batch comes over what stands": Break("lib/move", "what-stands-stays", "else"),
    "leases stay behind": Break("lib/move", "leases-move-too"),
    "a batch that went back has been put": Break(
        "move/put", "refusals-stay", "if as then return answer({ 'PUT' }) end"
    ),
    "a batch that was put goes back": Break(
        "move/void", "arrivals-stay", "if as then return answer('VOID') end"
    ),
    "a refusal is forgotten": Break("move/void", "refusals-are-remembered"),
    "what leaves is not told": Break("move/leave", "leaving-noted"),
    "what arrives is not told": Break("lib/move", "arrival-noted"),
    "letters arrive before it is known that they can be recorded": Break(
        "lib/move", "arrival-asked-before-letters", "if false then"
    ),
    "a batch is forgotten before it is known that it can be recorded": Break(
        "move/back", "return-asked-before-it-is-forgotten", "if false then"
    ),
    "a layout is changed unseen": Break("layout/change", "changes-by-comparison"),
    "a move begins beside a sweep": Break("layout/change", "sweeps-come-to-their-end"),
    "leases are lost with the first layout": Break("layout/change", "lease-records-make-way"),
    "a search may go on at another server": Break(
        "move/scan", "scans-name-their-server", "'redis_version:(%d)'", old="'run_id:(%x+)'"
    ),
}

on_its_way = tuple(partial(moving.test_a_timer_that_is_on_its_way, name=name) for name in moving.ABOUT_TIMERS)
sweeps = (partial(moving.test_a_sweep_and_a_move, known="1 2", becomes="2 2 4"),)
taken_in = tuple(partial(moving.test_nothing_is_taken_in, intent=each) for each in (*OnConflict, Debounce(5)))

told = kept(hand_overs.test_a_batch_is_told_of_at_both_places)
unwritten = kept(hand_overs.test_a_journal_that_may_not_be_written, kind="d", right="xrevrange")

KILLERS: dict[str, tuple[Scenario, ...]] = {
    "calls by an older layout are taken": (
        moving.test_an_older_layout_is_told,
        moving.test_a_newer_layout_stands,
    ),
    "a newer layout is not kept": (moving.test_a_newer_layout_stands,),
    "who reads keeps a layout": (moving.test_who_reads_keeps_no_layout,),
    "a partition that comes into use is taken for not paused": (
        moving.test_a_partition_that_comes_into_use,
        moving.test_a_partition_that_was_in_use,
    ),
    "a partition need not be told if the next layout comes": (moving.test_a_partition_that_was_in_use,),
    "the first partition is to be told of a pause": (moving.test_a_partition_that_was_in_use,),
    "claims don't wait to be told of a pause": (moving.test_a_partition_that_comes_into_use,),
    "a partition is told of an older pause": (moving.test_a_pause_that_is_newer,),
    "what is on its way is taken for gone": on_its_way,
    "an old partition takes timers in": taken_in,
    "what lies on its way is not told": (moving.test_a_batch_that_lies,),
    "what has just been taken out lies": (moving.test_a_batch_that_lies,),
    "a cancel clears what belongs elsewhere": (moving.test_a_cancel_of_what_is_not_there,),
    "an outcome is noted where its timer is not": (moving.test_an_outcome_of_what_is_not_there,),
    "a renewal is noted where its timer is not": (moving.test_a_renewal_of_what_is_not_there,),
    "a batch over the one on its way": (moving.test_one_batch_at_a_time,),
    "batches of any size": (moving.test_a_batch_of_so_many_bytes,),
    "two batches of one name": (moving.test_each_batch_has_a_later_name,),
    "batches are counted from 1": (moving.test_each_batch_has_a_later_name,),
    "a batch is not noted": (moving.test_a_batch_is_noted,),
    "any batch is forgotten": (moving.test_another_batch_stays,),
    "a bounded rate goes with a batch": (moving.test_a_bounded_rate_stays,),
    "a batch arrives again": (moving.test_a_batch_arrives_once,),
    "a batch comes over what stands": (moving.test_what_stands_where_a_batch_comes,),
    "leases stay behind": (moving.test_all_of_a_timer_moves,),
    "a batch that went back has been put": (moving.test_a_batch_that_was_refused,),
    "a batch that was put goes back": (moving.test_a_batch_that_has_arrived,),
    "a refusal is forgotten": (moving.test_a_batch_that_was_refused,),
    "what leaves is not told": (told,),
    "what arrives is not told": (told,),
    "letters arrive before it is known that they can be recorded": (unwritten,),
    "a batch is forgotten before it is known that it can be recorded": (
        kept(hand_overs.test_a_return_that_may_not_be_written),
    ),
    "a layout is changed unseen": (moving.test_a_change_compares,),
    "a move begins beside a sweep": sweeps,
    "leases are lost with the first layout": (moving.test_a_topic_gets_a_layout,),
    "a search may go on at another server": (moving.test_a_search_names_its_server,),
}
