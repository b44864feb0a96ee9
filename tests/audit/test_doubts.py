"""What a journal can't tell is said so, and never called proved."""

from __future__ import annotations

from relay.core.audit import Audit, Promise, PromiseVerdict
from relay.core.instants import SECOND
from relay.core.journal import JournalRecord, RecordKind
from tests.audit.forge import Forge, audited, nonce, refuted, renumbered, unsaid

ALL = set(Promise)
ONCE = Promise.AT_LEAST_ONCE


def whole(count: int = 3) -> Forge:
    forge = Forge()
    for n in range(1, count + 1):
        forge.scheduled(f"t{n}").claimed(f"t{n}", n).acked(f"t{n}", n)
    return forge


def test_a_whole_journal_is_proved() -> None:
    """Every promise, and the counts tell of how much."""
    report = audited(whole().batches)
    assert report.verdict is PromiseVerdict.PROVED
    assert (report.batches, report.records, report.missing) == (9, 9, 0)
    assert report.kinds == {"SCHEDULED": 3, "CLAIMED": 3, "ACKED": 3}
    checked = {each.promise: each.checked for each in report.judgements}
    assert checked == {promise: 0 if promise is Promise.EVERY_INSTANT else 3 for promise in Promise}
    assert report.counts["committed"] == 3


def test_an_empty_journal_proves_nothing() -> None:
    """There is no promise that it could be said of."""
    assert unsaid(audited([])) == ALL


def test_a_trimmed_beginning() -> None:
    """What was before can't be said, and what is left of it is not held against Relay."""
    report = audited(whole().batches[1:])
    assert unsaid(report) == ALL
    assert (report.missing, report.gap_count) == (1, 1)
    assert report.gaps[0].why == "trimmed"


def test_records_missing_in_the_middle() -> None:
    """Wherever they are missing, nothing is proved, and what may have happened there refutes nothing."""
    batches = whole().batches
    for lost in range(len(batches)):
        left = batches[:lost] + batches[lost + 1 :]
        report = audited(left, at_rest=False)
        assert not refuted(report), lost
        if lost < len(batches) - 1:
            assert unsaid(report) == ALL, lost
        else:  # the last one has no number behind it: the timer lives, as far as the journal knows
            assert unsaid(report) == {ONCE}


def test_records_missing_within_a_batch() -> None:
    """Its numbers tell of more than it holds."""
    batches = whole().batches
    damaged = batches[4]
    batches[4] = type(damaged)(damaged.entry, damaged.time, damaged.first, damaged.last, ())
    assert unsaid(audited(batches, at_rest=False)) == ALL


def test_a_journal_that_went_back() -> None:
    """A failover or a restore: the same numbers come again."""
    batches = whole().batches
    report = audited([*batches[:5], *batches[3:]], at_rest=False)
    assert unsaid(report) == ALL
    assert "went back" in report.gaps[0].why


def test_a_break_stands_in_spite_of_gaps() -> None:
    """What is seen to be broken is broken, whatever is missing elsewhere."""
    forge = whole().scheduled("t", 5.0).claimed("t", 9, 5.0).acked("t", 9)
    report = audited(forge.batches[1:])
    assert refuted(report) == {Promise.NEVER_EARLY}
    assert unsaid(report) == ALL - {Promise.NEVER_EARLY}


def test_leases_from_before_the_journal() -> None:
    """The journal was turned on while the topic was in use: their ends can't be judged, what follows can."""
    forge = Forge().acked("old", 7).nacked("again", 8, 3, 4).claimed("again", 9, 0.0, 3, 5, first=2)
    forge.acked("again", 9)
    report = audited(forge.batches, exclusive=False)
    assert not refuted(report)
    assert unsaid(report) == {Promise.ONE_LEASE}
    forge = Forge().nacked("again", 8, 3, 4).claimed("again", 9, 0.0, 4, 5, first=2).acked("again", 9)
    assert refuted(audited(forge.batches, exclusive=False)) == {Promise.HONEST_ATTEMPTS}


def test_timers_from_before_the_journal() -> None:
    """They are found when they are claimed, and judged from there on."""
    forge = Forge().claimed("old", 1, -5.0, 2, 3, first=7).nacked("old", 1, 3, 3, due=-5.0)
    forge.claimed("old", 2, -5.0, 3, 4, first=7).acked("old", 2)
    report = audited(forge.batches, exclusive=False)
    assert report.verdict is PromiseVerdict.PROVED
    assert report.counts["found"] == 1
    assert Promise.NEWEST_INTENT in refuted(audited(forge.batches))


# ----------------------------------------------------------------------------- what still lives


def test_living_timers_need_redis() -> None:
    """Of the journal alone it can't be said whether they are there."""
    report = audited(whole().scheduled("open", 60.0).batches, at_rest=False)
    assert unsaid(report) == {ONCE}
    assert [each.timer_id for each in report.open] == ["open"]


def test_living_timers_that_are_there() -> None:
    """Nothing is wrong with a timer that waits; at rest there must be none."""
    batches = whole().scheduled("open", 60.0).wait(5).scheduled("later", 60.0).batches
    there = {"open": (True, False), "later": (True, False)}
    report = audited(batches, at_rest=False, there=there)
    assert report.verdict is PromiseVerdict.PROVED
    assert report.open_count == 2
    assert (report.open[0].timer_id, report.open[0].age) == ("open", 5 * SECOND)
    assert refuted(audited(batches, there=there)) == {ONCE}


