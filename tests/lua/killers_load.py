"""What notices the breaks of what a sweep relies on: every one of the scenarios named."""

from __future__ import annotations

from functools import partial

from tests.lua import test_cold as cold
from tests.lua import test_load as load
from tests.lua import test_pace as pace
from tests.lua.killers_failure import Scenario

acked: Scenario = partial(load.test_what_ended_stays_away, end=load.end_by_ack)
died: Scenario = partial(load.test_what_ended_stays_away, end=load.end_in_a_claim)
cancelled: Scenario = partial(load.test_what_ended_stays_away, end=load.end_by_cancel)

OF_LOAD: dict[str, tuple[Scenario, ...]] = {
    "taken from what nobody has counted": (cold.test_a_store_that_nobody_has_counted_leaves_nothing,),
    "an older plan's word stands": (cold.test_a_sweep_that_comes_to_itself_says_nothing,),
    "counts stay for good": (cold.test_counts_of_a_store_that_nobody_sweeps_any_more,),
    "ledger not read": (load.test_a_batch_is_loaded_once,),
    "ledger not written": (load.test_a_batch_is_loaded_once,),
    "ledger of all plans": (load.test_batches_and_plans_are_apart,),
    "what lives is overwritten": (load.test_what_lives_is_left_alone,),
    "marks not read": (acked, load.test_older_rows_are_held_off),
    "touches not read": (acked, load.test_a_cancel_of_what_is_not_loaded_yet),
    "versions not compared": (load.test_older_rows_are_held_off, load.test_versions_of_each_row),
    "own version held off": (load.test_older_rows_are_held_off, load.test_a_late_end_leaves_no_mark),
    "one version for all rows": (load.test_versions_of_each_row,),
    "epoch not compared": (load.test_lost_marks_stop_the_load,),
    "plan not compared": (load.test_another_plan_has_the_marks,),
    "load begins with a delete": (load.test_a_full_redis_takes_nothing_of_a_batch,),
    "record of a gone timer kept by the load": (load.test_new_rows_are_inserted,),
    "what lives loses its record": (load.test_a_part_of_a_batch,),
    "envelopes of other rows": (load.test_a_part_of_a_batch,),
    "scores of other rows": (load.test_a_part_of_a_batch,),
    "no hint from the load": (load.test_an_earlier_head_is_hinted,),
    "expiring scores of other rows": (load.test_rows_that_expire,),
    "expiries of other rows": (load.test_rows_that_expire,),
    "loaded timers never expire": (load.test_rows_that_expire,),
    "loads not in the journal": (load.test_the_journal_has_what_is_loaded_and_retired,),
    "ack leaves no mark": (acked,),
    "death in a claim leaves no mark": (died,),
    "cancel leaves no mark": (cancelled, load.test_a_cancel_of_what_is_not_loaded_yet),
    "cancel marks only what it finds": (load.test_a_cancel_of_what_is_not_loaded_yet,),
    "refused cancels are marked": (load.test_a_refused_cancel_leaves_no_mark,),
    "marks come before the removal": (load.test_a_full_redis_drains_beside_a_plan,),
    "marks without a plan": (load.test_without_a_plan_there_are_no_marks,),
    "marks of another type": (load.test_a_wrong_type,),
    "epoch made anew with marks there": (load.test_another_plan_has_the_marks,),
    "marks taken from a live driver": (load.test_one_driver_at_a_time,),
    "marks never taken over": (load.test_one_driver_at_a_time,),
    "kept by whoever comes": (load.test_one_driver_at_a_time,),
    "closed by whoever comes": (load.test_one_driver_at_a_time,),
    "marks of another store": (load.test_one_store_at_a_time,),
    "taken over without a word": (load.test_one_store_at_a_time,),
    "taken over with what was noted": (load.test_a_plan_that_is_given_up,),
    "the store not written": (load.test_one_store_at_a_time,),
    "abandoned marks stay": (load.test_abandoned_marks_go,),
    "abandoned marks are written": (load.test_abandoned_marks_go,),
    "a retirement in abandoned marks": (load.test_abandoned_marks_go,),
    "loaded by abandoned marks": (load.test_abandoned_marks_go,),
    "marks are kept for nothing": (load.test_abandoned_marks_go,),
    "retired by whoever comes": (load.test_a_fenced_writer_removes_nothing,),
    "retirement leaves no version": (load.test_older_rows_are_held_off,),
    "an older retirement wins": (load.test_a_late_older_retirement,),
    "a retirement keeps touches": (load.test_a_mark_before_the_retirement,),
    "retirement leaves the lease": (load.test_retired_timers_are_gone,),
    "retirement leaves the payload": (load.test_retired_timers_are_gone,),
    "retirements not in the journal": (load.test_the_journal_has_what_is_loaded_and_retired,),
    "turns at the same time": (pace.test_turns_lie_one_behind_the_other,),
    "a turn is not kept": (pace.test_turns_lie_one_behind_the_other, pace.test_a_clock_that_steps_back),
    "time of a rest is caught up on": (pace.test_time_that_nobody_used_is_gone,),
    "held up by a clock of old": (pace.test_a_clock_that_steps_back,),
    "turns stay for ever": (pace.test_nothing_stays_when_all_turns_are_over,),
}
