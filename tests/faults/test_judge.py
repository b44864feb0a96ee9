"""The judge of the table of faults, held against ledgers by hand: each rule finds what it is for, and nothing
that is allowed."""

from __future__ import annotations

import pytest

from tests.faults.stories import AHEAD, TTL, Story

# ------------------------------------------------------------------------------------ lost


def test_what_was_acknowledged_and_handled_is_not_lost() -> None:
    judge = Story().scheduled(1.0).handled(5.1).judge
    assert judge.is_over
    verdict = judge.verdict
    assert (verdict.acknowledged, verdict.timers, verdict.deliveries) == (1, 1, 1)
    assert not verdict.broken


def test_what_was_acknowledged_and_never_came_is_lost() -> None:
    judge = Story().scheduled(1.0).judge
    assert judge.lost == ["a"]
    assert not judge.is_over
    assert judge.verdict.broken == 1


@pytest.mark.parametrize("outcome", ["nack", "reject"])
def test_a_handler_that_does_not_acknowledge_ends_nothing(outcome: str) -> None:
    assert Story().scheduled(1.0).handled(5.1, outcome=outcome).judge.lost == ["a"]


def test_a_handler_that_dies_ends_nothing() -> None:
    assert Story().scheduled(1.0).begin(5.1).judge.lost == ["a"]


def test_a_call_without_an_answer_is_not_lost() -> None:
    assert not Story().ask(1.0).error(2.0).judge.missing


def test_a_call_that_was_repeated_counts_like_any_other() -> None:
    story = Story().ask(1.0).error(2.0).ask(2.1).ok(2.2)
    assert story.judge.lost == ["a"]
    assert story.handled(5.1).judge.is_over
    assert story.judge.calls.errors == {"UNAVAILABLE": 1}


def test_what_an_earlier_try_stored_does_not_stand_for_a_later_one() -> None:
    """The first try acted and was delivered; the second was answered OK, so it stored the timer once more."""
    story = Story().ask(1.0, due=1.5).error(2.0).handled(1.6, due=1.5).ask(2.1, due=1.5).ok(2.2)
    assert story.judge.lost == ["a"]
    assert story.handled(2.3, due=1.5, occurrence="again").judge.is_over


def test_the_last_acknowledged_call_counts() -> None:
    """A move that was answered OK, and only the intent before it came."""
    assert Story().scheduled(1.0).scheduled(4.0, n=2, due=9.0).handled(5.1).judge.lost == ["a"]


def test_a_cancel_that_was_acknowledged_ends_the_timer() -> None:
    assert Story().scheduled(1.0).cancelled(2.0, 2).judge.is_over


def test_what_may_have_been_replaced_is_met_by_what_may_have_replaced_it() -> None:
    story = Story().scheduled(1.0).ask(2.0, 2, due=9.0).error(3.0, 2)
    assert story.judge.lost == ["a"], "one of the two has to come"
    assert story.handled(9.1, 2, due=9.0).judge.is_over


def test_what_may_have_been_cancelled_is_not_lost() -> None:
    assert Story().scheduled(1.0).ask(2.0, 2, what="cancel").error(3.0, 2).judge.is_over


@pytest.mark.parametrize(("answered", "explained"), [(9.9, False), (10.1, True), (10.9, True), (13.5, False)])
def test_a_loss_explains_what_was_answered_in_its_lag(answered: float, explained: bool) -> None:
    judge = Story().scheduled(answered, due=20.0).loss(10.0, 11.0).judge
    assert (judge.lost == []) is explained
    assert judge.verdict.lost_explained == explained
    assert judge.verdict.lags == {"lag": 1.0}


# ----------------------------------------------------------------------------------- early


def test_a_delivery_before_its_due_time_is_early() -> None:
    judge = Story().scheduled(1.0).handled(4.99).judge
    assert len(judge.early) == judge.verdict.early == judge.verdict.broken == 1


def test_the_due_time_that_the_caller_asked_for_counts() -> None:
    """Not the one that the delivery carries."""
    assert len(Story().scheduled(1.0, due=5.0).handled(4.0, due=3.0).judge.early) == 1