def test_at_rest_nothing_lives() -> None:
    """Without Redis, too: one that was never claimed a foreign worker may have taken, as far as is known."""
    waiting = whole().scheduled("open").batches
    assert refuted(audited(waiting)) == {ONCE}
    assert unsaid(audited(waiting, exclusive=False)) == {ONCE}
    claimed = whole().scheduled("open").claimed("open", 9).batches
    assert refuted(audited(claimed, exclusive=False)) == {ONCE}


def test_a_lost_timer() -> None:
    """Redis has it no more, and nothing tells of its end."""
    waiting = whole().scheduled("lost", 60.0).batches
    assert refuted(audited(waiting, at_rest=False, there={})) == {ONCE}
    shared = audited(waiting, exclusive=False, at_rest=False, there={})
    assert unsaid(shared) == {ONCE}, "a foreign worker may have done it"
    assert shared.of(ONCE).examples[0].timer_id == "lost"


def test_a_lost_timer_that_was_claimed() -> None:
    """No foreign writer knows our records: if that is gone too, it was none of them."""
    batches = whole().scheduled("lost").claimed("lost", 9).batches
    gone = {"lost": (False, False)}
    assert refuted(audited(batches, exclusive=False, at_rest=False, there=gone)) == {ONCE}
    record_left = {"lost": (False, True)}
    assert unsaid(audited(batches, exclusive=False, at_rest=False, there=record_left)) == {ONCE}
    assert refuted(audited(batches, at_rest=False, there=record_left)) == {ONCE}


def test_what_ends_while_redis_is_asked() -> None:
    """The journal is read to its end after Redis was asked: what ended meanwhile is told there."""
    forge = whole().scheduled("a").claimed("a", 8).scheduled("b").claimed("b", 9)
    audit = Audit(exclusive=True)
    for batch in forge.batches:
        audit.add(batch)
    assert sorted(audit.unreconciled()) == ["a", "b"]
    audit.reconcile(["a", "b"], [(False, False), (False, False)])
    done = len(forge.batches)
    for batch in forge.acked("a", 8).extended("b", 9).batches[done:]:
        audit.add(batch)
    assert list(audit.unreconciled()) == ["b"], "its record is newer than the answer"
    audit.reconcile(["b"], [(True, True)])
    assert audit.report().verdict is PromiseVerdict.PROVED


def test_living_in_spite_of_a_gap() -> None:
    """It may have ended among what is missing: only Redis' yes says otherwise, and nothing refutes."""
    batches = whole().scheduled("open").claimed("open", 9).batches
    batches += [type(batches[0])("9-0", batches[-1].time, 99, 99, (JournalRecord(RecordKind.RESUMED),))]
    assert not refuted(audited(batches, exclusive=False, at_rest=False, there={}))


# ----------------------------------------------------------------------------- numbers


def test_duplicates_and_retries_are_counted() -> None:
    """At least once: a second delivery of one occurrence breaks nothing."""
    forge = Forge().scheduled("t").claimed("t", 1).received("t", 1).wait(31)
    forge.claimed("t", 2, 0.0, 1, 2, first=1).nacked("t", 2, 2, 2).claimed("t", 3, 0.0, 2, 3, first=1)
    forge.wait(31).claimed("t", 4, 0.0, 2, 4, first=1).acked("t", 4)
    report = audited(forge.batches)
    assert report.verdict is PromiseVerdict.PROVED
    wanted = {"deliveries": 3, "duplicates": 1, "retries": 1, "lapsed": 2, "committed": 1, "intents": 1}
    assert report.counts == wanted


def test_lateness_is_of_first_deliveries() -> None:
    """From the due time to the claim of the first delivery that came; retries have none."""
    forge = Forge()
    for n in range(1, 101):
        forge.at = n / 1000
        forge.scheduled(f"t{n}").claimed(f"t{n}", n).nacked(f"t{n}", n, 1, 1)
        forge.claimed(f"t{n}", 1000 + n, 0.0, 1, 2, first=n).acked(f"t{n}", 1000 + n)
    report = audited(forge.batches)
    assert report.lateness_count == 100
    assert report.lateness == {"p50": 50_000, "p99": 99_000, "p99.9": 100_000, "max": 100_000}


def test_examples_are_few_and_all_are_counted() -> None:
    """The first ones stand for the rest."""
    forge = Forge()
    for n in range(1, 21):
        forge.scheduled(f"t{n}", 5.0).claimed(f"t{n}", n, 5.0).acked(f"t{n}", n)
    early = audited(forge.batches).of(Promise.NEVER_EARLY)
    assert (early.refuted, len(early.examples)) == (20, 5)
    assert early.examples[0].occurrence == nonce(1)
    assert early.examples[0].what == "was delivered 5000000 µs early"


def test_renumbered_gaps_can_not_hide_a_commit() -> None:
    """A lost ACK whose number was given away again is a timer that never ended."""
    batches = whole().batches
    assert refuted(audited(renumbered(batches[:-1]))) == {ONCE}


def test_an_occurrence_that_its_caller_named() -> None:
    """It is known before it is claimed, and delivered as no other; once more after its end is legal."""
    name = b"named by a calle"
    forge = Forge().scheduled("t", occurrence=name).claimed("t", 1, occurrence=name).acked("t", 1)
    forge.scheduled("t", occurrence=name).replaced("t", 0.0, 0.0, occurrence=name)
    forge.claimed("t", 2, occurrence=name).acked("t", 2)
    assert audited(forge.batches).verdict is PromiseVerdict.PROVED
    other = Forge().scheduled("t", occurrence=name).claimed("t", 1).acked("t", 1)
    assert refuted(audited(other.batches)) == {Promise.NEWEST_INTENT}
