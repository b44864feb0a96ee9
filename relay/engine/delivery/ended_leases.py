"""Leases of one claim that end alike, on their way from a session to the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay.core.outcomes import Ending, Settlement, Verb
from relay.engine.delivery.leases import Leases

if TYPE_CHECKING:
    from relay.engine.delivery.session import Session


@dataclass(slots=True, eq=False, kw_only=True)
class EndedLeases(Settlement):
    """A settlement with the leases that it ends: those at `places`.

    `session` learns which of them it changes nothing for. `tried` says that an earlier try may have written
    it already. `moved_bytes` are the bytes of content that may have to move.
    """

    leases: Leases
    places: Sequence[int]
    moved_bytes: int
    session: Session | None = None
    tried: bool = False

    @classmethod
    def of(
        cls, leases: Leases, places: Sequence[int], ending: Ending, session: Session | None = None
    ) -> EndedLeases:
        """End the leases at these places."""
        timers = leases.timers
        proofs = timers.proofs
        return cls(
            nonce=leases.nonce,
            ending=ending,
            timer_ids=[timers.timer_ids[place] for place in places],
            proofs=[proofs[place] for place in places] if proofs[places[0]] else (),
            leases=leases,
            places=places,
            moved_bytes=_moved_bytes(leases, places, ending),
            session=session,
        )

    def parts(self, most: int) -> Iterator[EndedLeases]:
        """Cut it so that each part moves at most `most` bytes, or ends one lease."""
        places = self.places
        if self.moved_bytes <= most or len(places) == 1:
            yield self
            return
        half = len(places) // 2
        for some in (places[:half], places[half:]):
            yield from EndedLeases.of(self.leases, some, self.ending, self.session).parts(most)


_ACK = Verb.ACK  # a lookup for each is expensive: Python 3.11's enums do it in Python


def _moved_bytes(leases: Leases, places: Sequence[int], ending: Ending) -> int:
    """Return the bytes of new content, and of the content of those that may die: only Redis knows whether a
    NACK or a RELEASE is a death."""
    if ending.verb is _ACK:
        return 0
    if ending.verb is Verb.RESCHEDULE:
        content = ending.again.content if ending.again else None
        return len(content.payload) * len(places) if content else 0
    return sum(leases.sizes[place] for place in places)
