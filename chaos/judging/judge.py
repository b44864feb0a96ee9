"""The judge: what became of a run, from the ledgers of callers, handlers and the nemesis alone; see 0098."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

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
        calls = self.calls.of_timers.get(delivery.id, [])
        return next((call for call in calls if call.n == delivery.n), None)

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
        call = self._call_of(delivery)
        claimed = delivery.deadline / SECOND - self.lease_ttl
        not_before = max(claimed, call.due / SECOND if call and call.due else claimed)
        return next(
            (each for each in newer if not_before > self.clocks.latest(each.acknowledged) + TOLERANCE),
            None,
        )

    @cached_property
    def undone(self) -> list[tuple[Delivery, Call]]:
        """Those that no loss explains."""
        return [pair for pair in self.overtaken if not self.losses.explain(pair[1].acknowledged)]

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
        server, and could be written because none was away."""
        return [
            earlier
            for earlier, later in self.repeated
            if not self._died_soon(earlier)
            and not self.losses.between(self._claimed(earlier), self._claimed(later))
            and not self.clocks.away(earlier.begins, self._claimed(later))
        ]

    def _claimed(self, delivery: Delivery) -> float:
        """When it was claimed (monotonic)."""
        return self.clocks.monotonic(delivery.deadline / SECOND - self.lease_ttl)

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
            lost_explained=len(self.missing) - len(self.lost),
            early=len(self.early),
            undone=len(self.undone) + len(self.unasked),
            undone_explained=len(self.overtaken) - len(self.undone),
            twice=twice(self.deliveries),
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
            *(f"unasked: {each}" for each in self.unasked[:3]),
            *(f"not counted: {each}" for each in self.uncounted[:3]),
            *(f"instants lost: {each.missing}" for each in self.instants if each.lost),
        ]


@dataclass(frozen=True)
class Verdict:
    """The columns of a row. What a loss explains, as the nemesis measured it, is counted apart."""

    acknowledged: int
    """Calls that were answered OK."""
    timers: int
    """Timers with such a call."""
    changes: int
    """Moves and cancels that were answered OK."""
    deliveries: int
    lost: int
    lost_explained: int
    early: int
    undone: int
    """Old intents that were delivered after a newer one was acknowledged, and what nobody had asked for."""
    undone_explained: int
    twice: int
    uncounted: int
    uncounted_explained: int
    """Attempts whose receipt may have been lost with the relay that held it, or with a server."""
    overcounted: int
    stretch: float
    """The longest time without a delivery (seconds)."""
    redelivered: int
    redelivery_first: float
    """The longest time from a relay's death to the first delivery of what it held (seconds)."""
    redelivery: float
    """The same to the last one. What was in flight comes one by one, see 0003."""
    instants: int
    instants_lost: int
    instants_double: int
    lags: dict[str, float]
    """The longest time (seconds) for which what servers answered was not safe when it was lost, by its
    reason; see `chaos.judging.losses`."""
    errors: dict[str, int]
    examples: list[str] = field(default_factory=list)

    @property
    def broken(self) -> int:
        """How many promises were broken that hold whatever happens."""
        return self.lost + self.early + self.undone + self.instants_lost + self.instants_double


def _is_met(calls: Sequence[Call], last: Call, handled: Sequence[Delivery]) -> bool:
    """Whether the last acknowledged call was met: by its own delivery, which begins after it was stored, or
    by what came of a later call of which nobody heard whether it has acted."""
    later = {call.n for call in calls if call.n > last.n}
    if any(call.what == "cancel" for call in calls if call.n in later):
        return True
    return any((each.n == last.n and each.begins >= last.stored_since) or each.n in later for each in handled)
