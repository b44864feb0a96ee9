"""What a tick makes of a recurrence: every nominal instant has an occurrence, or is counted under a
reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.core.instants import SECOND, spread_of
from relay.core.partitions import partition_number
from relay.core.recurring import turns
from relay.core.recurring.nominal import Nominal
from relay.core.recurring.recurrence import (
    CatchUp,
    Filling,
    LeftOut,
    Overlap,
    Recurrence,
    Standing,
    StoredRecurrence,
    Turn,
)
from relay.core.recurring.rule import Rule, occurrence_name
from relay.core.recurring.turns import (
    LOOK_AGAIN,
    MOST,
    MOST_BYTES,
    RECENT,
    backfilled,
    look_at,
    triggered,
    turn,
)

START = 1_767_225_600 * SECOND  # 2026-01-01
MINUTE = 60 * SECOND


def kept(
    *, stands: bool = False, following: int | None = START, last: str = "", **wanted: object
) -> StoredRecurrence:
    recurrence = Recurrence("r", Rule(every=MINUTE), b"x", **wanted)  # type: ignore[arg-type]
    return StoredRecurrence(recurrence, Standing(version=1, next=following, last=last), stands, b"")


def minutes(since: int = START, count: int = 10_000) -> list[Nominal]:
    return [Nominal(since + n * MINUTE, 0) for n in range(count)]


def names(made: Turn) -> list[str]:
    return [each.timer_id for each in made.occurrences]


def again(made: Turn, *, stands: bool) -> StoredRecurrence:
    return StoredRecurrence(made.kept.recurrence, made.standing, stands, b"")


def test_an_occurrence() -> None:
    """An ordinary timer, due at its nominal instant, whose headers say what it is."""
    first = turn(kept(headers={"a": "b"}), minutes(), START + 5, "2026a")
    (occurrence,) = first.occurrences
    assert (occurrence.timer_id, occurrence.due) == ("r@2026-01-01T00:00:00Z", START)
    assert occurrence.headers == {
        "a": "b",
        "relay-recurrence": "r",
        "relay-nominal-time": "2026-01-01T00:00:00Z",
        "relay-run": "1",
    }
    standing = first.standing
    assert (standing.next, standing.last, standing.runs) == (START + MINUTE, occurrence.timer_id, 1)
    assert (standing.last_nominal, standing.tzdata) == (START, "2026a")
    assert [(each.timer_id, each.lateness) for each in standing.recent] == [(occurrence.timer_id, 5)]
    second = turn(again(first, stands=False), minutes(START + MINUTE), START + MINUTE, "2026a")
    assert second.occurrences[0].headers["relay-previous"] == occurrence.timer_id
    assert second.occurrences[0].headers["relay-run"] == "2"
    assert partition_number(occurrence.timer_id, 1024) == partition_number("r", 1024)


def test_before_its_time() -> None:
    """A look that comes early makes nothing: an occurrence is never early."""
    made = turn(kept(), minutes(), START - 1, "")
    assert (made.occurrences, made.standing.next, made.standing.left_out) == ([], START, {})


def test_jitter() -> None:
    """By the recurrence's id, always the same, within the window, and never before the instant."""
    made = turn(
        kept(jitter=MINUTE, overlap=Overlap.ALLOW, catch_up=CatchUp.ALL), minutes(), START + MINUTE, ""
    )
    late = {each.due - START - n * MINUTE for n, each in enumerate(made.occurrences)}
    assert late == {spread_of("r", MINUTE)}
    assert 0 < spread_of("r", MINUTE) < MINUTE


@pytest.mark.parametrize(
    ("overlap", "coming", "cancelled", "left", "buffered"),
    [
        (Overlap.SKIP, 0, "", 1, None),
        (Overlap.BUFFER, 0, "", 0, START),
        (Overlap.ALLOW, 1, "", 0, None),
        (Overlap.CANCEL, 1, "r@before", 0, None),
    ],
)
def test_the_one_before_has_not_ended(
    overlap: Overlap, coming: int, cancelled: str, left: int, buffered: int | None
) -> None:
    made = turn(kept(stands=True, last="r@before", overlap=overlap), minutes(), START, "")
    assert (len(made.occurrences), made.cancel) == (coming, cancelled)
    assert made.standing.left_out.get(LeftOut.OVERLAP, 0) == left
    assert made.standing.buffered == buffered


