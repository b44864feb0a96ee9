"""Relays that claim and settle, while their calls arrive late and replies are lost.

It is a model of promise 11 as relays see it. A claim that was given up takes no lease, since nobody would
hold it. A settlement that was given up ends none. It is the same wherever deliveries come from: see
`late_sources.py`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, Self

from hypothesis import strategies as st
from hypothesis.stateful import invariant

from relay.core.instants import SECOND
from relay.core.outcomes import ClaimRequest, Verb
from relay.core.timers import NewTimer
from relay.store.server.scripts import Call
from tests.properties.slow_network import FATES, NETWORK, PICK, QUICK, SlowNetwork, Try, sending, weighted
from tests.worlds.scripts.asking import LEASE
from tests.worlds.scripts.bench import Bench

IDS = ("a", "é", "z")
VERBS = (Verb.ACK, Verb.NACK, Verb.RELEASE)


class Token(NamedTuple):
    """A lease: on what, and by what its holder knows that it is his."""

    what: str
    owner: bytes


@dataclass(eq=False)
class Claiming:
    """A relay's claim; the leases that it takes are `owner`'s."""

    request: ClaimRequest
    call: Call[Any]
    owner: bytes


@dataclass(eq=False)
class Settling:
    """A relay's settlement of one lease, in however many tries."""

    token: Token
    call: Call[Any]


Asked = Claiming | Settling


class LateDeliveries(SlowNetwork[Asked]):
    """One topic. `of` binds it to a server, whose clock nobody sets: what that costs is modelled in
    `LateCalls`."""

    @classmethod
    def of(
        cls,
        bench: Bench,
        runner: asyncio.Runner,
        *,
        late: Container[str] = ("claim", "settle"),
    ) -> type[Self]:
        """The machine on a topic of `bench`; `late`: which calls may be held on their way."""
        claiming, settling = (sending(FATES if each in late else QUICK) for each in ("claim", "settle"))
        ids = st.lists(st.sampled_from(IDS), min_size=1, unique=True)
        verbs = st.sampled_from(VERBS)
        actions = weighted(
            (
                (4, "schedule", {"ids": ids}),
                (6, "claim", {"limit": st.sampled_from([1, 10]), **claiming}),
                (4, "find", {"relay": st.integers(0, 1)}),
                (6, "settle", {"pick": PICK, "verb": verbs, **settling}),
                (3, "again", {"pick": PICK, **settling}),
                *NETWORK,
            )
        )
        return cls.bound(bench, runner, actions)

    def __init__(self) -> None:
        super().__init__()
        self.nonces: Iterator[bytes] = (n.to_bytes(16, "big") for n in count(1))
        self.lost: list[tuple[Claiming, Try[Asked]] | None] = [None, None]
        """Of each relay, the claim that had no answer, until it has asked what became of it."""
        self.holds: set[Token] = set()
        """The leases that a relay knows, until it has heard of their end."""
        self.open: dict[Settling, int] = {}
        """Settlements without an answer, and until when the newest try may act."""

    # ------------------------------------------------------------------ where they come from

    @abstractmethod
    def claiming(self, request: ClaimRequest, relay: int) -> Claiming:
        """A claim by this relay."""

    @abstractmethod
    def taken(self, claiming: Claiming, reply: Any) -> set[Token]:
        """What its reply says."""

    @abstractmethod
    def found(self, claiming: Claiming, relay: int, since: int, until: int) -> set[Token]:
        """What it has taken though its reply was lost, as Redis tells the relay."""

    @abstractmethod
    def settling(self, token: Token, verb: Verb) -> Call[Any]:
        """The end of a lease."""

    @abstractmethod
    def leased(self) -> set[Token]:
        """The leases that last."""

    # ---------------------------------------------------------------------------- relays

    def schedule(self, ids: Sequence[str]) -> None:
        """By a caller whose call takes no time. They are due at once."""
        timers = [NewTimer(each, b"", self.bench.now) for each in ids]
        self.runner.run(self.bench.store.schedule(self.bench.topic, timers))

    def claim(self, limit: int, *, relay: int, **how: Any) -> None:
        """A relay has one claim at a time."""
        if self.lost[relay] is None:
            request = ClaimRequest(limit=limit, lease=LEASE, nonce=next(self.nonces), max_bytes=1 << 20)
            asked = self.claiming(request, relay)
            sent = self.send(asked, asked.call, relay=relay, **how)
            if how["fate"] != "answered":
                self.lost[relay] = asked, sent

    def find(self, relay: int) -> None:
        """What the claim without an answer has taken, once it can't act any more."""
        if (lost := self.lost[relay]) is not None:
            asked, sent = lost
            self.pass_by(sent.deadline + 1 - self.monotonic)
            clock = self.relays[relay].clock
            since, until = clock.at(sent.began / SECOND), clock.at(sent.deadline / SECOND)
            self.holds |= self.found(asked, relay, since, until)
            self.lost[relay] = None

    def settle(self, pick: int, verb: Verb, **how: Any) -> None:
        """One that a relay holds, and has not begun to settle."""
        tokens = sorted(self.holds - {each.token for each in self.open})
        if tokens:
            token = tokens[pick % len(tokens)]
            self._settle(Settling(token, self.settling(token, verb)), **how)

    def again(self, pick: int, **how: Any) -> None:
        """The next try of a settlement without an answer, once the one before can't act any more."""
        if self.open:
            settling = list(self.open)[pick % len(self.open)]
            self.pass_by(self.open[settling] + 1 - self.monotonic)
            self._settle(settling, **how)

    def _settle(self, settling: Settling, **how: Any) -> None:
        self.open[settling] = self.send(settling, settling.call, **how).deadline
        if settling.token not in self.holds:
            del self.open[settling]

    # ------------------------------------------------------------- what Redis makes of it

    def run(self, sent: Try[Asked], *, answered: bool) -> bool:
        """As in `SlowNetwork`."""
        asked, before = sent.asked, self.leased()
        ran = self.execute(sent)
        assert ran.done or not self.in_time(sent), "there was time enough"
        if isinstance(asked, Settling):
            after = self.leased()
            assert after - {asked.token} == before - {asked.token}, "a settlement has ended another lease"
            assert after == before or not self.is_over(sent), f"a ghost: {asked.token} was settled"
        if answered and ran.done:
            if isinstance(asked, Settling):
                self.holds.discard(asked.token)
            else:
                self.holds |= self.taken(asked, ran.reply)
        return ran.done

    # ----------------------------------------------------------------------- the promise

    @invariant()
    def no_ghosts(self) -> None:
        """Somebody holds each lease, or has still to ask for it."""
        type(self).steps += 1
        asked = {claiming.owner for claiming, _ in filter(None, self.lost)}
        for token in self.leased():
            assert token in self.holds or token.owner in asked, f"a ghost: nobody holds {token}"
