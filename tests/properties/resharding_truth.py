"""What one timer in one Redis may be after all that callers have heard: the judge of a topic that is
resharded.

A call has its effect at one instant between its begin and its answer, and a claim when its script runs. So
there is a set of what may be true. Of that an answer leaves what explains it, and if nothing does, the answer
is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from relay.core.instants import SECOND
from relay.core.outcomes import Reason, Verb, Verdict
from relay.core.timers import Change

LEASE = 30 * SECOND


class Violation(AssertionError):
    """What was seen can't have come of one timer in one Redis."""


class Timer(NamedTuple):
    """A timer with the content `version`. `at` is when it may be claimed, `nonce` that of its lease."""

    version: int
    due: int
    at: int
    nonce: bytes = b""


class Found(NamedTuple):
    """What a reader is told of a timer; `version` is 0 in a listing."""

    version: int
    due: int
    leased: bool


class State(NamedTuple):
    """A timer, and the versions of its id's dead letters, sorted."""

    timer: Timer | None
    letters: tuple[int, ...] = ()


class Op(NamedTuple):
    """A call about one timer. `version` and `due` are of what is written, `nonce` is that of the lease."""

    kind: str
    version: int = 0
    due: int = 0
    nonce: bytes = b""
    verb: Verb | None = None


Answer: TypeAlias = Change | Verdict | Reason | Found | bool | None
Case: TypeAlias = tuple[State, frozenset[tuple[int, Answer]]]
"""What may be true, and which of the calls that are under way have had their effect by then, with which
answer."""


def applied(op: Op, state: State, now: int) -> tuple[Answer, State]:
    """What one Redis would answer, and what would be there then."""
    timer, letters = state
    if op.kind in ("get", "list"):
        version = timer.version if timer and op.kind == "get" else 0
        return (Found(version, timer.due, bool(timer.nonce)) if timer else None), state
    if op.kind == "find":
        return timer is not None and timer.nonce == op.nonce and timer.at >= now, state
    if op.kind in ("settle", "extend"):
        if timer is None:
            return Verdict.GONE, state
        return _ended(op, timer, letters, now) if timer.nonce == op.nonce else (Verdict.STALE, state)
    if op.kind == "redrive":
        return _redriven(op, state, now)
    return _changed(op, state, now)


def _changed(op: Op, state: State, now: int) -> tuple[Answer, State]:
    timer, letters = state
    new = State(Timer(op.version, op.due, op.due), letters)
    if op.kind == "schedule":
        return (Change.REPLACED if timer else Change.CREATED), new
    if op.kind == "create":
        return (Change.UNCHANGED, state) if timer else (Change.CREATED, new)
    if timer is None:
        return Change.GONE, state
    if op.kind == "cancel":
        return Change.CANCELLED, State(None, letters)
    if timer.nonce:
        return Change.IN_FLIGHT, state
    if op.kind == "change":
        return Change.REPLACED, new
    assert op.kind == "run"
    return Change.RUN, State(Timer(timer.version, min(timer.due, now), now), letters)


def _redriven(op: Op, state: State, now: int) -> tuple[Answer, State]:
    timer, letters = state
    if op.version not in letters:
        return Change.GONE, state
    left = [*letters]
    left.remove(op.version)
    return (
        (Change.UNCHANGED, state) if timer else (Change.RUN, State(Timer(op.version, now, now), tuple(left)))
    )


def _ended(op: Op, timer: Timer, letters: tuple[int, ...], now: int) -> tuple[Answer, State]:
    if op.kind == "extend":
        return Verdict.OK, State(timer._replace(at=max(timer.at, now + LEASE)), letters)
    if op.verb is Verb.ACK:
        return Verdict.OK, State(None, letters)
    if op.verb is Verb.REJECT:
        return Reason.REJECTED, State(None, tuple(sorted((*letters, timer.version))))
    if op.verb is Verb.RESCHEDULE:
        return Verdict.OK, State(Timer(op.version, op.due, op.due), letters)
    return Verdict.OK, State(Timer(timer.version, timer.due, max(now, timer.due)), letters)


@lru_cache(100_000)
def closed(cases: frozenset[Case], under_way: tuple[tuple[int, Op], ...], now: int) -> frozenset[Case]:
    """Those and what they may have become by calls that are under way."""
    seen, todo = set(cases), list(cases)
    while todo:
        state, done = todo.pop()
        for number, op in under_way:
            if any(number == other for other, _ in done):
                continue
            answer, after = applied(op, state, now)
            case = after, done | {(number, answer)}
            if case not in seen:
                seen.add(case)
                todo.append(case)
    return frozenset(seen)


@dataclass
class Truth:
    """What may be true of one id."""

    timer_id: str
    cases: frozenset[Case]
    now: int

    def __post_init__(self) -> None:
        self._under_way: dict[int, Op] = {}

    def tick(self, now: int) -> None:
        """The clock goes on. Whatever had its effect had it by the clock of before."""
        self.cases, self.now = self._closed(), now

    def begin(self, number: int, op: Op) -> None:
        self._under_way.setdefault(number, op)

    def answer(self, number: int, answer: Answer) -> None:
        cases = self._closed()
        self._end(number, (case for case in cases if (number, answer) in case[1]), f"the answer {answer}")

    def undone(self, number: int) -> None:
        """The call has had no effect, and never will."""
        self._end(number, (case for case in self.cases if all(number != other for other, _ in case[1])), "")

    def unknown(self, number: int) -> None:
        """The call has had its effect or not, and will not any more."""
        self._end(number, self._closed(), "")

    def claimed(self, version: int, nonce: bytes) -> None:
        """A claim hands the timer out now."""
        cases = [
            (State(timer._replace(at=self.now + LEASE, nonce=nonce), letters), done)
            for (timer, letters), done in self._closed()
            if timer and timer.version == version and timer.at <= self.now
        ]
        if not cases:
            raise Violation(f"{self.timer_id}: a claim hands out {version}; {self}")
        self.cases = frozenset(cases)

    def stands(self, state: State) -> None:
        """All has ended, and this is there."""
        if all(state != case for case, _ in self._closed()):
            raise Violation(f"{self.timer_id}: at the end there is {state}; {self}")

    def _closed(self) -> frozenset[Case]:
        return closed(self.cases, tuple(self._under_way.items()), self.now)

    def _end(self, number: int, cases: Iterable[Case], what: str) -> None:
        op = self._under_way[number]
        before = str(self)
        del self._under_way[number]
        self.cases = frozenset(
            (state, frozenset(each for each in done if each[0] != number)) for state, done in cases
        )
        if not self.cases:
            raise Violation(f"{self.timer_id}: {what} of {op} has no explanation; {before}")

    def __str__(self) -> str:
        return (
            f"there may be {[case for case, _ in self.cases]} and there come {list(self._under_way.values())}"
        )