def test_one_is_buffered() -> None:
    """Until the one before has ended; further ones are counted. It is looked at again and again meanwhile."""
    first = turn(kept(stands=True, last="r@before", overlap=Overlap.BUFFER), minutes(), START, "")
    assert look_at(first.standing, START) == START + LOOK_AGAIN
    second = turn(again(first, stands=True), minutes(START + MINUTE), START + MINUTE, "")
    assert (second.standing.buffered, second.standing.left_out) == (START, {LeftOut.OVERLAP: 1})
    third = turn(again(second, stands=False), minutes(START + 2 * MINUTE), START + 61 * SECOND, "")
    assert names(third) == ["r@2026-01-01T00:00:00Z"]
    assert (third.standing.buffered, third.standing.next) == (None, START + 2 * MINUTE)


def test_what_is_buffered_waits_while_it_is_paused() -> None:
    first = turn(kept(stands=True, last="r@before", overlap=Overlap.BUFFER), minutes(), START, "")
    paused = replace(first.standing, paused=START)
    made = turn(
        StoredRecurrence(first.kept.recurrence, paused, False, b""), minutes(START + MINUTE), START + 1, ""
    )
    assert (names(made), made.standing.buffered) == ([], START)


def test_a_pause() -> None:
    """Instants pass and are counted."""
    standing = Standing(version=2, next=START, paused=START - 1)
    made = turn(StoredRecurrence(kept().recurrence, standing, False, b""), minutes(), START + MINUTE, "")
    assert (names(made), made.standing.left_out) == ([], {LeftOut.PAUSED: 2})
    assert made.standing.next == START + 2 * MINUTE


@pytest.mark.parametrize(
    ("catch_up", "window", "came"),
    [
        (CatchUp.LATEST, None, 1),
        (CatchUp.ALL, None, 61),
        (CatchUp.ALL, 10 * MINUTE, 11),
        (CatchUp.NONE, None, 2),
        (CatchUp.NONE, 0, 1),
    ],
)
def test_after_an_outage(catch_up: CatchUp, window: int | None, came: int) -> None:
    """Of 61 minutes, the last of them just now; what is left out is counted."""
    recurrence = kept(overlap=Overlap.ALLOW, catch_up=catch_up, window=window)
    made = turn(recurrence, minutes(), START + 60 * MINUTE, "")
    assert names(made)[-1] == "r@2026-01-01T01:00:00Z"
    assert len(made.occurrences) == came
    assert made.standing.left_out.get(LeftOut.CATCH_UP, 0) == 61 - came


def test_an_outage_that_one_turn_does_not_go_through() -> None:
    """Nothing comes before the latest is known; the next turn goes on."""
    now = START + (MOST + 10) * MINUTE
    first = turn(kept(), minutes(), now, "")
    assert (names(first), first.standing.next) == ([], START + MOST * MINUTE)
    assert first.standing.left_out == {LeftOut.CATCH_UP: MOST - 1}
    assert first.standing.held == START + (MOST - 1) * MINUTE
    assert len(first.standing.recent) == RECENT
    second = turn(again(first, stands=False), minutes(START + MOST * MINUTE), now, "")
    assert len(second.occurrences) == 1
    assert second.standing.left_out == {LeftOut.CATCH_UP: MOST + 10}


def test_a_rule_that_ends() -> None:
    """And one that may run so often."""
    ended = turn(kept(overlap=Overlap.ALLOW, catch_up=CatchUp.ALL), minutes(count=3), START + 9 * MINUTE, "")
    assert (len(ended.occurrences), ended.standing.next) == (3, None)
    assert look_at(ended.standing, START) is None
    limited = turn(
        kept(overlap=Overlap.ALLOW, catch_up=CatchUp.ALL, max_runs=2), minutes(), START + 9 * MINUTE, ""
    )
    assert (len(limited.occurrences), limited.standing.next) == (2, None)


