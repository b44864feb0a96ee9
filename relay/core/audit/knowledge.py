"""The knowledge of an audit during its replay: the timers, and the findings about them."""

from __future__ import annotations

from collections import Counter

from relay.core.audit.lateness import Lateness
from relay.core.audit.places import AuditedPartitions
from relay.core.audit.recurring import Chain
from relay.core.audit.report import Example, Findings, Promise
from relay.core.audit.state import Living
from relay.core.journal import JournalRecord, RecordKind, place_of

FOREIGN = "only a foreign writer, or a relay without the journal, can have done that"


class Knowledge:
    """One topic's timers according to its records, the findings about them, and what all rules need."""

    def __init__(self, findings: Findings, exclusive: bool) -> None:
        self.places = AuditedPartitions()
        self.place = self.places.at(0)
        """The partition whose record is judged."""
        self.chains: dict[str, Chain] = {}
        """The recurrences of the topic."""
        self.counts: Counter[str] = Counter()
        self.lateness = Lateness()
        self.findings = findings
        self.exclusive = exclusive
        self.entry, self.now = "", 0
        self.occurrence = b""
        """Take over what the current record says about the timer."""

    @property
    def living(self) -> dict[str, Living]:
        """The timers of this partition."""
        return self.place.living

    @property
    def epoch(self) -> int:
        """The number of gaps in this partition's journal so far."""
        return self.place.epoch

    def begin(self, entry: str, now: int) -> None:
        """Begin a batch, whose records come next."""
        self.entry, self.now = entry, now
        self.place = self.places.at(place_of(entry)[0])

    # ------------------------------------------------------------------------------ common parts

    def delivered(self, timer: Living) -> None:
        """Note that the application had the timer. This counts once for each lease: a receipt may come before
        its end."""
        lease = timer.lease
        if lease is None or lease.received:
            return
        timer.deliveries += 1
        self.counts["deliveries"] += 1
        if timer.deliveries == 1:
            if timer.due is not None and not lease.approximate:
                self.first_delivery(timer.due, lease.since)
        else:
            self.counts["retries" if timer.nacked else "duplicates"] += 1

    def first_delivery(self, due: int, since: int) -> None:
        """Note the first delivery to the application, by the claim of that instant."""
        self.lateness.add(since - due)

    def same_due(self, record: JournalRecord, timer: Living, due: int) -> None:
        """Check that the due time is unchanged, except by a new intent."""
        if timer.due is None or timer.due == due:
            return
        what = f"had another due time than the newest intent: {due} and not {timer.due}"
        early = record.kind in (RecordKind.CLAIMED, RecordKind.PROMOTED) and self.now < timer.due
        if timer.recorded or self.exclusive:
            self.refute(record.timer_id, timer, Promise.NEWEST_INTENT, what)
            if early:
                self.refute(record.timer_id, timer, Promise.NEVER_EARLY, f"was delivered early: it {what}")
        else:  # a publisher may have moved it: there was no record of ours that would show it
            self.counts["moved"] += 1
            if early:
                self.blame(record.timer_id, timer, Promise.NEVER_EARLY, f"was delivered early: it {what}")

    def counted(self, record: JournalRecord, timer: Living, attempts: int, claims: int) -> None:
        """Check that attempts and claims have grown by these numbers."""
        for name, before, more, now in (
            ("attempts", timer.attempts, attempts, record.attempts),
            ("claims", timer.claims, claims, record.claims),
        ):
            if before is not None and now != before + more:
                what = f"is {kind_of(record)} with {now} {name}, and they are {before + more}"
                self.refute(record.timer_id, timer, Promise.HONEST_ATTEMPTS, what)
        timer.attempts, timer.claims = record.attempts, record.claims

    # ------------------------------------------------------------------------------ findings

    def refute(self, timer_id: str, timer: Living, promise: Promise, what: str) -> None:
        """Note that the promise is broken."""
        self.findings.refute(promise, self.example(timer_id, timer, what))

    def blame(self, timer_id: str, timer: Living, promise: Promise, what: str) -> None:
        """Note that the promise is broken, unless a writer without a journal may have done it."""
        if self.exclusive:
            return self.refute(timer_id, timer, promise, what)
        self.findings.doubt(promise, FOREIGN, self.example(timer_id, timer, what))
        return None

    def example(self, timer_id: str, timer: Living, what: str) -> Example:
        """Return a finding with the timer, the entry of its last record and the current entry."""
        entries = tuple(dict.fromkeys(entry for entry in (timer.entry, self.entry) if entry))
        return Example(timer_id, timer.occurrence or self.occurrence, what, self.now, entries)


def kind_of(record: JournalRecord) -> str:
    """Return the record's kind as a verb."""
    return record.kind.name.lower()


def has(nonce: bytes) -> bool:
    """Whether it is a foreign one."""
    return nonce.strip(b"\0") != b""