def test_early_is_by_the_server_s_clock() -> None:
    """It was an hour ahead for two seconds, in which the timer was due."""
    story = Story().scheduled(1.0, due=3000.0).clock(10.5, ahead=AHEAD + 3600).handled(13.0, due=3000.0)
    assert not story.judge.early


def test_a_clock_that_was_ahead_before_the_call_explains_nothing() -> None:
    story = Story().clock(10.5, ahead=AHEAD + 3600).scheduled(20.0, due=3000.0).handled(21.0, due=3000.0)
    assert len(story.judge.early) == 1


def test_a_clock_that_is_ahead_afterwards_explains_nothing() -> None:
    story = Story().scheduled(1.0, due=3000.0).handled(10.6, due=3000.0).clock(20.5, ahead=AHEAD + 3600)
    assert len(story.judge.early) == 1


def test_what_the_readings_leave_open_is_not_early() -> None:
    """The only reading took two seconds: the clock may have been a second further."""
    story = Story(until=-1.0).scheduled(1.0, due=10.9).clock(10.5, took=2.0)
    assert not story.handled(10.6, due=10.9).judge.early


def test_a_replica_s_clock_decides_nothing() -> None:
    story = Story().scheduled(1.0, due=3000.0).clock(10.5, ahead=AHEAD + 3600, port=2, master=False)
    assert len(story.handled(10.6, due=3000.0).judge.early) == 1


def test_slow_readings_are_narrowed_down_by_quick_ones() -> None:
    """A reading that took two seconds says little; the quick ones around it say that nobody set the clock."""
    story = Story().clock(10.5, took=2.0).scheduled(1.0, due=10.9).handled(10.6, due=10.9)
    assert len(story.judge.early) == 1


# ---------------------------------------------------------------------------------- undone


def test_an_old_intent_that_is_claimed_after_a_newer_one_was_acknowledged_is_undone() -> None:
    judge = Story().scheduled(1.0, due=2.0).scheduled(1.5, 2, due=9.0).handled(2.1, due=2.0).judge
    assert len(judge.undone) == 1
    assert judge.verdict.broken == 2, "and the newer one is lost"


def test_a_delivery_that_was_under_way_is_not_undone() -> None:
    """It was claimed before the move was acknowledged, and its handler began after that."""
    story = Story().scheduled(1.0, due=2.0).scheduled(2.2, 2, due=9.0).handled(9.1, 2, due=9.0)
    assert not story.begin(2.5, due=2.0, claimed=2.1).judge.undone


def test_the_second_delivery_of_an_old_intent_is_undone() -> None:
    story = Story().scheduled(1.0, due=2.0).begin(2.1, due=2.0).scheduled(2.2, 2, due=9.0)
    judge = story.handled(9.1, 2, due=9.0).handled(10.0, due=2.0, attempt=2).judge
    assert [each.begins for each, _ in judge.undone] == [10.0]


def test_what_came_early_before_a_newer_intent_is_early_alone() -> None:
    verdict = (
        Story().scheduled(1.0).handled(3.0).scheduled(4.0, 2, due=9.0).handled(9.1, 2, due=9.0).judge.verdict
    )
    assert (verdict.early, verdict.undone) == (1, 0)


def test_no_claim_is_older_than_its_due_time() -> None:
    """Whatever lease the delivery carries."""
    story = Story().scheduled(1.0).cancelled(3.0, 2)
    assert len(story.handled(5.1, claimed=2.1).judge.undone) == 1


def test_a_cancelled_timer_that_comes_is_undone() -> None:
    assert len(Story().scheduled(1.0).cancelled(2.0, 2).handled(5.1).judge.undone) == 1


def test_a_try_that_was_given_up_and_acts_later_is_undone() -> None:
    """A ghost: the first call had no answer, the second one stands, and the first comes all the same."""
    story = Story().ask(1.0, due=4.0).error(2.0).scheduled(3.0, 2, due=9.0)
    assert len(story.handled(4.1, due=4.0).handled(9.1, 2, due=9.0).judge.undone) == 1


