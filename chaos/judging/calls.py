"""What callers asked for, call by call, each in however many tries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from chaos.ledger import Entry


@dataclass
class Call:
    """One intent about one timer. A call that was repeated is one call; times are monotonic seconds."""

    id: str
    n: int
    what: str
    due: int | None = None
    """Microseconds since 1970."""
    wall: float = 0.0
    """When the first try began, by the wall clock (unix seconds)."""
    tries: list[float] = field(default_factory=list)
    """When each began."""
    acknowledged: float = math.inf
    """When it was answered OK."""
    stored_since: float = -math.inf
    """When the last try began that was answered OK: what it stored was stored after that."""
    next: float | None = None
    """Of a recurrence: the next instant by the answer (unix seconds)."""

    @property
    def open(self) -> bool:
        """Whether it was never answered OK, so that it may have acted or not."""
        return self.acknowledged == math.inf


class Calls:
    """All calls, by timer and in their order, and the errors that their tries ended with."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        found: dict[tuple[str, int], Call] = {}
        self.errors: Counter[str] = Counter()
        self.redriven: dict[str, float] = {}
        """When a redrive of a timer was first asked for."""
        self.redrives = 0
        for entry in entries:
            if entry["kind"] == "ask":
                key = entry["id"], entry["n"]
                call = found.setdefault(key, Call(*key, entry["what"], entry.get("due"), entry["wall"]))
                call.tries.append(entry["at"])
            elif entry["kind"] == "answer" and not entry["ok"]:
                self.errors[entry["code"]] += 1
            elif entry["kind"] == "answer":
                call = found[entry["id"], entry["n"]]
                call.acknowledged = entry["at"]
                call.stored_since = call.tries[-1]
                call.next = entry.get("next")
            elif entry["kind"] == "redrive":
                for name in entry["ids"]:
                    self.redriven.setdefault(name, entry["at"])
            elif entry["kind"] == "redriven":
                self.redrives += sum(said == "redriven" for said in entry["results"].values())
        self._all = [found[key] for key in sorted(found)]
        self.of_timers: dict[str, list[Call]] = {}
        """By timer."""
        self.of_recurrences: dict[str, list[Call]] = {}
        """By recurrence."""
        for call in self._all:
            kind = self.of_recurrences if call.what in ("put", "pause") else self.of_timers
            kind.setdefault(call.id, []).append(call)

    @property
    def acknowledged(self) -> int:
        """How many calls were answered OK, and how many dead letters redriven."""
        return sum(not call.open for call in self._all) + self.redrives
