"""Ledgers by hand: what a caller, a handler and the nemesis would have written down."""

from __future__ import annotations

from typing import Any, Self

from chaos.judging.judge import Judge
from chaos.ledger import Entry
from relay.core.instants import SECOND

AHEAD = 1_000.0
"""By how much the server's clock is ahead of the monotonic one in these stories (seconds)."""
TTL = 2.0
"""The lease."""
CLAIM = 0.01
"""Seconds from a claim to the beginning of its handler."""


class Story:
    """Each method appends what happens at a moment (monotonic seconds) and returns the story. Due times and
    claims are said by the monotonic clock, too, and told by the server's."""

    def __init__(self, *, until: float = 60.0) -> None:
        self.entries: list[Entry] = []
        for n in range(4 * int(until) + 1):
            self.clock(n / 4)

    def write(self, kind: str, at: float, **fields: Any) -> Self:
        self.entries.append({"kind": kind, "at": at, **fields})
        return self

    def clock(
        self, at: float, *, ahead: float = AHEAD, took: float = 0.0002, port: int = 1, master: bool = True
    ) -> Self:
        time = at - took / 2 + ahead
        return self.write("clock", at, port=port, time=time, sent=at - took, heard=at, master=master)

    def ask(self, at: float, n: int = 1, due: float = 5.0, *, id: str = "a", what: str = "schedule") -> Self:  # noqa: A002
        when = None if what == "cancel" else micros(due)
        return self.write("ask", at, wall=at + AHEAD, id=id, n=n, what=what, due=when)

    def ok(self, at: float, n: int = 1, *, id: str = "a", next: float | None = None) -> Self:  # noqa: A002
        return self.write("answer", at, id=id, n=n, ok=True, next=next)

    def error(self, at: float, n: int = 1, *, id: str = "a", code: str = "UNAVAILABLE") -> Self:  # noqa: A002
        return self.write("answer", at, id=id, n=n, ok=False, code=code)

    def scheduled(self, at: float, n: int = 1, due: float = 5.0, *, id: str = "a") -> Self:  # noqa: A002
        """A call that is answered OK at this moment."""
        return self.ask(at - 0.01, n, due, id=id).ok(at, n, id=id)

    def cancelled(self, at: float, n: int, *, id: str = "a") -> Self:  # noqa: A002
        return self.ask(at - 0.01, n, id=id, what="cancel").ok(at, n, id=id)

    def begin(
        self,
        at: float,
        n: int = 1,
        due: float = 5.0,
        *,
        id: str = "a",  # noqa: A002
        attempt: int = 1,
        occurrence: str = "",
        claimed: float | None = None,
        by: str = "of-one",
    ) -> Self:
        return self.write(
            "begin",
            at,
            id=id,
            n=n,
            due=micros(due),
            attempt=attempt,
            occurrence=occurrence or f"{id}/{n}",
            deadline=micros((at - CLAIM if claimed is None else claimed) + TTL),
            by=by,
        )

    def handled(self, at: float, n: int = 1, due: float = 5.0, *, outcome: str = "ack", **how: Any) -> Self:
        """A handler that begins at this moment, as in `begin`, and ends 0.01 s later."""
        begun = self.begin(at, n, due, **how).entries[-1]
        return self.write(**{**begun, "kind": "end", "at": at + 0.01, "outcome": outcome})

    def loss(self, safe: float, at: float, *, why: str = "lag") -> Self:
        return self.write("loss", at, safe=safe, why=why, lag=at - safe)

    def away(self, since: float, until: float) -> Self:
        """The server does not answer between these."""
        self.entries = [
            each for each in self.entries if each["kind"] != "clock" or not since < each["at"] < until
        ]
        return self

    def fault(self, name: str, since: float, until: float) -> Self:
        """The nemesis strikes and heals."""
        return self.write("strike", since, fault=name).write("heal", until, fault=name)

    @property
    def judge(self) -> Judge:
        return Judge(sorted(self.entries, key=lambda entry: entry["at"]), TTL)


def micros(at: float) -> int:
    """What the server's clock shows at a moment, in microseconds."""
    return round((at + AHEAD) * SECOND)