def test_a_newer_call_without_an_answer_undoes_nothing() -> None:
    assert not Story().scheduled(1.0).ask(2.0, 2, due=9.0).error(3.0, 2).handled(5.1).judge.undone


def test_a_person_may_bring_back_an_old_intent() -> None:
    story = Story().scheduled(1.0).handled(5.1, outcome="reject").cancelled(6.0, 2)
    story.write("redrive", 7.0, ids=["a"])
    assert not story.handled(7.1, claimed=7.05).judge.undone


def test_a_loss_brings_back_old_intents() -> None:
    judge = Story().scheduled(1.0).cancelled(2.0, 2).loss(1.9, 2.1).handled(5.1).judge
    assert not judge.undone
    assert judge.verdict.undone_explained == 1


def test_a_loss_that_comes_later_brings_back_nothing() -> None:
    """The cancel stood when the timer came. A master that was replaced does not have it, loss or no loss."""
    story = Story().scheduled(1.0).cancelled(2.0, 2).handled(5.1)
    verdict = story.loss(1.9, 8.0).judge.verdict
    assert (verdict.undone, verdict.undone_explained) == (1, 0)
    assert story.loss(1.9, 8.0, why="split").judge.verdict.undone_explained == 1


def repeated() -> Story:
    """A call whose second try was answered OK at 2.2."""
    return Story().ask(1.0, due=4.0).error(2.0).ask(2.1, due=4.0).ok(2.2)


def test_an_earlier_try_that_acts_after_the_answer_is_undone() -> None:
    """A ghost: the timer was delivered, and comes once more as something else."""
    judge = repeated().handled(4.1, due=4.0).handled(6.0, due=4.0, occurrence="ghost").judge
    assert [(each.begins, before.begins) for each, before in judge.ghosts] == [(6.0, 4.1)]
    assert judge.verdict.undone == judge.verdict.broken == 1


def test_an_earlier_try_may_have_acted_before_the_answer() -> None:
    """What it stored was claimed before, or what the last one stored may have come late."""
    story = Story().ask(1.0, due=1.5).error(2.0).handled(1.6, due=1.5).ask(2.1, due=1.5).ok(2.2)
    assert not story.handled(9.0, due=1.5, occurrence="again").judge.ghosts


def test_what_was_claimed_before_and_comes_later_is_no_ghost() -> None:
    """It was on its way to its handler for long, and was replaced meanwhile."""
    story = Story().ask(1.0, due=1.5).error(2.0).ask(2.1, due=1.5).ok(2.2)
    story.handled(2.5, due=1.5, occurrence="again").handled(2.6, due=1.5, claimed=1.6)
    assert not story.judge.ghosts


def test_an_occurrence_that_comes_again_is_no_ghost() -> None:
    assert not repeated().handled(4.1, due=4.0).handled(6.0, due=4.0, attempt=2).judge.ghosts


@pytest.mark.parametrize(("safe", "at", "why"), [(4.0, 5.5, "lag"), (4.05, 7.0, "split")])
def test_a_claim_that_a_server_has_lost_gives_another_name(safe: float, at: float, why: str) -> None:
    """Before the timer comes once more; or it comes from a master that has not yet heard that it is none."""
    story = repeated().handled(4.1, due=4.0).handled(6.0, due=4.0, occurrence="another")
    verdict = story.loss(safe, at, why=why).judge.verdict
    assert (verdict.undone, verdict.undone_explained) == (0, 0), "no change was lost"


def test_a_claim_that_was_safe_is_not_lost() -> None:
    """Claims are seen to the moment, and not with the slack that callers' answers have."""
    story = repeated().handled(4.1, due=4.0).handled(6.0, due=4.0, occurrence="ghost")
    assert story.loss(4.5, 5.5).judge.verdict.undone == 1


def test_what_nobody_asked_for_counts_as_undone() -> None:
    judge = Story().scheduled(1.0).handled(5.1).handled(6.0, n=7, id="b").judge
    assert [each.id for each in judge.unasked] == ["b"]
    assert judge.verdict.undone == judge.verdict.broken == 1


# ------------------------------------------------------------------------ again, and how often


