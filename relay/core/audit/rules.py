"""What each kind of record may say about a timer, and which promise it breaks if it says something else."""

from __future__ import annotations

from collections.abc import Callable

from relay.core.audit.knowledge import has, kind_of
from relay.core.audit.leases import LeaseRules
from relay.core.audit.report import Findings, Promise
from relay.core.audit.state import LastEnd, Living, Memory
from relay.core.journal import Adoption, JournalRecord, RecordKind
from relay.core.outcomes import NOT_GIVEN

UNREAD = frozenset(each.value for each in NOT_GIVEN)
"""The reasons of deaths that nobody received."""

OLDER = "it began before the journal did"

MOST_ENDED = 100_000

_BEGIN = {RecordKind.SCHEDULED, RecordKind.REDRIVEN, RecordKind.REPAIRED}
"""The kinds that need no existing timer."""


class AuditRules(LeaseRules):
    """All rules, by kind. A rule returns whether the timer has ended."""

    def __init__(self, findings: Findings, exclusive: bool) -> None:
        super().__init__(findings, exclusive)
        self.ended = Memory(MOST_ENDED)
        self._rules: dict[RecordKind, Callable[[JournalRecord, Living], bool]] = {
            RecordKind.SCHEDULED: self._scheduled,
            RecordKind.REPLACED: self._replaced,
            RecordKind.CLAIMED: self.claimed,
            RecordKind.RECEIVED: self.renewed,
            RecordKind.EXTENDED: self.renewed,
            RecordKind.ACKED: self.acked,
            RecordKind.NACKED: self.nacked,
            RecordKind.RELEASED: self.released,
            RecordKind.RESCHEDULED: self._rescheduled,
            RecordKind.DEAD: self._dead,
            RecordKind.EXPIRED: self._expired,
            RecordKind.REDRIVEN: self._redriven,
            RecordKind.CANCELLED: self._cancelled,
            RecordKind.RUN: self._run,
            RecordKind.PARKED: self._parked,
            RecordKind.ORPHANED: self._orphaned,
            RecordKind.TAKEN: self._taken,
            RecordKind.REPAIRED: self._repaired,
            RecordKind.PROMOTED: self._promoted,
        }

    def forget(self) -> None:
        """Note missing records: what was known about any timer may have changed."""
        self.place.epoch += 1  # which is a part of the names of ends

    # ------------------------------------------------------------------------------ one record

    def apply(self, record: JournalRecord) -> None:
        """Judge a record by what is known of its timer in this partition."""
        self.occurrence = record.occurrence
        if record.kind in (RecordKind.STALE, RecordKind.GONE):
            return self._refused(record)
        rule = self._rules.get(record.kind)
        if rule is None:  # it is about the topic, or about a dead letter
            return None
        timer = self.known(record)
        if record.adopted is not None:
            self._adopted(record, timer)
        if rule(record, timer):
            self.living.pop(record.timer_id, None)
            voided = timer.lease.nonce if timer.lease is not None else b""
            occurrence = timer.occurrence or record.occurrence
            ended = LastEnd(record.kind, occurrence, self.entry, voided, record.dead_id)
            self.ended.add(self.end_name(record.timer_id), ended)
        else:
            self.lives(record.timer_id, timer)
        return None

    def known(self, record: JournalRecord) -> Living:
        """Return the timer that a record is about as it was known before, or what the record says of it."""
        timer = self.living.get(record.timer_id)
        return self._unknown(record) if timer is None or timer.epoch != self.epoch else timer

    def lives(self, timer_id: str, timer: Living) -> None:
        """Note that a timer lives in this partition."""
        timer.entry, timer.time, timer.missed = self.entry, self.now, None
        self.ended.forget(self.end_name(timer_id))
        self.living[timer_id] = timer

    def end_name(self, timer_id: str) -> tuple[int, int, str]:
        """What a timer's end is remembered by."""
        return self.place.number, self.epoch, timer_id

    def _unknown(self, record: JournalRecord) -> Living:
        """Make a timer about which the journal knows nothing certain, as the record describes it."""
        older = self.living.get(record.timer_id)
        timer = Living(self.epoch, self.entry, self.now, None, None, None, None)
        timer.accepted = older is not None and older.accepted
        ended = self.ended.get(self.end_name(record.timer_id))
        if record.kind in _BEGIN:
            timer.voided = ended.voided if ended is not None else b""
        elif ended is not None:
            if (
                record.kind is RecordKind.CLAIMED
            ):  # no record was left: the writer that brought it back began at 0
                timer.occurrence, timer.attempts, timer.claims = b"", 0, 0
            self._after_the_end(record, timer, ended)
        elif not self.epoch:
            self._never_heard_of(record, timer)
        return timer

    def _after_the_end(self, record: JournalRecord, timer: Living, ended: LastEnd) -> None:
        """Judge a record about a timer that has ended: a foreign publisher's new intent begins with
        nothing."""
        timer.entry = ended.entry
        ghost = has(record.occurrence) and record.occurrence == ended.occurrence
        if has(record.nonce) and record.kind is not RecordKind.CLAIMED:
            self.refute(
                record.timer_id, timer, Promise.ONE_LEASE, f"is {kind_of(record)} after it was {_end(ended)}"
            )
            if ended.kind is RecordKind.CANCELLED:
                self.refute(
                    record.timer_id,
                    timer,
                    Promise.NEWEST_INTENT,
                    f"is {kind_of(record)} after it was cancelled",
                )
        elif ghost:
            what = f"is {kind_of(record)} after it was {_end(ended)}, as the same occurrence"
            self.refute(record.timer_id, timer, Promise.NEWEST_INTENT, what)
        else:
            self._found(record, timer, f"is {kind_of(record)} after it was {_end(ended)}")

    def _never_heard_of(self, record: JournalRecord, timer: Living) -> None:
        if has(record.nonce) and record.kind is not RecordKind.CLAIMED:
            what = f"is {kind_of(record)} under a lease that has no record"
            if self.exclusive:
                self.refute(record.timer_id, timer, Promise.ONE_LEASE, what)
            else:
                told = self.example(record.timer_id, timer, what)
                self.findings.doubt(Promise.ONE_LEASE, OLDER, told)
        else:
            self._found(record, timer, f"is {kind_of(record)}, and nobody scheduled it")

    def _found(self, record: JournalRecord, timer: Living, what: str) -> None:
        """Judge a timer of another writer, or one from before the journal."""
        self.counts["found"] += 1
        if self.exclusive:
            self.refute(record.timer_id, timer, Promise.NEWEST_INTENT, what)

    def _adopted(self, record: JournalRecord, timer: Living) -> None:
        self.counts["adopted"] += 1
        if self.exclusive:
            self.refute(
                record.timer_id, timer, Promise.NEWEST_INTENT, "was changed by somebody without a record"
            )
        if record.adopted is Adoption.INTENT:
            timer.due, timer.occurrence, timer.attempts, timer.claims = None, b"", 0, 0
            timer.deliveries, timer.nacked, timer.lease = 0, False, None
        elif timer.lease is not None:  # a received delivery counts, as with a lease that lapsed
            timer.lease.void = True

    # ------------------------------------------------------------------------------ intents

    def _scheduled(self, record: JournalRecord, timer: Living) -> bool:
        self.vanished(record, timer)
        self._intent(record, timer)
        return False

    def vanished(self, record: JournalRecord, timer: Living) -> None:
        """Judge a record that no such timer was there, although it had not ended."""
        if self.living.get(record.timer_id) is not timer:
            return
        if timer.recorded:
            self.refute(
                record.timer_id, timer, Promise.AT_LEAST_ONCE, "was gone, with all that we knew of it"
            )
        else:
            self.blame(
                record.timer_id, timer, Promise.AT_LEAST_ONCE, "was gone, and nothing says how it ended"
            )

    def _intent(self, record: JournalRecord, timer: Living) -> None:
        """Begin a new timer, which has only the name of the old one."""
        if timer.lease is not None:
            timer.voided = timer.lease.nonce
        timer.lease, timer.occurrence, timer.attempts, timer.claims = None, record.occurrence, 0, 0
        timer.deliveries, timer.nacked, timer.accepted = 0, False, True
        timer.due, timer.recorded = record.due, record.expires > 0 or has(record.occurrence)
        timer.missed = None
        self.counts["intents"] += 1
        self.findings.checked[Promise.AT_LEAST_ONCE] += 1

    def _replaced(self, record: JournalRecord, timer: Living) -> bool:
        self.told_lease(record, timer)
        self.same_due(record, timer, record.previous_due)
        self._intent(record, timer)
        return False

    def _redriven(self, record: JournalRecord, timer: Living) -> bool:
        self.vanished(record, timer)
        self._intent(record, timer)
        ended = self.ended.get(self.end_name(record.timer_id))
        if ended is not None and ended.dead_id == record.dead_id and ended.occurrence != record.occurrence:
            what = "was brought back as another occurrence than the one that died"
            self.refute(record.timer_id, timer, Promise.NEWEST_INTENT, what)
        timer.occurrence = record.occurrence if has(record.occurrence) else b""
        # Its first delivery was in its first life.
        timer.recorded, timer.deliveries, timer.nacked = True, 1, True
        return False

    def _rescheduled(self, record: JournalRecord, timer: Living) -> bool:
        if self.holds(record, timer):
            self.delivered(timer)
            self.same_due(record, timer, record.previous_due)
        self._intent(record, timer)
        return False

    def _run(self, record: JournalRecord, timer: Living) -> bool:
        if timer.live_lease is not None:
            self.refute(record.timer_id, timer, Promise.ONE_LEASE, "was made due while it was leased")
        self.same_due(record, timer, record.previous_due)
        self.counted(record, timer, self.lapse(timer), 0)
        timer.due, timer.recorded = record.due, True
        return False

    def _cancelled(self, record: JournalRecord, timer: Living) -> bool:
        self.findings.checked[Promise.NEWEST_INTENT] += 1
        self.told_lease(record, timer)
        self.same_due(record, timer, record.due)
        return True

    # ------------------------------------------------------------------------------ ends

    def _dead(self, record: JournalRecord, timer: Living) -> bool:
        if not record.received and record.reason not in UNREAD:  # a claim has found it
            self.free(record, timer)
        if has(record.nonce) and self.holds(record, timer) and record.received:
            self.delivered(timer)
        self.same_due(record, timer, record.due)
        # A reject counts even if nobody received it.
        self.counted(record, timer, int(record.received or record.reason in UNREAD), 0)
        self.counts["dead"] += 1
        return True

    def _expired(self, record: JournalRecord, timer: Living) -> bool:
        self.free(record, timer)
        if self.now < record.expires:
            what = f"expired {record.expires - self.now} µs too soon"
            self.refute(record.timer_id, timer, Promise.AT_LEAST_ONCE, what)
        self.told_lease(record, timer)
        self.same_due(record, timer, record.due)
        self.counted(record, timer, self.lapse(timer), 0)
        return True

    def _promoted(self, record: JournalRecord, timer: Living) -> bool:
        """Judge a promotion: the timer went to the topic's list or stream, and the journal's part ends
        here."""
        self.free(record, timer)
        self.findings.checked[Promise.NEVER_EARLY] += 1
        if self.now < record.due:
            what = f"was promoted {record.due - self.now} µs early"
            self.refute(record.timer_id, timer, Promise.NEVER_EARLY, what)
        self.told_lease(record, timer)
        self.same_due(record, timer, record.due)
        self.counted(record, timer, self.lapse(timer), 0)
        self.counts["promoted"] += 1
        return True

    def _parked(self, record: JournalRecord, timer: Living) -> bool:
        self.free(record, timer)
        self.told_lease(record, timer)
        self.same_due(record, timer, record.due)
        self.counted(record, timer, self.lapse(timer), 0)
        timer.due, timer.recorded = record.due, True
        return False

    def _orphaned(self, record: JournalRecord, timer: Living) -> bool:
        if timer.accepted:
            self.blame(
                record.timer_id, timer, Promise.AT_LEAST_ONCE, "was removed, for it had lost its payload"
            )
        return True

    def _taken(self, record: JournalRecord, timer: Living) -> bool:
        self.counts["taken"] += 1
        self.blame(record.timer_id, timer, Promise.AT_LEAST_ONCE, "was removed by somebody without a record")
        return True

    def _repaired(self, record: JournalRecord, timer: Living) -> bool:
        """Judge the repair of a payload without a timer."""
        self.vanished(record, timer)
        return True

    def _refused(self, record: JournalRecord) -> None:
        """Check that a refused token was not the valid one, and that a timer that is GONE had ended."""
        self.counts["refused"] += 1
        timer = self.living.get(record.timer_id)
        if timer is None or timer.epoch != self.epoch:
            return
        if record.kind is RecordKind.GONE:  # after a removal by a foreign writer, TAKEN would have come first
            self.vanished(record, timer)
            return
        lease = timer.live_lease
        if lease is None or lease.nonce != record.nonce:
            return
        if record.adopted is not None:
            self.counts["adopted"] += 1
            lease.void = True
        else:
            self.refute(record.timer_id, timer, Promise.ONE_LEASE, "had a valid token, which was refused")

    def judge_living(self, timer_id: str, timer: Living, at_rest: bool, *, certain: bool) -> bool:
        """Judge a timer at the end: it may be lost, and with `at_rest` it must not live. `certain`: no record
        is missing that may tell of its end. Returns whether nobody was asked."""
        promise = Promise.AT_LEAST_ONCE
        self.occurrence = b""
        if timer.missed and timer.remembered:
            self._lone(timer_id, timer)
        elif timer.missed and timer.recorded and certain:
            self.refute(timer_id, timer, promise, "is gone, with all that we knew of it")
        elif timer.missed:
            self.blame(timer_id, timer, promise, "is gone, and nothing says how it ended")
        elif at_rest and timer.missed is None and not timer.recorded:
            self.blame(timer_id, timer, promise, "has not ended")
        elif at_rest:
            self.refute(timer_id, timer, promise, "has not ended")
        else:
            return timer.missed is None
        return False

    def _lone(self, timer_id: str, timer: Living) -> None:
        """Judge a record of ours without a timer, which the next change would call TAKEN."""
        self.counts["taken"] += 1
        self.blame(timer_id, timer, Promise.AT_LEAST_ONCE, "is gone, and our record of it is left")


def _end(ended: LastEnd) -> str:
    return f"{ended.kind.name.lower()} ({ended.entry})"
