"""Each rule of the scripts is held by a test: one line broken, and the tests that name it must fail."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from relay.core.errors import StoreFull
from relay.core.outcomes import Verb, Verdict
from tests.lua import test_claim as claim
from tests.lua import test_claimed as claimed
from tests.lua import test_extend as extend
from tests.lua import test_foreign as foreign
from tests.lua import test_harm as harm
from tests.lua import test_late as late
from tests.lua import test_newer_records as newer
from tests.lua import test_parking as parking
from tests.lua import test_read as read
from tests.lua import test_schedule as schedule
from tests.lua import test_settle as settle
from tests.lua.breaks import BREAKS
from tests.lua.breaks_apply import KILLERS as OF_APPLY
from tests.lua.breaks_clock import KILLERS as OF_CLOCK
from tests.lua.breaks_insert import KILLERS as OF_INSERT
from tests.lua.breaks_intents import KILLERS as OF_INTENTS
from tests.lua.breaks_layout import KILLERS as OF_LAYOUT
from tests.lua.breaks_losses import KILLERS as OF_LOSSES
from tests.lua.breaks_move import KILLERS as OF_MOVE
from tests.lua.breaks_record import KILLERS as OF_RECORD
from tests.lua.breaks_recur import KILLERS as OF_RECUR
from tests.lua.killers_failure import OF_FAILURE, Scenario
from tests.lua.killers_journal import OF_JOURNAL
from tests.lua.killers_load import OF_LOAD
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.rules import Break

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

foreign_lease: Scenario = partial(foreign.test_a_foreign_lease_keeps_what_we_know, before=foreign.HELD)
nack_after_step_back: Scenario = partial(harm.test_a_return_is_never_early, verb=Verb.NACK)
release_after_step_back: Scenario = partial(harm.test_a_return_is_never_early, verb=Verb.RELEASE)
cut_in_two: Scenario = partial(claimed.test_a_part_ends_between_two_scores, before=999)
wrong_leases: Scenario = partial(harm.test_a_wrong_type, verb="timeline/schedule", broken=2)
ack: Scenario = partial(settle.test_the_end, verb=Verb.ACK, answer=Verdict.OK)

# What has to fail under each break: every one of the scenarios named.
KILLERS: dict[str, tuple[Scenario, ...]] = {
    "nonce not compared": (
        foreign.test_a_takeover_by_another_relay,
        foreign.test_two_claims_that_share_a_deadline,
    ),
    "state not compared": (
        foreign.test_the_empty_nonce_is_no_token,
        parking.test_a_lost_payload_ends_a_lapsed_lease,
    ),
    "score not compared": (
        foreign.test_a_republish_at_exactly_our_deadline,
        foreign.test_a_republish_voids_the_lease,
    ),
    "a foreign score taken for ours": (foreign.test_a_republish_voids_the_lease, foreign_lease),
    "record kept on schedule": (schedule.test_at_the_very_score_of_a_lease,),
    "record kept on cancel": (schedule.test_cancel_leaves_no_record,),
    "our scores on the publishers' grid": (
        foreign.test_a_republish_at_exactly_our_deadline,
        foreign.test_a_republish_at_exactly_the_end_of_a_back_off,
    ),
    "renewal changes the nonce": (extend.test_the_token_lives_on,),
    "end of a lease keeps the nonce": (
        settle.test_nack_without_a_delay,
        settle.test_release_before_a_receipt,
    ),
    "end of a lease keeps the state": (extend.test_a_back_off_is_no_lease,),
    "claim keeps the nonce": (foreign.test_a_takeover_by_another_relay,),
    "parking keeps the nonce": (parking.test_a_lost_payload_ends_a_lapsed_lease,),
    "foreign lease keeps the token": (foreign_lease,),
    "duplicates not refused": (settle.test_one_operation_per_timer,),
    "renewed twice in a call": (extend.test_one_operation_per_timer,),
    "stale record of a gone timer kept": (settle.test_gone_is_not_stale,),
    "late calls not refused": (late.test_a_late_call_is_refused,),
    "late timers not told": (late.test_a_late_timer_is_not_stored, late.test_a_late_timer_is_not_cancelled),
    "a late timer stored": (late.test_a_late_timer_is_not_stored,),
    "all timers refused with the first": (late.test_a_late_timer_is_not_stored,),
    "a late timer cancelled": (late.test_a_late_timer_is_not_cancelled,),
    "all cancels refused with the first": (late.test_a_late_timer_is_not_cancelled,),
    "claim ahead of time": (claim.test_never_before_the_due_time,),
    "return before the due time": (nack_after_step_back, release_after_step_back),
    "nack before the due time": (nack_after_step_back,),
    "release before the due time": (release_after_step_back,),
    "due time lost on claim": (
        claim.test_a_timer_after_a_back_off,
        claim.test_a_lapse_without_receipt_counts_nothing,
    ),
    "due time lost after a foreign lease": (foreign_lease,),
    "a republish into the past overlooked": (foreign.test_a_republish_into_the_past,),
    "a republish on the grid overlooked": (foreign.test_a_republish_voids_the_lease,),
    "numbers with 14 digits": (claim.test_every_digit_of_a_due_time,),
    "records among gaps": (settle.test_a_reschedule_beside_a_nack,),
    "a back-off with 14 digits": (settle.test_every_digit_of_a_back_off,),
    "claim by a stale order": (claim.test_the_earliest_first_up_to_the_limit,),
    "release counts without a receipt": (settle.test_release_before_a_receipt,),
    "release overlooks the recorded receipt": (settle.test_release_after_a_receipt,),
    "release overlooks the relay's word": (settle.test_release_that_knows_of_the_receipt,),
    "lapse does not count": (claim.test_a_lapse_after_a_receipt_counts,),
    "lapse always counts": (claim.test_a_lapse_without_receipt_counts_nothing,),
    "nack does not count": (settle.test_nack_with_a_delay,),
    "receipt not recorded": (extend.test_a_receipt,),
    "receipt outlives its lease": (claim.test_a_lapse_after_a_receipt_counts,),
    "occurrence not kept": (
        claim.test_a_timer_after_a_back_off,
        claim.test_a_lapse_without_receipt_counts_nothing,
    ),
    "attempts lost on a foreign lease": (foreign_lease,),
    "attempts kept by a republish": (foreign.test_a_republish_voids_the_lease,),
    "parked timer removed at once": (
        parking.test_parked_for_the_grace_period,
        parking.test_saved_by_its_payload,
    ),
    "parked timer never removed": (parking.test_removed_after_the_grace_period,),
    "ack leaves the payload": (ack,),
    "ack leaves the record": (ack,),
    "cancel leaves the payload": (schedule.test_cancel_clears_orphans,),
    "claim begins with an addition": (harm.test_a_claim_of_new_timers,),
    "settle begins with an addition": (harm.test_outcomes_are_written,),
    "extend begins with an addition": (harm.test_a_lease_is_renewed,),
    "schedule begins with a delete": (harm.test_schedule_is_refused_whole,),
    "types not probed": (wrong_leases,),
    "no hint from schedule": (harm.test_schedule_hints_at_an_earlier_head,),
    "a hint that is refused ends the script": (harm.test_a_hint_that_is_refused,),
    "a hint that is refused goes untold": (harm.test_a_hint_that_is_refused,),
    "a journal hides that a hint was refused": (harm.test_a_hint_that_is_refused,),
    "no hint from settle": (harm.test_settle_hints_when_a_timer_comes_back_first,),
    "a hint each time": (harm.test_schedule_later_gives_no_hint,),
    "scores compared as strings": (harm.test_scores_are_compared_as_numbers,),
    "limit ignored": (claim.test_the_earliest_first_up_to_the_limit,),
    "byte bound ignored": (claim.test_the_byte_bound,),
    "a big timer never taken": (claim.test_the_byte_bound,),
    "payloads read without measure": (claim.test_few_payloads_are_read_in_vain,),
    "large ones read in vain behind a small one": (claim.test_few_are_read_in_vain_behind_a_small_one,),
    "the first payload not read alone": (claim.test_few_payloads_are_read_in_vain,),
    "a new timer's due time lost": (claim.test_a_due_timer_is_leased, claim.test_every_digit_of_a_due_time),
    "a foreign lease taken for a new timer": (foreign.test_a_foreign_lease_of_a_timer_that_we_never_held,),
    "a new timer due before 1970": (claim.test_scores_that_no_clock_shows,),
    "another claim's found": (claimed.test_the_others_are_not_found,),
    "found though it has run out": (claimed.test_one_that_has_run_out,),
    "found without payload": (claimed.test_one_without_payload,),
    "found beyond the bytes": (claimed.test_the_byte_bound,),
    "a big one never found": (claimed.test_the_byte_bound,),
    "a claim cut in two": (cut_in_two,),
    "delay past 9999 taken": (schedule.test_a_delay_past_9999,),
    "due times told by the second": (
        schedule.test_after_a_delay,
        schedule.test_what_is_told_is_what_is_there,
    ),
    "due times told that are known": (schedule.test_due_times_are_told_of_what_was_stored,),
    "pages by score alone": (read.test_pages_over_any_scores,),
    "pages of any size": (read.test_pages_with_envelopes,),
    "pages skip what moved up": (read.test_pages_over_any_scores,),
    "records of another version": (claim.test_every_digit_of_a_due_time,),
    "a newer record read as none": (newer.test_a_record_of_another_size,),
    "text taken for a newer record": (newer.test_text_is_no_record,),
    "a newer record taken over": (newer.test_a_record_of_another_size,),
    **OF_FAILURE,
    **OF_JOURNAL,
    **OF_LOAD,
    **OF_INSERT,
    **OF_APPLY,
    **OF_INTENTS,
    **OF_LAYOUT,
    **OF_LOSSES,
    **OF_MOVE,
    **OF_RECUR,
    **OF_RECORD,
    **OF_CLOCK,
}


async def holds(scenario: Scenario, server: RunningServer, topic: str, *breaks: Break) -> bool:
    """Whether the scenario passes. A script that does not even run raises, and proves nothing."""
    bench = Bench(server, topic, *breaks)
    try:
        await scenario(bench)
    except (AssertionError, StoreFull, ValueError, KeyError, pytest.fail.Exception):
        return False
    finally:
        await bench.close()
    return True


def test_every_break_has_its_killers() -> None:
    """The two lists name the same breaks."""
    assert set(KILLERS) == set(BREAKS)


held: set[Scenario] = set()
"""Scenarios that this worker has seen to pass on the scripts as they are: many have several breaks."""


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKS)
async def test_a_broken_line_is_noticed(name: str, valkey: RunningServer, keyspace: Keyspace) -> None:
    """Each scenario passes on the scripts as they are and fails on the broken ones."""
    for scenario in KILLERS[name]:
        if scenario not in held:
            assert await holds(scenario, valkey, keyspace.topic()), "it fails on the unbroken scripts"
            held.add(scenario)
        assert not await holds(scenario, valkey, keyspace.topic(), BREAKS[name]), "nobody noticed"