def test_an_occurrence_that_is_acknowledged_again_came_twice() -> None:
    story = Story().scheduled(1.0).handled(5.1).handled(7.5, attempt=2)
    assert story.judge.verdict.twice == 1
    assert not story.judge.verdict.broken, "at least once"


def test_a_handler_that_died_is_no_second_time() -> None:
    assert Story().scheduled(1.0).begin(5.1).handled(7.5, attempt=2).judge.verdict.twice == 0


def test_another_occurrence_is_not_the_same_one_twice() -> None:
    story = Story().scheduled(1.0).handled(5.1).scheduled(6.0, 2, due=7.0).handled(7.1, 2, due=7.0)
    assert story.judge.verdict.twice == 0


def test_an_attempt_that_has_the_number_of_the_one_before_was_not_counted() -> None:
    story = Story().scheduled(1.0).handled(5.1, outcome="nack").handled(7.5)
    assert story.judge.verdict.uncounted == 1
    assert story.judge.verdict.overcounted == 0


@pytest.mark.parametrize(("died", "explained"), [(5.0, 0), (5.3, 1), (7.0, 0)])
def test_a_receipt_that_was_lost_with_its_relay_explains_an_attempt(died: float, explained: int) -> None:
    """The handler began at 5.1; a relay that dies long after that has written the receipt down."""
    story = Story().scheduled(1.0).begin(5.1).write("death", died, relay="one").handled(7.5)
    verdict = story.judge.verdict
    assert (verdict.uncounted, verdict.uncounted_explained) == (1 - explained, explained)


def test_a_receipt_that_was_lost_with_a_server_explains_an_attempt() -> None:
    verdict = Story().scheduled(1.0).begin(5.1).loss(5.0, 6.0).handled(7.5).judge.verdict
    assert (verdict.uncounted, verdict.uncounted_explained) == (0, 1)


def test_a_loss_of_long_ago_explains_no_attempt() -> None:
    assert Story().scheduled(1.0).loss(2.0, 3.0).begin(5.1).handled(7.5).judge.verdict.uncounted == 1


@pytest.mark.parametrize(
    ("since", "until", "explained"), [(5.0, 7.0, 1), (2.0, 5.0, 0), (6.3, 7.2, 0), (8.0, 9.0, 0)]
)
def test_a_receipt_that_could_not_be_written_explains_an_attempt(
    since: float, until: float, explained: int
) -> None:
    """The handler began at 5.1. A server that goes a second later has the receipt."""
    verdict = Story().scheduled(1.0).begin(5.1).handled(7.5).away(since, until).judge.verdict
    assert (verdict.uncounted, verdict.uncounted_explained) == (1 - explained, explained)


def test_who_may_wait_for_a_retry() -> None:
    """Those that their handlers gave back, and nobody else: what waits for a first delivery is lost."""
    story = Story().scheduled(1.0).scheduled(1.0, id="b").scheduled(1.0, id="c")
    story = story.handled(5.1, outcome="nack").handled(5.1, id="b")
    assert story.judge.waiting == ["a"]


@pytest.mark.parametrize(
    ("name", "since", "until", "explained"),
    [
        ("connections cut", 5.2, 5.2, 1),
        ("bytes held back", 4.0, 7.0, 1),
        ("bytes held back", 2.0, 5.0, 0),
        ("connections cut", 6.3, 6.3, 0),
        ("application killed", 5.2, 5.2, 0),
    ],
)
def test_a_receipt_on_a_line_that_is_broken_explains_an_attempt(
    name: str, since: float, until: float, explained: int
) -> None:
    """The handler began at 5.1: its receipt is with the relay, and written down, a second later."""
    verdict = Story().scheduled(1.0).begin(5.1).handled(7.5).fault(name, since, until).judge.verdict
    assert (verdict.uncounted, verdict.uncounted_explained) == (1 - explained, explained)


def test_a_full_disk_explains_an_attempt() -> None:
    """Its receipt was refused."""
    story = Story().scheduled(1.0).begin(5.1).handled(7.5).clock(5.6)
    assert story.judge.verdict.uncounted == 1
    story.entries[-1]["full"] = True
    assert story.judge.verdict.uncounted_explained == 1