def test_the_rules_own_reasons() -> None:
    """The latest is then the last one that may fire."""
    nominals = [
        Nominal(START, 0),
        Nominal(START + MINUTE, 0, "calendar"),
        Nominal(START + 2 * MINUTE, 0, "gap"),
        Nominal(START + 9 * MINUTE, 0),
    ]
    made = turn(kept(), nominals, START + 5 * MINUTE, "")
    assert names(made) == ["r@2026-01-01T00:00:00Z"]
    assert made.standing.left_out == {LeftOut.CALENDAR: 1, LeftOut.GAP: 1}
    assert made.standing.next == START + 9 * MINUTE


def test_cancelling_within_a_turn() -> None:
    """The one before is cancelled once; of the turn's own only the last one comes."""
    recurrence = kept(stands=True, last="r@before", overlap=Overlap.CANCEL, catch_up=CatchUp.ALL)
    made = turn(recurrence, minutes(count=3), START + 9 * MINUTE, "")
    assert (names(made), made.cancel) == (["r@2026-01-01T00:02:00Z"], "r@before")
    assert made.standing.left_out == {LeftOut.OVERLAP: 2}
    assert made.standing.runs == 1


def test_a_trigger() -> None:
    """Now, beside the rule, whose next instant stays; in the way of what overlaps."""
    made = triggered(kept(following=START + MINUTE), START + 1)
    assert names(made) == ["r@2026-01-01T00:00:00.000001Z~2"]
    assert names(triggered(again(made, stands=False), START + 1)) == ["r@2026-01-01T00:00:00.000001Z~3"]
    assert (made.standing.next, made.standing.runs) == (START + MINUTE, 1)
    in_its_way = triggered(kept(stands=True, last="r@before", overlap=Overlap.BUFFER), START)
    assert (names(in_its_way), in_its_way.standing) == ([], in_its_way.kept.standing)


def test_a_backfill() -> None:
    """Further runs of instants, one after the other, each time under other names."""
    instants = [START, START + MINUTE]
    before = kept(following=START + 9 * MINUTE, stands=True, last="r@before")
    made = backfilled(before, instants, START + 5 * MINUTE, SECOND, Overlap.ALLOW)
    assert names(made) == ["r@2026-01-01T00:00:00Z~2", "r@2026-01-01T00:01:00Z~2"]
    assert [each.due for each in made.occurrences] == [START + 5 * MINUTE, START + 5 * MINUTE + SECOND]
    more = backfilled(again(made, stands=True), instants, START + 6 * MINUTE, 0, Overlap.ALLOW)
    assert names(more) == ["r@2026-01-01T00:00:00Z~3", "r@2026-01-01T00:01:00Z~3"]
    assert more.standing.next == START + 9 * MINUTE
    assert not backfilled(again(made, stands=False), [], START, 0, Overlap.BUFFER).standing.filling


def test_a_backfill_one_after_another() -> None:
    """The next one comes when the last one has ended and `interval` has passed; a pause holds it; the rule's
    own instants come first, and the instants of another backfill last."""
    now, instants = START + 5 * MINUTE, [START, START + MINUTE]
    before = kept(following=START + 9 * MINUTE, stands=True, last="r@before")
    made = backfilled(before, instants, now, 30 * SECOND, Overlap.SKIP)
    assert (names(made), made.standing.to_fill, look_at(made.standing, now)) == ([], 2, now + LOOK_AGAIN)
    assert names(turn(again(made, stands=True), (), now + SECOND, "")) == []
    paused = replace(made.standing, paused=now)
    assert look_at(paused, now) == START + 9 * MINUTE
    assert names(turn(replace(again(made, stands=False), standing=paused), (), now, "")) == []
    first = turn(again(made, stands=False), minutes(START + 9 * MINUTE), now, "")
    assert names(first) == ["r@2026-01-01T00:00:00Z~2"]
    assert [each.due for each in first.occurrences] == [now]
    assert look_at(first.standing, now) == now + 30 * SECOND
    assert names(turn(again(first, stands=False), (), now + 29 * SECOND, "")) == []
    more = backfilled(again(first, stands=True), [START + 2 * MINUTE], now, 0, Overlap.CANCEL)
    late = START + 9 * MINUTE
    own = turn(again(more, stands=False), minutes(late), late, "")
    assert (names(own), own.standing.to_fill) == (["r@2026-01-01T00:09:00Z"], 2)
    second = turn(again(own, stands=False), (), late, "")
    third = turn(again(second, stands=False), (), late, "")
    assert names(second) + names(third) == ["r@2026-01-01T00:01:00Z~2", "r@2026-01-01T00:02:00Z~3"]
    behind = backfilled(again(more, stands=False), [START], late, 0, Overlap.SKIP)
    assert (names(behind), behind.standing.to_fill) == ([], 3), "a call says how many of its own wait"
    assert (third.standing.filling, third.standing.left_out, third.standing.runs) == ((), {}, 4)


