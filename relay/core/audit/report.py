"""The report of an audit: a verdict for each promise, with what refutes it or the reasons for doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum


class Promise(IntEnum):
    """The promises of the README that a journal can prove."""

    NEVER_EARLY = 1
    AT_LEAST_ONCE = 2
    ONE_LEASE = 3
    NEWEST_INTENT = 4
    HONEST_ATTEMPTS = 5
    EVERY_INSTANT = 9

    @property
    def title(self) -> str:
        """Its name in the README."""
        return _TITLES[self]


_TITLES = {
    Promise.NEVER_EARLY: "Never early",
    Promise.AT_LEAST_ONCE: "At least once",
    Promise.ONE_LEASE: "One live lease",
    Promise.NEWEST_INTENT: "Newest intent wins",
    Promise.HONEST_ATTEMPTS: "Honest attempts",
    Promise.EVERY_INSTANT: "Every instant",
}


class PromiseVerdict(Enum):  # see 0039
    """Whether a promise was kept."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNSAID = "can't be said"

    @classmethod
    def of(cls, refuted: bool, doubted: bool) -> PromiseVerdict:
        """Return the verdict of these findings."""
        return cls.REFUTED if refuted else cls.UNSAID if doubted else cls.PROVED


@dataclass(frozen=True, slots=True)
class Example:
    """A timer as an example. `time` (microseconds) is that of the last of the journal's `entries` that show
    it."""

    timer_id: str
    occurrence: bytes
    what: str
    time: int
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one promise. `refuted` counts breaks, `doubts` counts each reason for doubt."""

    promise: Promise
    verdict: PromiseVerdict
    checked: int
    refuted: int = 0
    doubts: Mapping[str, int] = field(default_factory=dict)
    examples: Sequence[Example] = ()


TRIMMED = "trimmed"
MISSING = "missing"
WENT_BACK = "the journal went back: Redis did, or the key was removed"
NOT_WHOLE = "the batch does not hold what it numbers"
ON_WAY = "on its way"
LIVES = "{} timers live, and no Redis was asked whether they are there"


def doubts_of(batches: int, gaps: int, missing: int) -> dict[str, int]:
    """Return what speaks against any proof by a journal with these numbers of batches, gaps and missing
    records."""
    if not batches:
        return {"the journal is empty": 1}
    if missing:
        return {f"{missing} records are missing": gaps}
    return {"the journal is not whole": gaps} if gaps else {}


@dataclass(frozen=True, slots=True)
class JournalGap:
    """Missing records before `entry`. Their number is unknown if the journal went back."""

    entry: str
    missing: int
    why: str


@dataclass(frozen=True, slots=True)
class Open:
    """A timer that has not ended. `age` (microseconds) is the time since its last record."""

    timer_id: str
    state: str
    due: int
    age: int
    entry: str


@dataclass(frozen=True, slots=True)
class Report:
    """The whole audit. `kinds` counts records; instants and lengths are in microseconds."""

    judgements: Sequence[Judgement]
    batches: int
    records: int
    kinds: Mapping[str, int]
    first_entry: str
    last_entry: str
    first_time: int
    last_time: int
    gaps: Sequence[JournalGap]
    gap_count: int
    missing: int
    lateness: Mapping[str, int]
    lateness_count: int
    counts: Mapping[str, int]
    open_count: int
    open: Sequence[Open]

    @property
    def verdict(self) -> PromiseVerdict:
        """The worst verdict of all."""
        found = {judgement.verdict for judgement in self.judgements}
        return next(
            each
            for each in (PromiseVerdict.REFUTED, PromiseVerdict.UNSAID, PromiseVerdict.PROVED)
            if each in found
        )

    def of(self, promise: Promise) -> Judgement:
        """Return the verdict on this promise."""
        return next(each for each in self.judgements if each.promise is promise)


class Findings:
    """Gathers what speaks against the promises. It counts everything, and keeps the first `examples` of
    each."""

    def __init__(self, examples: int) -> None:
        self._most = examples
        self._refuted: Counter[Promise] = Counter()
        self._doubts: dict[Promise, Counter[str]] = {promise: Counter() for promise in Promise}
        self._examples: dict[tuple[Promise, bool], list[Example]] = {}
        self.checked: Counter[Promise] = Counter()

    def refute(self, promise: Promise, example: Example) -> None:
        """Note that the promise is broken."""
        self._refuted[promise] += 1
        self._keep(promise, True, example)

    def doubt(self, promise: Promise, reason: str, example: Example | None = None, count: int = 1) -> None:
        """Note that the promise may be broken: the journal alone does not show it."""
        self._doubts[promise][reason] += count
        if example is not None:
            self._keep(promise, False, example)

    def _keep(self, promise: Promise, broken: bool, example: Example) -> None:
        kept = self._examples.setdefault((promise, broken), [])
        if len(kept) < self._most:
            kept.append(example)

    def judgement(self, promise: Promise, doubts: Mapping[str, int]) -> Judgement:
        """Return the verdict; `doubts` are further ones."""
        refuted = self._refuted[promise]
        both = {**self._doubts[promise], **doubts}
        verdict = PromiseVerdict.of(refuted > 0, bool(both))
        examples = self._examples.get((promise, bool(refuted)), [])
        return Judgement(promise, verdict, self.checked[promise], refuted, both, tuple(examples))
