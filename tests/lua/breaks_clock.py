"""One-line breaks of what a step of the server's clock relies on, and the scenarios that notice each."""

from __future__ import annotations

from tests.lua import test_extend as extend
from tests.lua import test_late as late
from tests.lua import test_recall as recall
from tests.lua.killers_failure import Scenario
from tests.worlds.scripts.rules import Break

OF_CLOCK = {
    "calls of a later clock not refused": Break(
        "lib/given_up",
        "calls-of-a-later-clock-refused",
        "now_us > us or us > now_us + LONGEST_CALL and false",
        old="now_us > us or us > now_us + LONGEST_CALL",
    ),
    "a renewal keeps what a clock of before gave": Break(
        "lib/life", "renewal-keeps-nonce", "r.score = math.max(r.score, own_score(until_us, r.due))"
    ),
    "a renewal ends before the due time": Break("lib/life", "renewal-shows-life", "until_us = until_us"),
    "renewals look alike": Break(
        "lib/life",
        "renewal-shows-life",
        "until_us = r.due * 1e6",
        old="until_us = math.floor(r.score * 1e6) + 1",
    ),
    "nobody hears of a lease that ends sooner": Break("timeline/extend", "sooner-leases-hint"),
    "all records taken for leases ahead": Break(
        "timeline/ahead", "leases-ahead-are-found", "if #raw == RECORD_SIZE then"
    ),
    "leases of now taken for leases ahead": Break(
        "timeline/ahead",
        "leases-ahead-are-found",
        "if #raw == RECORD_SIZE and string.sub(raw, 1, 2) == LEASED_RECORD then",
    ),
    "what is no lease is cut": Break(
        "timeline/recall", "leases-of-now-stay", "r.state", old="r.state == LEASED"
    ),
    "a foreign score is cut": Break(
        "timeline/recall", "leases-of-now-stay", "r.score", old="r.score == score"
    ),
    "leases of before not cut": Break("timeline/recall", "leases-of-before-are-cut", "r.score = score"),
    "a cut gives more than the clock of before": Break(
        "timeline/recall", "leases-of-before-are-cut", "r.score = own_score(ends_us, r.due)"
    ),
    "a longer lease of the new clock is taken for one of before": Break(
        "timeline/recall", "leases-of-the-new-clock-live"
    ),
    "a cut before the due time": Break("timeline/recall", "leases-of-before-are-cut", "0)", old="r.due)"),
    "a cut not noted": Break("timeline/recall", "cut-noted"),
    "leases end that are renewed": Break("timeline/recall", "renewed-leases-stay", "elseif asked then"),
    "leases that nobody renews stay": Break("timeline/recall", "renewed-leases-stay", "elseif false then"),
    "a recalled receipt does not count": Break("timeline/recall", "recall-counts-receipt"),
    "a recalled lease keeps its nonce": Break(
        "timeline/recall", "recall-ends-lease", "r.state, r.received = PENDING, 0"
    ),
    "a recalled lease stays one": Break(
        "timeline/recall", "recall-ends-lease", "r.nonce, r.received = NO_NONCE, 0"
    ),
    "a recalled timer is early": Break(
        "timeline/recall", "recall-never-early", "r.score = own_score(now_us, 0)"
    ),
    "a recall not noted": Break("timeline/recall", "recall-noted", "if false then"),
    "no hint from a recall": Break("timeline/recall", "recall-hints"),
}

KILLERS: dict[str, tuple[Scenario, ...]] = {
    "calls of a later clock not refused": (late.test_a_call_of_a_later_clock_is_refused,),
    "a renewal keeps what a clock of before gave": (extend.test_after_a_step_back,),
    "a renewal ends before the due time": (extend.test_after_a_step_back_behind_the_due_time,),
    "renewals look alike": (
        extend.test_after_a_step_back_behind_the_due_time,
        recall.test_a_lease_that_is_renewed,
    ),
    "nobody hears of a lease that ends sooner": (extend.test_after_a_step_back,),
    "all records taken for leases ahead": (recall.test_leases_are_found,),
    "leases of now taken for leases ahead": (recall.test_leases_are_found,),
    "what is no lease is cut": (recall.test_what_is_not_a_lease_of_ours,),
    "a foreign score is cut": (recall.test_what_is_not_a_lease_of_ours,),
    "leases of before not cut": (recall.test_a_lease_of_before_is_cut,),
    "a cut gives more than the clock of before": (
        recall.test_a_lease_keeps_what_it_had_by_the_clock_of_before,
    ),
    "a longer lease of the new clock is taken for one of before": (
        recall.test_a_lease_that_was_over_by_the_clock_of_before,
    ),
    "a cut before the due time": (recall.test_no_timer_comes_before_its_due_time,),
    "a cut not noted": (recall.test_the_journal,),
    "leases end that are renewed": (recall.test_a_lease_that_is_renewed,),
    "leases that nobody renews stay": (recall.test_a_lease_that_nobody_renews,),
    "a recalled receipt does not count": (recall.test_a_lease_that_nobody_renews,),
    "a recalled lease keeps its nonce": (recall.test_a_lease_that_nobody_renews,),
    "a recalled lease stays one": (recall.test_a_lease_that_nobody_renews,),
    "a recalled timer is early": (recall.test_a_lease_that_nobody_renews,),
    "a recall not noted": (recall.test_the_journal,),
    "no hint from a recall": (recall.test_a_lease_of_before_is_cut,),
}
