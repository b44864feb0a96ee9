"""The rules about timers that go from one partition to another, and the way of each record to its rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relay.core.audit.places import Held, OnWay, Place
from relay.core.audit.recurring import Chain
from relay.core.audit.report import Example, Promise
from relay.core.audit.rules import AuditRules
from relay.core.audit.state import Living
from relay.core.journal import HAND_OVERS, RECURRING, HandOver, JournalRecord, RecordKind

NO_DEPARTURE = "it came from another partition, whose journal does not tell that it left"

NO_TICK = "records are missing that may tell how a recurrence went on"


Remaining = tuple[str, Living, OnWay | None, Place]
"""A timer that has not ended, and its partition; or how it is on its way from that."""


class HandOverRules(AuditRules):
    """All rules, for the journals of all partitions of a topic.

    A timer is judged in each partition by itself, and what is known of it goes with it from one to the other.
    The records of one that has arrived wait until it is read that it left: which of two entries of different
    partitions is read first says nothing.
    """

    def take(self, record: JournalRecord) -> None:
        """Take the next record of the batch."""
        if record.kind in RECURRING:
            self._recurs(record)
            return
        handed_over = record.kind in HAND_OVERS
        if handed_over and record.dead_id:
            self._letter(record)
        elif (held := self.place.held.get(record.timer_id)) is not None:
            held.append(self._kept(record))
        elif not handed_over:
            self.apply(record)
        elif record.kind is RecordKind.LEFT:
            self._left(record)
        elif record.kind is RecordKind.ARRIVED and self._must_wait(record):
            self._hold(record)
        else:
            self._arrives(record)

    # ------------------------------------------------------------------------------ recurrences

    def _recurs(self, record: JournalRecord) -> None:
        self.findings.checked[Promise.EVERY_INSTANT] += 1
        chain = self.chains.setdefault(record.timer_id, Chain())
        chain.entry, chain.now = self.entry, self.now
        chain.add(record)

    def _judge_chains(self) -> None:
        """Judge all recurrences, of which nothing more is read."""
        is_whole = not any(place.epoch for place in self.places.all.values())
        for name, chain in self.chains.items():
            for fault in chain.faults():
                example = Example(name, b"", fault, chain.now, (chain.entry,))
                if is_whole:
                    self.findings.refute(Promise.EVERY_INSTANT, example)
                else:
                    self.findings.doubt(Promise.EVERY_INSTANT, NO_TICK, example)
        self.chains.clear()

    # ------------------------------------------------------------------------------ timers

    def _left(self, record: JournalRecord) -> None:
        hand_over = HandOver.parse(record.hand_over)
        self._pass(hand_over)
        self.occurrence = record.occurrence
        timer = self.known(record)
        self.living.pop(record.timer_id, None)
        timer.entry, timer.time, timer.missed = self.entry, self.now, None
        self.places.depart(record.hand_over, record.timer_id, timer)
        target = self.places.at(hand_over.target)
        held = target.held.get(record.timer_id)
        if held and held[0].record.hand_over == record.hand_over:
            self._release(target, record.timer_id)

    def _pass(self, hand_over: HandOver) -> None:
        """Note that a partition has come to this hand-over: of earlier ones no departure comes any more."""
        if hand_over.rank <= self.place.passed:
            return
        self.place.passed = hand_over.rank
        awaited = self.places.awaited.get(self.place.number, {})
        for text in [text for text in awaited if HandOver.parse(text).rank < hand_over.rank]:
            target = self.places.at(HandOver.parse(text).target)
            for timer_id in sorted(awaited.get(text, ())):
                self._release(target, timer_id)

    def _must_wait(self, record: JournalRecord) -> bool:
        hand_over = HandOver.parse(record.hand_over)
        is_known = record.timer_id in self.places.on_way.get(record.hand_over, {})
        return not is_known and hand_over.rank > self.places.at(hand_over.source).passed

    def _hold(self, record: JournalRecord) -> None:
        self.place.held[record.timer_id] = [self._kept(record)]
        awaited = self.places.awaited.setdefault(HandOver.parse(record.hand_over).source, {})
        awaited.setdefault(record.hand_over, set()).add(record.timer_id)

    def _kept(self, record: JournalRecord) -> Held:
        return Held(self.entry, self.now, self.epoch, record)

    def _release(self, place: Place, timer_id: str) -> None:
        """Take what was held of a timer. A further arrival may be held again, and what follows with it."""
        here, epoch = (self.place, self.entry, self.now), place.epoch
        arrival, *rest = place.held.pop(timer_id)
        hand_over = arrival.record.hand_over
        awaited = self.places.awaited[HandOver.parse(hand_over).source]
        awaited[hand_over].discard(timer_id)
        if not awaited[hand_over]:
            del awaited[hand_over]
        for each in (arrival, *rest):
            self.place, self.entry, self.now, place.epoch = place, each.entry, each.now, each.epoch
            if each is arrival:
                self._arrives(each.record)
            else:
                self.take(each.record)
        (self.place, self.entry, self.now), place.epoch = here, epoch

    def _arrives(self, record: JournalRecord) -> None:
        """A timer has come in, or back."""
        self.occurrence = record.occurrence
        timer = self.places.taken(record.hand_over, record.timer_id)
        if timer is None:
            timer = Living(self.epoch, self.entry, self.now, None, None, None, None)
            for promise in Promise:
                self.findings.doubt(promise, NO_DEPARTURE, self.example(record.timer_id, timer, NO_DEPARTURE))
        older = self.living.get(record.timer_id)
        if older is not None and older.epoch == self.epoch:
            self.vanished(record, older)
        timer.epoch = self.epoch
        self.lives(record.timer_id, timer)

    # ------------------------------------------------------------------------------ dead letters

    def _letter(self, record: JournalRecord) -> None:
        """The end of a timer goes with its letter, which then has another name."""
        if record.kind is RecordKind.LEFT:
            ended = self.ended.get(self.end_name(record.timer_id))
            if ended is not None and ended.dead_id == record.dead_id:
                self.ended.add((record.hand_over, record.dead_id), ended)
            return
        ended = self.ended.get((record.hand_over, record.previous_dead_id))
        name = self.end_name(record.timer_id)
        is_new = record.timer_id not in self.living and self.ended.get(name) is None
        if ended is not None and is_new:
            self.ended.add(name, replace(ended, dead_id=record.dead_id))

    # ------------------------------------------------------------------------------ the end

    @property
    def waits(self) -> bool:
        """Whether a timer has arrived of which it was not read that it left."""
        return any(self.places.awaited.values())

    def settle(self) -> None:
        """Judge what still waits: nothing more is read."""
        while self.waits:
            for place in list(self.places.all.values()):
                for timer_id in list(place.held):
                    self._release(place, timer_id)
        self._judge_chains()

    def remaining(self) -> Iterator[Remaining]:
        """Yield the timers that have not ended."""
        for place in self.places.all.values():
            for timer_id, timer in place.living.items():
                yield timer_id, timer, None, place
        for batch in self.places.on_way.values():
            for timer_id, found in batch.items():
                yield timer_id, found.timer, found, self.places.at(found.hand_over.source)

    def is_certain(self, timer: Living, on_way: OnWay | None, place: Place) -> bool:
        """Whether no record is missing that may tell more of a timer of `remaining`; of one on its way, that
        it has come back or has arrived."""
        if timer.epoch != place.epoch:
            return False
        return on_way is None or not self.places.at(on_way.hand_over.target).epoch