def test_a_backfill_comes_between_instants_that_are_close() -> None:
    """Of a rule that fires every second, whose occurrences end within a tenth of that."""
    seconds = [Nominal(START + n * SECOND, 0) for n in range(20)]
    made = turn(kept(), seconds, START, "")
    made = backfilled(again(made, stands=False), [START - 2, START - 1], START, 0, Overlap.SKIP)
    now, ended, came = START, START + SECOND // 10, list[str]()
    while made.standing.next != seconds[-1].instant:
        look = look_at(made.standing, now)
        assert look is not None
        now = max(look, now)
        ahead = [each for each in seconds if each.instant >= (made.standing.next or 0)]
        made = turn(again(made, stands=now < ended), ahead, now, "")
        if made.occurrences:
            ended = now + SECOND // 10
        came += names(made)
    assert made.standing.to_fill == 0
    assert made.standing.left_out == {}
    assert sum(name.endswith("~2") for name in came) == 1


def test_a_backfill_goes_on_where_the_rule_has_ended() -> None:
    made = backfilled(kept(following=None), [START, START + MINUTE], START + MINUTE, 0, Overlap.BUFFER)
    assert names(made) == ["r@2026-01-01T00:00:00Z~2"]
    assert look_at(made.standing, START + MINUTE) == START + MINUTE + LOOK_AGAIN
    last = turn(again(made, stands=False), (), START + 2 * MINUTE, "")
    assert (names(last), look_at(last.standing, START)) == (["r@2026-01-01T00:01:00Z~2"], None)


looks = st.lists(
    st.tuples(st.integers(0, 30 * 60), st.booleans(), st.sampled_from(["", "", "", "pause", "resume"])),
    min_size=1,
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(
    overlap=st.sampled_from(Overlap),
    catch_up=st.sampled_from(CatchUp),
    window=st.one_of(st.none(), st.integers(0, 3600).map(lambda s: s * SECOND)),
    reasons=st.lists(st.sampled_from(["", "", "", "gap", "calendar"]), min_size=40, max_size=40),
    looks=looks,
)
def test_no_instant_is_lost_or_doubled(
    overlap: Overlap,
    catch_up: CatchUp,
    window: int | None,
    reasons: list[str],
    looks: list[tuple[int, bool, str]],
) -> None:
    """Whenever it is looked at, and whatever has become of the last occurrence: each instant that has passed
    has one occurrence, or one reason, or is the one that is buffered."""
    nominals = [Nominal(START + n * MINUTE, 0, reason) for n, reason in enumerate(reasons)]
    now, stands = START, False
    current = kept(overlap=overlap, catch_up=catch_up, window=window)
    came: Counter[str] = Counter()
    for seconds, has_ended, what in looks:
        now += seconds * SECOND
        if what:
            paused = now if what == "pause" else None
            current = replace(current, standing=replace(current.standing, paused=paused))
        current = replace(current, stands=stands and not has_ended)
        since = current.standing.next
        ahead = [] if since is None else [each for each in nominals if each.instant >= since]
        made = turn(current, ahead, now, "")
        came.update(names(made))
        assert all(each.due <= now for each in made.occurrences)
        stands = (made.kept.stands and not made.cancel) or bool(made.occurrences)
        current = again(made, stands=stands)
        standing = current.standing
        passed = [each for each in nominals if each.instant <= now]
        left = sum(standing.left_out.values())
        assert len(came) + left + (standing.buffered is not None) == len(passed)
        assert set(came.values()) <= {1}
        assert standing.left_out.get(LeftOut.GAP, 0) == sum(each.left_out == "gap" for each in passed)
        assert standing.runs == len(came)


@settings(max_examples=300)
@given(
    most=st.integers(1, 7),
    overlap=st.sampled_from(Overlap),
    reasons=st.lists(st.sampled_from(["", "", "gap", "calendar"]), max_size=20),
    max_runs=st.integers(0, 1),
)
def test_a_catch_up_in_several_turns(most: int, overlap: Overlap, reasons: list[str], max_runs: int) -> None:
    """With the policy that the latest instant comes, it makes what one turn would: the latest one that is not
    left out, wherever a turn ends."""
    nominals = [Nominal(START + n * MINUTE, 0, reason) for n, reason in enumerate(reasons)]
    now = START + 20 * MINUTE
    nominals.append(Nominal(now + 1, 0))
    before = kept(overlap=overlap, max_runs=max_runs)
    whole = turn(before, nominals, now, "")
    came: list[str] = []
    current = before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "MOST", most)
        while current.standing.next is not None and current.standing.next <= now:
            ahead = [each for each in nominals if each.instant >= current.standing.next]
            made = turn(current, ahead, now, "")
            came += names(made)
            current = again(made, stands=bool(came))
    assert came == names(whole)
    if not max_runs:  # what follows the last run is not counted, and one turn knows that earlier
        assert replace(current.standing, recent=()) == replace(whole.standing, recent=())


