"""What handlers saw."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from chaos.ledger import Entry


@dataclass
class Delivery:
    """One call of a handler. Times are monotonic seconds, `due` and `deadline` microseconds since 1970."""

    id: str
    n: int
    by: str
    occurrence: str
    attempt: int
    due: int
    deadline: int
    """The lease's end when it was claimed."""
    begins: float
    ends: float = math.inf
    outcome: str = ""
    """`ack`, `nack`, `reject`; empty if the handler did not come to its end."""


def deliveries(entries: Iterable[Entry]) -> list[Delivery]:
    """All of them, by their begins. An end belongs to the last begin of the same attempt at the same
    application."""
    found: list[Delivery] = []
    running: dict[tuple[str, str, str, int], Delivery] = {}
    for entry in entries:
        if entry["kind"] not in ("begin", "end"):
            continue
        key = entry["by"], entry["id"], entry["occurrence"], entry["attempt"]
        if entry["kind"] == "begin":
            delivery = Delivery(
                entry["id"],
                entry["n"],
                entry["by"],
                entry["occurrence"],
                entry["attempt"],
                entry["due"],
                entry["deadline"],
                entry["at"],
            )
            found.append(delivery)
            running[key] = delivery
        else:
            running[key].ends, running[key].outcome = entry["at"], entry["outcome"]
    return found


def by_occurrence(found: Iterable[Delivery]) -> dict[tuple[str, str], list[Delivery]]:
    """The deliveries of each occurrence of a timer, by their begins."""
    sorted_out: dict[tuple[str, str], list[Delivery]] = defaultdict(list)
    for each in found:
        sorted_out[each.id, each.occurrence].append(each)
    return sorted_out


def twice(found: Iterable[Delivery]) -> int:
    """How many deliveries were acknowledged again by a handler, which is allowed."""
    return sum(
        max(sum(each.outcome == "ack" for each in of_one) - 1, 0) for of_one in by_occurrence(found).values()
    )


def uncounted(found: Iterable[Delivery]) -> list[tuple[Delivery, Delivery]]:
    """The attempts that were not counted, each with the next delivery of the same occurrence, which tells.
    Two that overlap, as after a relay was stopped, tell nothing of each other."""
    return [
        (earlier, later)
        for earlier, later in successions(found)
        if later.attempt <= earlier.attempt and (earlier.ends < later.begins or earlier.outcome == "")
    ]


def overcounted(found: Iterable[Delivery]) -> int:
    """How many attempts were counted that no handler saw the beginning of. A server may lose a rejection,
    and go on counting; a timer that was redriven begins anew, below what was seen."""
    total = 0
    for of_one in by_occurrence(found).values():
        seen = 0
        for each in of_one:
            seen += 1
            total += each.attempt > seen
            seen = max(seen, each.attempt)
    return total


def successions(found: Iterable[Delivery]) -> Iterator[tuple[Delivery, Delivery]]:
    """Each delivery with the next one of its occurrence, but for those between which it was dead."""
    for of_one in by_occurrence(found).values():
        for earlier, later in pairwise(of_one):
            if earlier.outcome != "reject":
                yield earlier, later


def longest_stretch(found: Sequence[Delivery], until: float) -> float:
    """The longest time (seconds) in which no handler began, between the first delivery and `until`."""
    begins = [each.begins for each in found if each.begins <= until]
    return max((later - earlier for earlier, later in pairwise(begins)), default=0.0)


def redeliveries(found: Iterable[Delivery], deaths: Iterable[Entry]) -> list[list[float]]:
    """Of each death of a relay after which something came again: seconds from there to the next beginning of
    each timer that a handler of its application had begun, and that was not settled with that relay."""
    moments: dict[str, list[float]] = defaultdict(list)
    for death in deaths:
        moments[f"of-{death['relay']}"].append(death["at"])
    again: dict[tuple[str, float], list[float]] = defaultdict(list)
    for earlier, later in successions(found):
        died = next((at for at in moments[earlier.by] if at >= earlier.begins), None)
        if died is not None and died < later.begins and earlier.outcome != "nack":
            again[earlier.by, died].append(later.begins - died)
    return [sorted(each) for each in again.values()]
