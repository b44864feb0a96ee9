"""Relays that claim and settle, while their calls arrive late and replies are lost.

It is a model of promise 11 as relays see it. A claim that was given up takes no lease, since nobody would
hold it. A settlement that was given up ends none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant

from relay.core.instants import SECOND
from relay.core.outcomes import NO_LIMITS, ClaimRequest, Ending, Verb
from relay.core.timers import NewTimer
from relay.store.codec.lease_record import LEASED
from relay.store.server.scripts import Call
from relay.store.timeline.redis_store import ending_words
from relay.store.verbs import timeline
from tests.properties.slow_network import FATES, NETWORK, PICK, QUICK, SlowNetwork, Try, sending, weighted
from tests.worlds.scripts.asking import LEASE
from tests.worlds.scripts.bench import GRACE, Bench

IDS = ("a", "é", "z")
VERBS = (Verb.ACK, Verb.NACK, Verb.RELEASE)

Token = tuple[str, bytes]
"""A timer's id, and the nonce under which it is leased."""


@dataclass(eq=False)
class Claiming:
    """A relay's claim."""

    request: ClaimRequest
    call: Call[Any]


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
    ) -> type[LateDeliveries]:
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
        self.lost: list[Try[Asked] | None] = [None, None]
        """Of each relay, the claim that had no answer, until it has asked what became of it."""
        self.holds: set[Token] = set()
        """The leases that a relay knows, until it has heard of their end."""
        self.open: dict[Settling, int] = {}
        """Settlements without an answer, and until when the newest try may act."""

    # ---------------------------------------------------------------------------- relays

    def schedule(self, ids: Sequence[str]) -> None:
        """By a caller whose call takes no time. They are due at once, and leases on them are over."""
        timers = [NewTimer(each, b"", self.bench.now) for each in ids]
        self.runner.run(self.bench.store.schedule(self.bench.topic, timers))

    def claim(self, limit: int, *, relay: int, **how: Any) -> None:
        """A relay has one claim at a time."""
        if self.lost[relay] is None:
            request = ClaimRequest(limit=limit, lease=LEASE, nonce=next(self.nonces), max_bytes=1 << 20)
            call = timeline.claim(self.bench.topic, request, park_grace=GRACE, at_once=10)
            asked = Claiming(request, call)
            sent = self.send(asked, call, relay=relay, **how)
            if how["fate"] != "answered":
                self.lost[relay] = sent

    def find(self, relay: int) -> None:
        """What the claim without an answer has taken, once it can't act any more."""
        if (sent := self.lost[relay]) is not None and isinstance(sent.asked, Claiming):
            self.pass_by(sent.deadline + 1 - self.monotonic)
            clock, request = self.relays[relay].clock, sent.asked.request
            since, until = clock.at(sent.began / SECOND), clock.at(sent.deadline / SECOND)
            finding = self.bench.store.claimed(self.bench.topic, request, since=since, until=until)
            found = self.runner.run(finding)
            self.holds |= {(timer_id, request.nonce) for timer_id in found.timers.timer_ids}
            self.lost[relay] = None

    def settle(self, pick: int, verb: Verb, **how: Any) -> None:
        """One that a relay holds, and has not begun to settle."""
        tokens = sorted(self.holds - {each.token for each in self.open})
        if tokens:
            timer_id, nonce = tokens[pick % len(tokens)]
            args = (nonce, *ending_words(Ending(verb)), 1, timer_id)
            settling = Settling((timer_id, nonce), timeline.settle(self.bench.topic, NO_LIMITS, args))
            self._settle(settling, **how)

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
        asked, before = sent.asked, self._leased()
        ran = self.execute(sent)
        assert ran.done or not self.in_time(sent), "there was time enough"
        after = self._leased()
        if isinstance(asked, Settling):
            others = before - {asked.token}
            assert after - {asked.token} == others, "a settlement has ended another lease"
            if self.is_over(sent):
                assert after == before, f"a ghost: {asked.token} was settled"
        if answered and ran.done:
            self._answered(asked, ran.reply)
        return ran.done

    def _answered(self, asked: Asked, reply: Any) -> None:
        if isinstance(asked, Settling):
            self.holds.discard(asked.token)
        else:
            taken = reply.timers[::3]
            self.holds |= {(timer_id.decode(), asked.request.nonce) for timer_id in taken}

    # ----------------------------------------------------------------------- the promise

    def _leased(self) -> set[Token]:
        """The leases that last."""
        state, now = self.bench.state(), self.bench.now / SECOND
        found = {timer_id: state.of(timer_id) for timer_id in IDS}
        return {
            (timer_id, record.nonce)
            for timer_id, (at, _, record) in found.items()
            if at is not None and at > now and record and record.state == LEASED and record.score == at
        }

    @invariant()
    def no_ghosts(self) -> None:
        """Somebody holds each lease, or has still to ask for it."""
        type(self).steps += 1
        asked = {sent.asked.request.nonce for sent in self.lost if sent and isinstance(sent.asked, Claiming)}
        for token in self._leased():
            assert token in self.holds or token[1] in asked, f"a ghost: nobody holds {token}"
