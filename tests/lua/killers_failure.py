"""What notices the breaks of failure and time: every one of the scenarios named."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from relay.core.instants import LATEST, SECOND
from relay.core.outcomes import Reason, Verb
from relay.core.timers import Change, Condition
from tests.lua import test_again as again
from tests.lua import test_dead as dead
from tests.lua import test_expiry as expiry
from tests.lua import test_forecast as forecast
from tests.lua import test_harm as harm
from tests.lua import test_options as options
from tests.lua import test_redrive as redrive
from tests.lua import test_topics as topics
from tests.worlds.scripts.asking import LEASE, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import score

Scenario = Callable[[Bench], Awaitable[None]]

rejected: Scenario = partial(dead.test_a_rejected_timer_is_kept, reason=Reason.REJECTED)
semicolons: Scenario = partial(dead.test_any_error_text, verb=Verb.REJECT, error="a;b;;c")
ten_a_page: Scenario = partial(redrive.test_pages_of_any_length, limit=10)
ages: Scenario = partial(dead.test_ages_in_other_years, year=2.2e9)
conflict: Scenario = partial(redrive.test_a_redrive_of_an_id_that_lives, lease=None)
in_flight: Scenario = partial(
    options.test_a_condition_that_does_not_hold, condition=options.PENDING_ONLY, change=Change.IN_FLIGHT
)
other_due: Scenario = partial(
    options.test_a_condition_that_does_not_hold, condition=Condition(due=NOW), change=Change.UNCHANGED
)
due_time: Scenario = partial(options.test_a_condition_that_holds, condition=options.DUE_THEN)
between: Scenario = partial(
    options.test_a_condition_on_a_due_time_between_microseconds, at=score(NOW) + 2**-22
)
on_nothing: Scenario = partial(options.test_a_condition_on_nothing, condition=options.BOTH)
expiry_elsewhere: Scenario = partial(expiry.test_never_at_or_after_its_expiry, base=2_200_000_000 * SECOND)
expiry_here: Scenario = partial(expiry.test_never_at_or_after_its_expiry, base=NOW)
new_time: Scenario = partial(again.test_a_new_due_time, due=NOW + LEASE, delay=None, expected=NOW + LEASE)
past_9999: Scenario = partial(again.test_a_new_due_time, due=None, delay=LATEST, expected=LATEST)

OF_FAILURE: dict[str, tuple[Scenario, ...]] = {
    "one attempt too many": (dead.test_the_last_attempt, dead.test_a_lapse_that_was_the_last_attempt),
    "one claim too many": (dead.test_a_lapse_that_nobody_received,),
    "age not looked at": (dead.test_too_old_for_a_further_attempt, dead.test_the_oldest_further_attempt),
    "age ends first deliveries": (dead.test_too_old_for_a_further_attempt,),
    "age between microseconds": (ages,),
    "age with what our scores add": (dead.test_the_oldest_further_attempt,),
    "age by now": (dead.test_the_oldest_further_attempt,),
    "limits not asked on a return": (
        dead.test_the_last_attempt,
        dead.test_a_release_of_what_was_received,
    ),
    "limits asked where nothing counted": (dead.test_a_release_of_what_was_received,),
    "limits not asked on a claim": (
        dead.test_a_lapse_that_was_the_last_attempt,
        dead.test_limits_that_became_lower,
    ),
    "reject counts no attempt": (rejected,),
    "unsent claims count": (dead.test_a_release_after_a_while,),
    "claims below none": (dead.test_a_release_after_a_while,),
    "what was not received is backed off": (dead.test_a_release_after_a_while,),
    "what was unsent is not backed off": (dead.test_a_release_after_a_while,),
    "dead letters of claims lost": (dead.test_a_lapse_that_was_the_last_attempt,),
    "dead letters of outcomes lost": (rejected, dead.test_the_last_attempt),
    "the dead kept against the policy": (dead.test_a_topic_that_keeps_none,),
    "the expired kept like the dead": (expiry.test_expired_timers_are_kept_if_asked,),
    "removed before they are buried": (dead.test_who_may_not_write_dead_letters,),
    "dead letters begin with an addition": (harm.test_deaths,),
    "last error lost": (rejected,),
    "last error cut short": (semicolons,),
    "content of the dead lost": (rejected,),
    "occurrence of the dead lost": (rejected,),
    "a timer without payload dies": (dead.test_a_death_of_a_timer_without_payload,),
    "redriven over a living timer": (conflict,),
    "redriven twice in a call": (redrive.test_two_deaths_redriven_in_one_call,),
    "redrive leaves the letter": (redrive.test_a_redriven_timer,),
    "redrive begins with an addition": (harm.test_what_people_do_to_a_full_redis,),
    "redriven as another occurrence": (redrive.test_a_redriven_timer,),
    "redriven on the publishers' grid": (
        redrive.test_a_redriven_timer,
        redrive.test_a_redriven_timer_and_foreign_writers,
    ),
    "redriven ahead of the record": (redrive.test_a_redriven_timer,),
    "an empty stream left by redrive": (redrive.test_a_redriven_timer,),
    "an empty stream left by purge": (redrive.test_purge,),
    "an empty stream left by trim": (redrive.test_trim_by_age,),
    "trimmed silently": (redrive.test_trim_by_count,),
    "pages carry the content": (redrive.test_a_page_leaves_the_content_out,),
    "pages read without end": (
        redrive.test_a_page_leaves_the_content_out,
        redrive.test_a_letter_larger_than_a_page,
    ),
    "pages repeat their last entry": (ten_a_page,),
    "pages end too soon": (redrive.test_a_page_leaves_the_content_out,),
    "no age trims": (redrive.test_trim_by_age,),
    "create replaces": (options.test_create_only, options.test_create_only_twice_in_one_call),
    "create overlooks its own call": (options.test_create_only_twice_in_one_call,),
    "a lease not asked for": (in_flight, options.test_cancel_on_condition_of_many),
    "no lease not asked for": (options.test_a_condition_on_a_lease,),
    "a content not asked for": (options.test_a_condition_on_a_content_that_is_another,),
    "the content before this call is asked for": (options.test_a_condition_on_the_content_before_this_call,),
    "a due time not asked for": (other_due, options.test_cancel_on_condition_of_many),
    "conditions on the score": (due_time,),
    "conditions on equal doubles": (between,),
    "no delivery under way is told": (options.test_which_deliveries_are_told,),
    "each record told as a delivery": (options.test_which_deliveries_are_told,),
    "a lease told whatever the score": (options.test_which_deliveries_are_told,),
    "a delivery told once more in its call": (options.test_what_a_call_has_stored_is_not_under_way,),
    "conditions on nothing hold": (on_nothing,),
    "conditions overlook their own call": (
        options.test_a_condition_on_what_the_call_stored,
        options.test_create_only_after_a_replacement_in_one_call,
    ),
    "cancel without asking": (in_flight, options.test_cancel_on_condition_of_many),
    "cancelled twice in a call": (options.test_cancel_on_condition_of_many,),
    "expiry not written": (expiry.test_an_expiry_is_kept, expiry_here),
    "expiry not looked at": (expiry_here,),
    "expiry on the publishers' grid": (expiry.test_a_foreign_republish_of_an_expiring_timer,),
    "expiry by adding doubles": (expiry_here,),
    "expiry between microseconds": (expiry_elsewhere,),
    "expiry outlives a republish": (expiry.test_a_foreign_republish_of_an_expiring_timer,),
    "expiry lost on a foreign lease": (expiry.test_an_expiry_survives_a_failure,),
    "no topic is full": (options.test_a_topic_that_is_full,),
    "full one too early": (options.test_a_topic_that_is_full,),
    "a full topic refuses replacements": (options.test_a_topic_that_is_full,),
    "reschedule keeps the record": (new_time,),
    "reschedule keeps the payload": (again.test_a_new_payload,),
    "reschedule empties the payload": (new_time,),
    "reschedule cuts the payload": (again.test_a_new_payload,),
    "reschedule without the fence": (
        again.test_a_foreign_publisher_was_first,
        again.test_a_foreign_worker_was_first,
    ),
    "reschedule takes a delay for an instant": (again.test_a_new_occurrence,),
    "reschedule past 9999": (past_9999,),
    "run takes a lease away": (again.test_run_a_leased_timer,),
    "run ends a parked timer's grace": (again.test_run_a_timer_without_payload,),
    "run waits for the due time": (again.test_run_a_waiting_timer,),
    "run moves the due time": (again.test_run_a_timer_in_back_off, again.test_run_a_due_timer),
    "run begins with an addition": (harm.test_what_people_do_to_a_full_redis,),
    "run on the publishers' grid": (again.test_run_and_foreign_writers,),
    "no hint from run": (again.test_run_hints,),
    "no hint from redrive": (redrive.test_a_redrive_hints,),
    "pause not looked at": (topics.test_nothing_is_claimed_of_a_paused_topic,),
    "pause begins with an addition": (harm.test_what_people_do_to_a_full_redis,),
    "resume wakes nobody": (topics.test_resume_wakes_everybody,),
    "resume wakes for nothing": (topics.test_resume_wakes_everybody,),
    "a pause that is past": (topics.test_a_pause_until_the_past,),
    "a pause that is past ends another": (topics.test_a_pause_until_the_past,),
    "a pause past 9999": (topics.test_a_pause_beyond_all_time,),
    "a pause since 1970": (topics.test_a_pause_for_a_while,),
    "the later counted as due": (topics.test_stats,),
    "what is due now falls due later": (forecast.test_a_timer_at_each_border_is_counted_once,),
    "a border is in two intervals": (forecast.test_a_timer_at_each_border_is_counted_once,),
    "any number of records is looked at": (forecast.test_too_many_records_to_tell_leases_apart,),
    "what was leased once is leased": (forecast.test_what_is_leased_is_told_apart,),
    "the look for orphans forgets the end": (topics.test_orphans_are_found,),
    "timers are taken for orphans": (topics.test_orphans_are_found,),
    "repair without asking again": (topics.test_repair,),
    "repair leaves the records": (topics.test_repair,),
}
