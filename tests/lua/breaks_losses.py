"""One-line breaks of what decides who goes alone, and the scenarios that notice each."""

from __future__ import annotations

from tests.lua import test_claim as claim
from tests.lua import test_losses as losses
from tests.lua.killers_failure import Scenario
from tests.worlds.scripts.rules import Break

OF_LOSSES = {
    "a loss without receipt tells of none before": Break(
        "lib/life", "losses-without-receipt-by-claims", "local before = r.attempts"
    ),
    "claims tell of losses": Break(
        "lib/life", "losses-without-receipt-by-claims", "local before = r.claims - 1"
    ),
    "what is lost again is no suspect": Break("lib/life", "lost-again-goes-alone"),
    "what is lost is a suspect": Break("lib/life", "lost-again-goes-alone", "before >= 0", old="before > 0"),
    "the last attempt is lost among others": Break("lib/life", "last-attempt-goes-alone"),
    "the last attempt but one goes alone": Break(
        "lib/life", "last-attempt-goes-alone", "limits.attempts - 2", old="limits.attempts - 1"
    ),
    "the loss itself does not bring the last attempt": Break(
        "lib/life", "last-attempt-goes-alone", "if r.attempts", old="if r.attempts + counts"
    ),
    "suspects that are lost are none": Break("lib/life", "suspects-stay-suspects", "return 0"),
    "lapse raises no suspicion": Break("lib/life", "lapse-raises-suspicion"),
    "any lapse raises suspicion": Break(
        "lib/life", "lapse-raises-suspicion", "r.suspect = suspected(r, r.received, limits)"
    ),
    "a break raises no suspicion": Break("lib/outcomes", "break-raises-suspicion"),
    "a break counts where no receipt came": Break(
        "lib/outcomes", "break-raises-suspicion", "r.suspect = suspected(r, 1, limits)"
    ),
    "what was not sent is cleared": Break("lib/outcomes", "unsent-keeps-suspicion", "else"),
    "an orderly end clears nothing": Break(
        "lib/outcomes",
        "release-clears-suspicion",
        "if string.find(flags, 's', 1, true) then r.suspect = 1 end",
    ),
    "nobody is asked to go alone": Break("lib/outcomes", "release-clears-suspicion", "r.suspect = 0"),
    "a recalled receipt raises no suspicion": Break("timeline/recall", "recall-raises-suspicion"),
    "any recall raises suspicion": Break(
        "timeline/recall", "recall-raises-suspicion", "r.suspect = suspected(r, received, limits)"
    ),
}

KILLERS: dict[str, tuple[Scenario, ...]] = {
    "a loss without receipt tells of none before": (losses.test_a_stream_that_broke,),
    "claims tell of losses": (losses.test_a_lapse, losses.test_a_stream_that_broke),
    "what is lost again is no suspect": (losses.test_a_lapse, losses.test_a_recall),
    "what is lost is a suspect": (
        claim.test_a_lapse_after_a_receipt_counts,
        losses.test_a_stream_that_broke,
        losses.test_a_recall,
    ),
    "the last attempt is lost among others": (losses.test_a_lapse, losses.test_a_recall),
    "the last attempt but one goes alone": (losses.test_a_lapse, losses.test_a_stream_that_broke),
    "the loss itself does not bring the last attempt": (losses.test_a_lapse, losses.test_a_recall),
    "suspects that are lost are none": (losses.test_suspects_that_are_lost,),
    "lapse raises no suspicion": (losses.test_a_lapse,),
    "any lapse raises suspicion": (losses.test_a_lapse_without_receipt,),
    "a break raises no suspicion": (losses.test_a_stream_that_broke,),
    "a break counts where no receipt came": (losses.test_a_stream_that_broke,),
    "what was not sent is cleared": (losses.test_a_release_in_order,),
    "an orderly end clears nothing": (losses.test_a_release_in_order,),
    "nobody is asked to go alone": (losses.test_a_release_in_order,),
    "a recalled receipt raises no suspicion": (losses.test_a_recall,),
    "any recall raises suspicion": (losses.test_a_recall,),
}
