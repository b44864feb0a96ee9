"""Ends of leases as most tests write them: one timer each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from relay.core.outcomes import Again, Ending, Reason, Settlement, Verb
from relay.core.timers import Content, NewTimer


def end_of(
    timer_id: str,
    nonce: bytes,
    verb: Verb,
    retry_after: int | None = None,
    received: bool = False,
    broken: bool = False,
    suspect: bool = False,
    unsent: bool = False,
    reason: Reason = Reason.REJECTED,
    error: str = "",
    again: NewTimer | None = None,
    *,
    new_content: bool = False,
) -> Settlement:
    """The settlement of one timer. Its nonce is its proof, too, where leases are proven by that."""
    told = again and Again(again.due, again.delay, Content.of(again) if new_content else None)
    ending = Ending(verb, retry_after, received, broken, suspect, unsent, reason, error, told)
    return Settlement(nonce, ending, [timer_id], [nonce])


@dataclass(frozen=True, kw_only=True)
class End(Ending):
    """What a settlement says of one of its timers. Its nonce is what proves its lease."""

    timer_id: str
    nonce: bytes


def one_by_one(settlements: Iterable[Settlement]) -> Iterator[End]:
    """All timers of settlements."""
    for each in settlements:
        for timer_id, nonce in zip(
            each.timer_ids, each.proofs or [each.nonce] * len(each.timer_ids), strict=True
        ):
            told = {field.name: getattr(each.ending, field.name) for field in fields(each.ending)}
            yield End(**told, timer_id=timer_id, nonce=nonce)