def test_an_attempt_of_a_lease_that_was_lost_before_is_none() -> None:
    """It began when the next one had been claimed already, and its relay did not know of that."""
    story = Story().scheduled(1.0).begin(8.0, claimed=5.1).handled(8.5, claimed=7.5, by="of-two")
    assert not story.judge.repeated


def test_an_attempt_that_skips_a_number_was_counted_without_a_handler() -> None:
    story = Story().scheduled(1.0).handled(5.1, outcome="nack").handled(7.5, attempt=3)
    assert story.judge.verdict.uncounted == 0
    assert story.judge.verdict.overcounted == 1


def test_attempts_go_on_where_a_server_has_lost_a_rejection() -> None:
    """It was answered, and the replica that took over had the receipt alone."""
    story = Story().scheduled(1.0).handled(5.1, outcome="reject").loss(5.0, 6.0).handled(7.5, attempt=2)
    assert story.judge.verdict.overcounted == 0


def test_attempts_begin_anew_when_a_dead_letter_is_redriven() -> None:
    story = Story().scheduled(1.0).handled(5.1, outcome="reject").handled(7.5)
    assert story.judge.verdict.uncounted == 0


def test_the_longest_stretch_is_between_two_beginnings() -> None:
    story = Story().scheduled(1.0).handled(5.0).handled(6.0, id="b").handled(9.5, id="c").ask(10.0, id="d")
    story.handled(30.0, id="d")  # nobody wanted anything in between
    assert story.judge.verdict.stretch == pytest.approx(3.5)


def test_the_longest_redelivery_is_from_a_relay_s_death() -> None:
    story = Story().begin(5.1).begin(5.2, id="b").write("death", 5.5, relay="one")
    story.handled(8.0, attempt=2, by="of-two").handled(9.0, id="b", attempt=2, by="of-two")
    verdict = story.write("death", 5.7, relay="one").write("death", 12.0, relay="one").judge.verdict
    assert verdict.redelivered == 2, "each by the first death that it met"
    assert verdict.redelivery_first == pytest.approx(2.5)
    assert verdict.redelivery == pytest.approx(3.5)


def test_what_a_relay_takes_after_its_death_is_no_redelivery() -> None:
    story = Story().scheduled(1.0).write("death", 5.0, relay="one").begin(6.0).handled(8.0, attempt=2)
    assert story.judge.verdict.redelivered == 0


@pytest.mark.parametrize("relay", ["two", "one"])
def test_what_another_relay_held_is_no_redelivery(relay: str) -> None:
    story = Story().scheduled(1.0).handled(5.1, outcome="nack" if relay == "one" else "ack")
    verdict = story.write("death", 5.5, relay=relay).handled(8.0, attempt=2, by="of-two").judge.verdict
    assert verdict.redelivered == 0


# ------------------------------------------------------------------------------ recurrences


def recurring(*seconds: int, until: int = 1_012) -> Story:
    """A recurrence from 1,010 on, paused before `until`, by the server's clock; these seconds came."""
    story = Story().ask(9.0, id="r", what="put").ok(9.1, id="r", next=1_010.0)
    for second in seconds:
        name = f"r@1970-01-01T00:{second // 60:02}:{second % 60:02}Z"
        story.handled(second - AHEAD + 0.1, n=0, id=name, due=second - AHEAD)
    return story.ask(50.0, 2, id="r", what="pause").ok(50.1, 2, id="r", next=float(until))


def test_each_instant_comes_once() -> None:
    judge = recurring(1_010, 1_011).judge
    assert judge.is_over
    assert not judge.verdict.broken
    assert judge.verdict.instants == 2


def test_an_instant_that_never_came_is_lost() -> None:
    judge = recurring(1_010, 1_012, until=1_013).judge
    assert judge.verdict.instants_lost == judge.verdict.broken == 1
    assert not judge.is_over


def test_an_instant_that_no_handler_acknowledged_is_lost() -> None:
    story = recurring(1_010)
    story.begin(11.1, n=0, id="r@1970-01-01T00:16:51Z", due=11.0)
    assert story.judge.verdict.instants_lost == 1


