"""The judge: what became of a run, from the ledgers of callers, handlers and the nemesis alone; see 0098."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from chaos.faults.network import LINES
from chaos.judging.calls import Call, Calls
from chaos.judging.clocks import ServerClocks
from chaos.judging.deliveries import (
    Delivery,
    deliveries,
    longest_stretch,
    overcounted,
    redeliveries,
    twice,
    uncounted,
)
from chaos.judging.losses import Losses
from chaos.judging.recurrences import Instants, instants
from chaos.judging.verdict import Verdict
from chaos.ledger import Entry
from relay.core.instants import SECOND

RECEIPT = 1.0
"""Seconds within which a relay, however busy, has written down that a handler has begun."""
TOLERANCE = 0.001
"""Seconds by which readings of a clock may be off; it is slewed, and rounded."""


@dataclass(frozen=True)
class Judge:
    """`entries` are all ledgers of a run, by their times; `lease_ttl` is in seconds."""

    entries: Sequence[Entry]
    lease_ttl: float

    # -------------------------------------------------------------- what the ledgers say

    @cached_property
    def calls(self) -> Calls:
        return Calls(self.entries)

    @cached_property
    def deliveries(self) -> list[Delivery]:
        return deliveries(self.entries)

    @cached_property
    def clocks(self) -> ServerClocks:
        return ServerClocks(self.entries)

    @cached_property
    def losses(self) -> Losses:
        return Losses(self.entries)

    @cached_property
    def deaths(self) -> list[Entry]:
        """Those of relays."""
        return [entry for entry in self.entries if entry["kind"] == "death"]

    # ------------------------------------------------------------------------ lost

    @cached_property
    def missing(self) -> dict[str, Call]:
        """Timers that were to be delivered by the last call that was answered OK, and were not; and that
        call."""
        handled: dict[str, list[Delivery]] = defaultdict(list)
        for each in self.deliveries:
            if each.outcome == "ack":
                handled[each.id].append(each)
        found = {}
        for name, calls in self.calls.of_timers.items():
            last = next((call for call in reversed(calls) if not call.open), None)
            if last is not None and last.what != "cancel" and not _is_met(calls, last, handled[name]):
                found[name] = last
        return found

    @property
    def waiting(self) -> list[str]:
        """Those of the missing ones that may wait for a retry: a handler has given them back."""
        last = {each.id: each.outcome for each in self.deliveries}
        return [name for name in self.missing if last.get(name) == "nack"]

    @cached_property
    def lost(self) -> list[str]:
        """Those of the missing ones that no loss explains."""
        return [name for name, call in self.missing.items() if not self.losses.explain(call.acknowledged)]

    # ----------------------------------------------------------------------- early

    @cached_property
    def early(self) -> list[Delivery]:
        """Deliveries of which no master's clock can have shown the due time since they were asked for."""
        return [each for each in self.deliveries if self._is_early(each)]

    def _is_early(self, delivery: Delivery) -> bool:
        call = self._call_of(delivery)
        due = delivery.due if call is None or call.due is None else max(call.due, delivery.due)
        since = call.tries[0] if call else self._put(delivery)
        return due / SECOND > self.clocks.latest(delivery.begins, since) + TOLERANCE

    def _call_of(self, delivery: Delivery) -> Call | None:
        return self._calls.get((delivery.id, delivery.n))

    @cached_property
    def _calls(self) -> dict[tuple[str, int], Call]:
        """The calls about timers, by timer and intent."""
        return {(call.id, call.n): call for calls in self.calls.of_timers.values() for call in calls}

    def _put(self, delivery: Delivery) -> float:
        """When the recurrence was put that the delivery is of."""
        calls = self.calls.of_recurrences.get(delivery.id.partition("@")[0])
        return calls[0].tries[0] if calls else delivery.begins

    # ---------------------------------------------------------------------- undone

    @cached_property
    def overtaken(self) -> list[tuple[Delivery, Call]]:
        """Deliveries of an old intent that were claimed when a newer one had been acknowledged; and that."""
        return [(each, by) for each in self.deliveries if (by := self._overtaken_by(each)) is not None]

    def _overtaken_by(self, delivery: Delivery) -> Call | None:
        if self.calls.redriven.get(delivery.id, delivery.begins) < delivery.begins:
            return None  # a person has brought back an old intent
        newer = [
            call
            for call in self.calls.of_timers.get(delivery.id, [])
            if call.n > delivery.n and call.acknowledged < delivery.begins
        ]
        return next((each for each in newer if self._claimed_after(delivery, each.acknowledged)), None)

    def _claimed_after(self, delivery: Delivery, moment: float) -> bool:
        """Whether it was claimed after a moment (monotonic seconds), for sure: the lease that it carries says
        when, and no claim is older than the due time."""
        call = self._call_of(delivery)
        claimed = delivery.deadline / SECOND - self.lease_ttl
        not_before = max(claimed, call.due / SECOND if call and call.due else claimed)
        return not_before > self.clocks.latest(moment) + TOLERANCE

    @cached_property
    def undone(self) -> list[tuple[Delivery, Call]]:
        """Those that no loss explains: one of the newer intent, before the old one was claimed."""
        return [
            (each, by)
            for each, by in self.overtaken
            if not self.losses.explain(by.acknowledged, self._claimed(each))
        ]

    @cached_property
    def ghosts(self) -> list[tuple[Delivery, Delivery]]:
        """What came of an earlier try of a call after that had been answered OK: a first delivery of another
        occurrence of its intent, with that of the occurrence before.

        A timer has one occurrence at a time, which is named as it is claimed first. So another one that is
        claimed later was stored later, and here this was after the answer. Only a server that has lost a
        claim gives an occurrence another name; nobody waits until a claim is durable.
        """
        return [
            (later, earlier)
            for call, of_one in self._occurrences
            for earlier, later in pairwise(of_one)
            if self._claimed_after(earlier, call.acknowledged)
            and self._claimed_after(later, earlier.begins)
            and not self.losses.between(self._claimed(earlier), self._claimed(later))
        ]

    @property
    def _occurrences(self) -> list[tuple[Call, list[Delivery]]]:
        """The first delivery of each occurrence of a call about a timer, by their begins."""
        first: dict[tuple[str, int], dict[str, Delivery]] = defaultdict(dict)
        for each in self.deliveries:
            first[each.id, each.n].setdefault(each.occurrence, each)
        return [(self._calls[key], list(each.values())) for key, each in first.items() if key in self._calls]

    @cached_property
    def unasked(self) -> list[Delivery]:
        """Deliveries of intents that nobody has asked for."""
        known = self.calls.of_recurrences.keys()
        return [
            each
            for each in self.deliveries
            if self._call_of(each) is None and each.id.partition("@")[0] not in known
        ]

    # ------------------------------------------------------------------- not counted

    @cached_property
    def repeated(self) -> list[tuple[Delivery, Delivery]]:
        """Attempts whose number came again, each with the delivery that has it. One that began when that was
        claimed already, as where a lease was lost, can't have counted for it."""
        return [
            (earlier, later)
            for earlier, later in uncounted(self.deliveries)
            if self._claimed(later) > earlier.begins
        ]

    @cached_property
    def uncounted(self) -> list[Delivery]:
        """Attempts that were not counted, and whose receipt was lost neither with its relay nor with a
        server, and could be written because none was away and no line was broken."""
        return [
            earlier
            for earlier, later in self.repeated
            if not self._died_soon(earlier)
            and not self._lost_by_server(earlier, later)
            and not self._kept_away(earlier.begins, min(self._claimed(later), earlier.begins + RECEIPT))
        ]

    def _kept_away(self, since: float, until: float) -> bool:
        """Whether a receipt may not have come to a server between these."""
        return self.clocks.away(since, until) or any(
            begins <= until and ends >= since for begins, ends in self.broken_lines
        )

    @cached_property
    def broken_lines(self) -> list[tuple[float, float]]:
        """From when to when a line did not pass everything as it came. The nemesis strikes once at a time."""
        names = {fault.name for fault in LINES}
        struck = [
            each for each in self.entries if each["kind"] in ("strike", "heal") and each["fault"] in names
        ]
        return [
            (strike["at"], heal["at"])
            for strike, heal in pairwise(struck)
            if (strike["kind"], heal["kind"]) == ("strike", "heal")
        ]

    def _claimed(self, delivery: Delivery) -> float:
        """When it was claimed (monotonic)."""
        return self.clocks.monotonic(delivery.deadline / SECOND - self.lease_ttl)

    def _lost_by_server(self, earlier: Delivery, later: Delivery) -> bool:
        """Whether a server may have lost the receipt, or the claim."""
        claimed = self._claimed(earlier)
        return self.losses.between(claimed, self._claimed(later), earlier.begins - claimed + RECEIPT)

    def _died_soon(self, delivery: Delivery) -> bool:
        """Whether its relay died before it had surely written down the receipt."""
        return any(
            delivery.by == f"of-{entry['relay']}" and 0 <= entry["at"] - delivery.begins < RECEIPT
            for entry in self.deaths
        )

    # ----------------------------------------------------------------- recurrences

    @cached_property
    def instants(self) -> list[Instants]:
        return instants(self.calls.of_recurrences, self.deliveries, self.losses, self._claimed)

    # --------------------------------------------------------------------- verdict

    @property
    def is_over(self) -> bool:
        """Whether nothing is waited for any more."""
        return not self.missing and not any(each.lost for each in self.instants)

    @cached_property
    def verdict(self) -> Verdict:
        """The columns of the row."""
        again = redeliveries(self.deliveries, self.deaths)
        asked = [entry["at"] for entry in self.entries if entry["kind"] == "ask"]
        timers = self.calls.of_timers.values()
        return Verdict(
            acknowledged=self.calls.acknowledged,
            timers=sum(any(not each.open for each in calls) for calls in timers),
            changes=sum(not each.open for calls in timers for each in calls[1:]),
            deliveries=len(self.deliveries),
            lost=len(self.lost),
            lost_explained=len(self.missing) - len(self.lost) + sum(each.forgotten for each in self.instants),
            early=len(self.early),
            undone=len(self.undone) + len(self.ghosts) + len(self.unasked),
            undone_explained=len(self.overtaken) - len(self.undone),
            twice=twice(self.deliveries),
            by_hand=sum(entry["kind"] == "by hand" for entry in self.entries),
            uncounted=len(self.uncounted),
            uncounted_explained=len(self.repeated) - len(self.uncounted),
            overcounted=overcounted(self.deliveries),
            stretch=longest_stretch(self.deliveries, max(asked, default=0.0)),
            redelivered=sum(map(len, again)),
            redelivery_first=max((each[0] for each in again), default=0.0),
            redelivery=max((each[-1] for each in again), default=0.0),
            instants=sum(len(each.wanted) for each in self.instants),
            instants_lost=sum(each.lost for each in self.instants),
            instants_double=sum(each.double for each in self.instants),
            lags=self.losses.lags,
            errors=dict(self.calls.errors),
            examples=self._examples(),
        )

    def _examples(self) -> list[str]:
        return [
            *(f"lost: {name}, {self.missing[name]}" for name in self.lost[:3]),
            *(f"early: {each}" for each in self.early[:3]),
            *(f"undone: {each}, after {by}" for each, by in self.undone[:3]),
            *(f"an earlier try acted: {each}, after {before}" for each, before in self.ghosts[:3]),
            *(f"unasked: {each}" for each in self.unasked[:3]),
            *(f"not counted: {each}" for each in self.uncounted[:3]),
            *(f"instants lost: {each.missing}" for each in self.instants if each.lost),
        ]


def _is_met(calls: Sequence[Call], last: Call, handled: Sequence[Delivery]) -> bool:
    """Whether the last acknowledged call was met: by its own delivery, which begins after it was stored, or
    by what came of a later call of which nobody heard whether it has acted."""
    later = {call.n for call in calls if call.n > last.n}
    if any(call.what == "cancel" for call in calls if call.n in later):
        return True
    return any((each.n == last.n and each.begins >= last.stored_since) or each.n in later for each in handled)