def test_the_latest_one_that_a_calendar_leaves() -> None:
    """It is found, although no turn sees it and the end of the outage."""
    held = MOST + 100
    nominals = minutes(count=held)
    closed = [each._replace(left_out="calendar") for each in minutes(START + held * MINUTE, 2 * MOST)]
    now = START + (held + 2 * MOST) * MINUTE
    current, came = kept(), list[str]()
    while current.standing.next is not None and current.standing.next <= now:
        since = current.standing.next
        ahead = [each for each in [*nominals, *closed, Nominal(now + 1, 0)] if each.instant >= since]
        made = turn(current, ahead, now, "")
        came += names(made)
        current = again(made, stands=bool(came))
    assert came == [occurrence_name("r", nominals[-1].instant)]
    assert current.standing.left_out == {LeftOut.CATCH_UP: held - 1, LeftOut.CALENDAR: 2 * MOST}
    assert current.standing.held is None


def test_the_last_run_is_one_that_somebody_asked_for() -> None:
    """Then it has ended as well, and its next instant has none."""
    before = kept(max_runs=1)
    made = triggered(before, START - 1)
    assert (made.standing.runs, made.standing.next) == (1, None)
    made = backfilled(before, [START - 2, START - 1], START - 1, 0, Overlap.ALLOW)
    assert (made.standing.runs, made.standing.next) == (2, None)


@pytest.mark.parametrize("who", ["trigger", "backfill", "turn"])
def test_the_last_run_comes_while_one_is_held(who: str) -> None:
    """What is held has a reason, although the rule has no further instant to look at."""
    late = START + 2 * MOST * MINUTE
    before = kept(max_runs=1)
    if who == "turn":
        filling = (Filling((START - MINUTE,), 2, START),)
        before = replace(before, standing=replace(before.standing, filling=filling))
    made = turn(before, minutes(), late, "")
    if who == "trigger":
        made = triggered(again(made, stands=False), late)
    elif who == "backfill":
        made = backfilled(again(made, stands=False), [START - MINUTE], late, 0, Overlap.BUFFER)
    assert look_at(made.standing, late) is not None
    standing = turn(again(made, stands=True), (), late + LOOK_AGAIN, "").standing
    assert (standing.runs, standing.next, standing.held) == (1, None, None)
    assert standing.left_out == {LeftOut.CATCH_UP: MOST}
    assert look_at(standing, late + LOOK_AGAIN) is None


def test_fewer_runs_are_wanted_than_there_were() -> None:
    before = kept(max_runs=2)
    before = replace(before, standing=replace(before.standing, runs=2))
    made = turn(before, minutes(), START, "")
    assert (names(made), made.standing.runs, made.standing.next) == ([], 2, None)