def test_the_first_instant_that_was_promised_counts() -> None:
    assert recurring(1_011).judge.verdict.instants_lost == 1


def test_an_instant_of_an_earlier_try_counts() -> None:
    """The first try of the call to keep it has acted; the answer of the second names a later instant."""
    assert recurring(1_008, 1_010, 1_011).judge.verdict.instants_lost == 1


def test_the_last_instant_before_the_pause_counts() -> None:
    assert recurring(1_010, until=1_012).judge.verdict.instants_lost == 1


def test_a_recurrence_that_is_gone_has_lost_its_instants() -> None:
    """Its pause finds none; but for a recurrence whose put a loss explains."""
    story = Story().ask(9.9, id="r", what="put").ok(10.0, id="r", next=1_010.0)
    story.ask(50.0, 2, id="r", what="pause").ok(50.1, 2, id="r", next=None)
    assert story.judge.verdict.instants_lost == 35, "up to five seconds before"
    assert story.loss(12.0, 13.0).judge.verdict.instants_lost == 35
    verdict = story.loss(9.0, 13.0).judge.verdict
    assert (verdict.instants_lost, verdict.lost_explained) == (0, 1)


def test_a_pause_that_was_repeated_may_have_acted_before() -> None:
    """It was asked for at 1,050. What came till shortly before that had to come."""
    story = recurring(*range(1_010, 1_045))
    story.entries[-1] |= {"at": 52.0, "next": 1_052.0}
    assert not story.judge.verdict.instants_lost
    story = recurring(*range(1_010, 1_044))
    story.entries[-1] |= {"at": 52.0, "next": 1_052.0}
    assert story.judge.verdict.instants_lost == 1


def test_an_instant_with_two_occurrences_is_double() -> None:
    story = recurring(1_010, 1_011)
    story.handled(20.0, n=0, id="r@1970-01-01T00:16:50Z", due=10.0, occurrence="another")
    assert story.judge.verdict.instants_double == story.judge.verdict.broken == 1
    assert story.loss(3.0, 4.0).loss(30.0, 31.0).judge.verdict.instants_double == 1
    assert story.loss(9.9, 15.0).judge.verdict.instants_double == 0


def test_an_instant_that_two_masters_had_is_not_double() -> None:
    """Until a master that was replaced knows that, both give out what is due; whichever does so first."""
    story = recurring(1_010, 1_011)
    story.handled(20.0, n=0, id="r@1970-01-01T00:16:50Z", due=10.0, occurrence="another", claimed=19.0)
    assert story.loss(25.0, 30.0, why="split").judge.verdict.instants_double == 1
    story.entries.pop()
    assert story.loss(12.0, 15.0, why="split").judge.verdict.instants_double == 1, "neither was claimed there"
    assert story.loss(18.0, 30.0, why="split").judge.verdict.instants_double == 0


def test_instants_are_told_apart_by_their_claims() -> None:
    """What was claimed first may begin last."""
    story = recurring(1_010, 1_011)
    story.handled(20.0, n=0, id="r@1970-01-01T00:16:50Z", due=10.0, occurrence="another", claimed=10.05)
    assert story.loss(10.0, 10.07).judge.verdict.instants_double == 0


def test_an_instant_that_is_delivered_again_is_not_double() -> None:
    story = recurring(1_010, 1_011)
    story.handled(20.0, n=0, id="r@1970-01-01T00:16:50Z", due=10.0, attempt=2)
    assert not story.judge.verdict.broken


def test_an_instant_is_not_early() -> None:
    story = recurring(1_010, 1_011)
    story.handled(9.5, n=0, id="r@1970-01-01T00:16:50Z", due=10.0)
    assert len(story.judge.early) == 1


def test_the_lease_is_what_claims_are_told_by() -> None:
    """The stories of this file say when a claim was, and the judge finds that by the lease's end."""
    story = Story().scheduled(1.0).begin(5.1, claimed=5.0)
    assert story.entries[-1]["deadline"] / 1e6 == pytest.approx(5.0 + AHEAD + TTL)
