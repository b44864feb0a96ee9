"""The rules about leases: how they begin, go on and end."""

from __future__ import annotations

from relay.core.audit.knowledge import Knowledge, has, kind_of
from relay.core.audit.report import Findings, Promise
from relay.core.audit.state import Living, Nonces, OpenLease
from relay.core.journal import JournalRecord, RecordKind

UNSEEN_NONCE = "the nonce is older than what is remembered"

MOST_NONCES = 10_000
"""The nonces that are remembered for each relay."""


_OF_CLAIMS = (Promise.NEVER_EARLY, Promise.ONE_LEASE, Promise.NEWEST_INTENT, Promise.HONEST_ATTEMPTS)
"""The promises that each claim is held against."""


class LeaseRules(Knowledge):
    """Judges promise 3, and what leases show about 1, 4 and 5. A rule returns whether the timer has ended."""

    def __init__(self, findings: Findings, exclusive: bool) -> None:
        super().__init__(findings, exclusive)
        self._nonces = Nonces(MOST_NONCES)

    def claimed(self, record: JournalRecord, timer: Living) -> bool:
        for promise in _OF_CLAIMS:
            self.findings.checked[promise] += 1
        if self.now < record.due:
            early = record.due - self.now
            self.refute(record.timer_id, timer, Promise.NEVER_EARLY, f"was delivered {early} µs early")
        self.free(record, timer)
        self._fresh(record, timer)
        lapsed = self.lapse(timer)
        self.same_due(record, timer, record.due)
        self.counted(record, timer, lapsed, 1)
        if timer.occurrence is not None and record.occurrence != (timer.occurrence or record.nonce):
            what = "was delivered as another occurrence than the one that lives"
            self.refute(record.timer_id, timer, Promise.NEWEST_INTENT, what)
        timer.occurrence, timer.due, timer.recorded = record.occurrence, record.due, True
        timer.lease = OpenLease(record.nonce, record.score, self.now, record.approximate)
        return False

    def _fresh(self, record: JournalRecord, timer: Living) -> None:
        """Check that no earlier claim had this nonce, which all timers of one claim share."""
        used = self.used_before(record.nonce)
        if used == "":
            self.findings.doubt(Promise.ONE_LEASE, UNSEEN_NONCE)
        elif used is not None and used != self.entry:
            self.refute(
                record.timer_id, timer, Promise.ONE_LEASE, "was claimed under a nonce that was used before"
            )

    def used_before(self, nonce: bytes) -> str | None:
        """Return the entry in which a nonce was used first; None if it is fresh, empty if that is unknown."""
        return self._nonces.use(nonce, self.entry)

    def told_lease(self, record: JournalRecord, timer: Living) -> None:
        """Check that a change names the lease that it makes void, and names none where no lease was held."""
        lease = timer.live_lease
        known = lease.nonce if lease is not None else b""
        told = record.nonce if has(record.nonce) else b""
        if known == told or record.adopted is not None or (lease is None and timer.occurrence is None):
            return
        what = "ends a lease that has no record" if told else "overlooks a lease"
        self.refute(record.timer_id, timer, Promise.ONE_LEASE, f"is {kind_of(record)}, which {what}")

    def free(self, record: JournalRecord, timer: Living) -> None:
        """Check that no lease on the timer is valid any more: it ran out, or a foreign writer ended it."""
        lease = timer.live_lease
        if lease is not None and self.now < lease.until:
            what = f"is {kind_of(record)} while a lease on it was valid for {lease.until - self.now} µs more"
            self.refute(record.timer_id, timer, Promise.ONE_LEASE, what)

    def lapse(self, timer: Living) -> int:
        """End the previous lease, if there is one; return the attempts that it counts."""
        lease, timer.lease = timer.lease, None
        if lease is None:
            return 0
        self.counts["lapsed"] += 1
        if lease.received:
            timer.nacked = False
        return int(lease.received)

    def holds(self, record: JournalRecord, timer: Living) -> bool:
        """Check that the token of this write was the valid one; return whether it was."""
        lease = timer.live_lease
        if lease is not None and lease.nonce == record.nonce:
            return True
        if lease is None and timer.occurrence is None:
            return False  # it began before the journal or a gap, which is doubted elsewhere
        what = f"is {kind_of(record)} under a token that was not valid"
        self.refute(record.timer_id, timer, Promise.ONE_LEASE, what)
        if record.nonce == timer.voided:
            self.refute(record.timer_id, timer, Promise.NEWEST_INTENT, f"{what}: its intent was replaced")
        return False

    def renewed(self, record: JournalRecord, timer: Living) -> bool:
        holds = self.holds(record, timer)
        if timer.lease is None:
            timer.lease = OpenLease(record.nonce, record.score, self.now, approximate=True)
        elif not holds:
            return False
        timer.lease.until = record.score
        if record.kind is RecordKind.RECEIVED:
            if holds:
                self.delivered(timer)
            timer.lease.received = True
        return False

    def acked(self, record: JournalRecord, timer: Living) -> bool:
        if self.holds(record, timer):
            self.delivered(timer)
        self.counts["committed"] += 1
        return True

    def nacked(self, record: JournalRecord, timer: Living) -> bool:
        if self.holds(record, timer):
            self.delivered(timer)
        timer.nacked = True
        self._again(record, timer, 1, 0)
        return False

    def released(self, record: JournalRecord, timer: Living) -> bool:
        if self.holds(record, timer):
            if record.received:
                self.delivered(timer)
                timer.nacked = False
            elif timer.lease is not None and timer.lease.received:
                what = "was given back as if nobody had received it"
                self.refute(record.timer_id, timer, Promise.HONEST_ATTEMPTS, what)
        less = timer.claims is not None and record.claims == timer.claims - 1 and not record.received
        self._again(record, timer, int(record.received), -1 if less else 0)
        return False

    def _again(self, record: JournalRecord, timer: Living, attempts: int, claims: int) -> None:
        timer.lease = None
        self.same_due(record, timer, record.due)
        self.counted(record, timer, attempts, claims)
        timer.due, timer.recorded = record.due, True