def test_the_last_run_was_buffered() -> None:
    first = turn(kept(stands=True, last="r@before", overlap=Overlap.BUFFER, max_runs=1), minutes(), START, "")
    second = turn(again(first, stands=False), minutes(START + MINUTE), START + 1, "")
    assert (names(second), second.standing.next) == (["r@2026-01-01T00:00:00Z"], None)


@pytest.mark.parametrize("stands", [False, True])
def test_what_is_buffered_as_the_last_run_comes(stands: bool) -> None:
    """It has a reason."""
    first = turn(kept(stands=True, last="r@before", overlap=Overlap.BUFFER, max_runs=1), minutes(), START, "")
    further = triggered(again(first, stands=False), START + 1)
    assert (further.standing.runs, further.standing.next) == (1, None)
    made = turn(again(further, stands=stands), (), START + 2, "")
    assert (names(made), made.standing.buffered) == ([], None)
    assert made.standing.left_out == {LeftOut.OVERLAP: 1}
    assert look_at(made.standing, START + 2) is None


def test_one_is_cancelled_that_the_same_turn_has_made() -> None:
    """The history tells of each instant what came of it, and the header names a run that was there."""
    instants = [Nominal(START, 0), Nominal(START + 1, 0, "calendar"), Nominal(START + 2, 0)]
    before = kept(stands=True, last="r@before", overlap=Overlap.CANCEL, catch_up=CatchUp.ALL)
    made = turn(before, instants, START + 2, "")
    assert [(each.nominal - START, each.timer_id != "", each.left_out) for each in made.standing.recent] == [
        (0, False, LeftOut.OVERLAP),
        (1, False, LeftOut.CALENDAR),
        (2, True, None),
    ]
    (occurrence,) = made.occurrences
    assert (occurrence.headers["relay-previous"], made.cancel) == ("r@before", "r@before")


def test_large_payloads_come_by_few() -> None:
    """A call has all occurrences of a turn, each with its payload."""
    before = kept(overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    for size, most in ((1, MOST), (1 << 20, MOST_BYTES >> 20), (9 << 20, 1)):
        before = replace(before, recurrence=replace(before.recurrence, payload=b"x" * size))
        made = turn(before, minutes(), START + 999 * MINUTE, "")
        assert (len(made.occurrences), made.standing.next) == (most, START + most * MINUTE)
    latest = replace(before, recurrence=replace(before.recurrence, catch_up=CatchUp.LATEST))
    assert turn(latest, minutes(), START + 400 * MINUTE, "").standing.next == START + 401 * MINUTE


def test_one_by_one() -> None:
    """For a topic that has no room for all at once."""
    before = kept(overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    made = turn(before, minutes(), START + 9 * MINUTE, "", one_by_one=True)
    assert (len(made.occurrences), made.standing.next) == (1, START + MINUTE)


@pytest.mark.parametrize("paused", [None, START])
def test_a_recurrence_whose_subject_was_forgotten_ends(paused: int | None) -> None:
    """Nothing comes any more. What has passed is counted, also what was kept back or waited to be filled in,
    in as many turns as it takes; behind them no look follows."""
    filling = (Filling((1, 2, 3), 2, START), Filling((4,), 3, START))
    standing = Standing(
        1, START, last="r@before", buffered=START - 2, held=START - 1, filling=filling, paused=paused
    )
    current = StoredRecurrence(
        Recurrence("r", Rule(every=MINUTE), catch_up=CatchUp.ALL), standing, True, b"", forgotten=True
    )
    now = START + (MOST + 9) * MINUTE
    first = turn(current, minutes(), now, "")
    assert (names(first), first.cancel) == ([], "")
    assert first.standing.left_out == {LeftOut.FORGOTTEN: 2 + 4 + MOST}
    assert first.standing.next == look_at(first.standing, now) == START + MOST * MINUTE
    rest = [Nominal(START + MOST * MINUTE, 0, left_out="gap"), *minutes(START + (MOST + 1) * MINUTE)]
    second = turn(replace(current, standing=first.standing), rest, now, "")
    assert second.standing.left_out == {LeftOut.FORGOTTEN: 2 + 4 + MOST + 9, LeftOut.GAP: 1}
    assert (names(second), second.standing.next, look_at(second.standing, now)) == ([], None, None)
    assert second.standing.settled == now
