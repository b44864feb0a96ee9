"""What a tick, or a person, makes of a recurrence. It decides and touches nothing: `Turn` says what is to be
written, if all is still as it was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, takewhile

from relay.core.instants import SECOND, spread_of
from relay.core.recurring.nominal import Nominal, write_instant
from relay.core.recurring.recurrence import (
    WINDOWS,
    CatchUp,
    Filling,
    LeftOut,
    Occurrence,
    Overlap,
    Past,
    Recurrence,
    Standing,
    StoredRecurrence,
    Turn,
)
from relay.core.recurring.rule import occurrence_name

MOST = 500
"""Nominal instants that one turn goes through; further ones are those of the next."""

MOST_BYTES = 4 << 20
"""Bytes of payload after which a turn makes no further occurrence: each has its own."""

RECENT = 16
"""Nominal instants that are remembered one by one."""

LOOK_AGAIN = SECOND
"""How long a recurrence waits at most that keeps an occurrence back, or is being filled in, until it is
looked at whether the last one has ended."""

RECURRENCE, NOMINAL, RUN, PREVIOUS = (
    "relay-recurrence",
    "relay-nominal-time",
    "relay-run",
    "relay-previous",
)
"""Headers of occurrences: the recurrence, the nominal instant, the number of the run, and the timer_id of the
run before it."""


def turn(
    kept: StoredRecurrence, nominals: Iterable[Nominal], now: int, tzdata: str, *, one_by_one: bool = False
) -> Turn:
    """What is to become of a recurrence at `now`. `nominals` are the instants of its rule that are not
    settled; they are read as far as needed. `one_by_one`: there is no room for several occurrences."""
    if kept.forgotten:
        return _ended(kept, nominals, now, tzdata)
    most = _most(kept.recurrence, one_by_one=one_by_one)
    making = _Making(kept, now)
    making.take_buffered()
    ahead = iter(nominals)
    passed: list[Nominal] = []
    following: Nominal | None = None
    for nominal in islice(ahead, most + 1):
        if nominal.instant > now or len(passed) == most:
            following = nominal
            break
        passed.append(nominal)
    is_last = following is None or following.instant > now
    latest = next((each for each in reversed(passed) if not each.left_out), None)
    making.take_held(later=latest is not None, is_last=is_last)
    for nominal in passed:
        if making.has_ended:
            break
        if nominal is latest and not is_last:
            making.hold(nominal)
        else:
            making.take(nominal, is_latest=nominal is latest)
    making.fill_in()
    settled = now if is_last else passed[-1].instant
    made = making.turn(None if following is None else following.instant, tzdata)
    return replace(made, standing=replace(made.standing, settled=max(settled, kept.standing.settled)))


def _ended(kept: StoredRecurrence, nominals: Iterable[Nominal], now: int, tzdata: str) -> Turn:  # see 0114
    """The end of a recurrence whose subject was forgotten: nothing comes any more, and each instant that has
    passed, or was kept back, is counted."""
    making = _Making(kept, now)
    making.give_up()
    passed = list(islice(takewhile(lambda each: each.instant <= now, nominals), MOST + 1))
    for nominal in passed[:MOST]:
        making.leave_out(
            nominal.instant, LeftOut(nominal.left_out) if nominal.left_out else LeftOut.FORGOTTEN
        )
    following = passed[MOST].instant if len(passed) > MOST else None
    settled = now if following is None else passed[MOST - 1].instant
    made = making.turn(following, tzdata)
    return replace(made, standing=replace(made.standing, settled=max(settled, kept.standing.settled)))


def _most(wanted: Recurrence, *, one_by_one: bool) -> int:
    """How many instants a turn goes through. Where each may have an occurrence, they are no more than fit
    into a call."""
    if wanted.overlap is not Overlap.ALLOW or wanted.catch_up is CatchUp.LATEST:
        return MOST
    return 1 if one_by_one else min(MOST, max(MOST_BYTES // max(len(wanted.payload), 1), 1))


def triggered(kept: StoredRecurrence, now: int) -> Turn:
    """Make an occurrence for `now`, beside the rule; none where the last one has not ended, unless it is
    cancelled then or nobody minds."""
    making = _Making(kept, now)
    if not kept.stands or kept.recurrence.overlap in (Overlap.ALLOW, Overlap.CANCEL):
        making.come(now, run=making.further())
    return making.turn(kept.standing.next, kept.standing.tzdata)


def backfilled(
    kept: StoredRecurrence, nominals: Sequence[int], now: int, apart: int, overlap: Overlap
) -> Turn:
    """Make occurrences for nominal instants that have passed, whatever has come of these before. With ALLOW
    all are made at once, due one `apart` after the other from `now` on. Otherwise they come one after
    another: the first one unless another occurrence has not ended, or another backfill has not, the others by
    `turn`."""
    making = _Making(kept, now)
    run = making.further()
    if overlap is not Overlap.ALLOW:
        is_first = not making.filling
        if nominals:
            making.filling.append(Filling(nominals, run, now, apart))
        if is_first:
            making.fill_in()
    else:
        for number, nominal in enumerate(nominals):
            making.fire(nominal, run=run, due=now + number * apart)
    return making.turn(kept.standing.next, kept.standing.tzdata)


def look_at(standing: Standing, now: int) -> int | None:
    """When a recurrence is to be looked at; None if never again."""
    looks = [] if standing.next is None else [standing.next]
    if standing.buffered is not None or standing.held is not None:
        looks.append(now + LOOK_AGAIN)
    if standing.filling and standing.paused is None:
        looks.append(max(_between(standing, now), standing.filling[0].due))
    return min(looks, default=None)


def _between(standing: Standing, now: int) -> int:
    """When to look whether a backfill goes on: before the next nominal instant, which would come first."""
    if standing.next is None:
        return now + LOOK_AGAIN
    return now + min(LOOK_AGAIN, max(standing.next - now, 0) // 2)


class _Making:  # see 0093
    """A turn in the making."""

    def __init__(self, kept: StoredRecurrence, now: int) -> None:
        self._kept = kept
        self._wanted: Recurrence = kept.recurrence
        self._now = now
        standing = kept.standing
        self.stands = kept.stands
        self.buffered = standing.buffered
        self.held = standing.held
        self.filling = list(standing.filling)
        self._further = standing.further
        self._last, self._last_nominal, self._runs = standing.last, standing.last_nominal, standing.runs
        self._before = self._last
        self._left_out = dict(standing.left_out)
        self._recent = list(standing.recent)
        self._occurrences: list[Occurrence] = []
        self._cancel = ""

    @property
    def has_ended(self) -> bool:
        """Whether no further occurrence is to come."""
        return 0 < self._wanted.max_runs <= self._runs

    def take_buffered(self) -> None:
        """Let what is kept back come if the last one has ended; after the last run it never will."""
        instant = self.buffered
        if instant is None:
            return
        if self.has_ended:
            self.leave_out(instant, LeftOut.OVERLAP)
        elif self._kept.standing.paused is not None or self.stands:
            return
        else:
            self.fire(instant)
        self.buffered = None

    def give_up(self) -> None:
        """Leave out all that was kept back."""
        kept_back = [each for each in (self.buffered, self.held) if each is not None]
        for instant in (*kept_back, *(each for filling in self.filling for each in filling.nominals)):
            self.leave_out(instant, LeftOut.FORGOTTEN)
        self.buffered, self.held, self.filling = None, None, []

    def hold(self, nominal: Nominal) -> None:
        """Keep an instant that is the latest so far until it is known whether a later one has passed, behind
        those that this turn goes through; unless that does not matter."""
        if self._wanted.catch_up is CatchUp.LATEST and self._kept.standing.paused is None:
            self.held = nominal.instant
        else:
            self.take(nominal, is_latest=False)

    def take_held(self, *, later: bool, is_last: bool) -> None:
        """Decide about the instant that was held; `later` says that a later one is found, `is_last` that no
        further ones have passed."""
        if self.held is None or not (later or is_last):
            return
        held, self.held = self.held, None
        if later or self.has_ended:
            self.leave_out(held, LeftOut.CATCH_UP)
        else:
            self.take(Nominal(held, 0), is_latest=True)

    def fill_in(self) -> None:
        """Let the next occurrence of a backfill come if its time has come and nothing is in its way. It was
        asked for, so it is never left out."""
        if not self.filling or self._kept.standing.paused is not None or self.stands:
            return
        first = self.filling[0]
        if first.due <= self._now:
            self.fire(first.nominals[0], run=first.run, due=self._now)
            rest = replace(first, nominals=first.nominals[1:], due=self._now + first.apart)
            self.filling[:1] = [rest] if rest.nominals else []

    def take(self, nominal: Nominal, *, is_latest: bool) -> None:
        """Decide about a nominal instant that has passed."""
        instant = nominal.instant
        if nominal.left_out:
            self.leave_out(instant, LeftOut(nominal.left_out))
        elif self._kept.standing.paused is not None:
            self.leave_out(instant, LeftOut.PAUSED)
        elif not self._still_comes(instant, is_latest=is_latest):
            self.leave_out(instant, LeftOut.CATCH_UP)
        else:
            self.come(instant)

    def _still_comes(self, instant: int, *, is_latest: bool) -> bool:
        if self._wanted.catch_up is CatchUp.LATEST:
            return is_latest
        window = self._wanted.window
        return self._now - instant <= (WINDOWS[self._wanted.catch_up] if window is None else window)

    def further(self) -> int:
        """The number of the run that somebody asks for, which no other run has: instants may be those of the
        rule, and the clock may step back."""
        self._further += 1
        return self._further + 1

    def come(self, instant: int, *, run: int = 1) -> None:
        """Let an instant have its occurrence, unless the one before it has not ended and is in its way."""
        overlap = self._wanted.overlap
        if not self.stands or overlap is Overlap.ALLOW:
            self.fire(instant, run=run)
        elif overlap is Overlap.CANCEL:
            if self._occurrences:
                self._replace_last()
            else:
                self._cancel = self._last
            self.fire(instant, run=run)
        elif overlap is Overlap.BUFFER and self.buffered is None:
            self.buffered = instant
        else:
            self.leave_out(instant, LeftOut.OVERLAP)

    def _replace_last(self) -> None:
        """Leave out the occurrence that this turn has made last: another one comes in its place."""
        name = self._occurrences.pop().timer_id
        self._runs -= 1
        self._last = self._before
        self._count(LeftOut.OVERLAP)
        self._recent = [
            Past(each.nominal, left_out=LeftOut.OVERLAP, lateness=each.lateness)
            if each.timer_id == name
            else each
            for each in self._recent
        ]

    def leave_out(self, instant: int, reason: LeftOut) -> None:
        """Count an instant that has no occurrence."""
        self._count(reason)
        self._recent.append(Past(instant, left_out=reason, lateness=self._now - instant))

    def _count(self, reason: LeftOut) -> None:
        self._left_out[reason] = self._left_out.get(reason, 0) + 1

    def fire(self, instant: int, *, run: int = 1, due: int | None = None) -> None:
        """Make the occurrence of an instant."""
        wanted = self._wanted
        timer_id = occurrence_name(wanted.recurrence_id, instant, run)
        self._runs += 1
        if due is None:
            due = instant + spread_of(wanted.recurrence_id, wanted.jitter)
        self._occurrences.append(Occurrence(timer_id, due, self._headers(instant)))
        self._before, self._last, self._last_nominal, self.stands = self._last, timer_id, instant, True
        self._recent.append(Past(instant, timer_id, lateness=self._now - instant))

    def _headers(self, instant: int) -> Mapping[str, str]:
        wanted = self._wanted
        own = {
            RECURRENCE: wanted.recurrence_id,
            NOMINAL: write_instant(instant),
            RUN: str(self._runs),
        }
        previous = {PREVIOUS: self._last} if self._last else {}
        return {**wanted.headers, **own, **previous}

    def turn(self, following: int | None, tzdata: str) -> Turn:
        """The turn as it was made."""
        standing = replace(
            self._kept.standing,
            next=None if self.has_ended else following,
            last=self._last,
            last_nominal=self._last_nominal,
            runs=self._runs,
            left_out=self._left_out,
            buffered=self.buffered,
            held=self.held,
            filling=tuple(self.filling),
            further=self._further,
            tzdata=tzdata,
            recent=tuple(self._recent[-RECENT:]),
        )
        return Turn(self._kept, standing, self._occurrences, self._cancel)
