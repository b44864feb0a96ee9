"""Where late deliveries come from: a timeline, and a group of a stream."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from relay.core.instants import SECOND
from relay.core.outcomes import NO_LIMITS, ClaimRequest, Ending, Verb
from relay.store.codec.lease_record import LEASED
from relay.store.dispatch.stream_groups import FIELDS, START
from relay.store.server.scripts import Call
from relay.store.timeline.redis_store import ending_words
from relay.store.verbs import stream, timeline
from tests.properties.late_deliveries import IDS, Claiming, LateDeliveries, Token
from tests.worlds.scripts.asking import LEASE
from tests.worlds.scripts.bench import GRACE
from tests.worlds.scripts.desk import Desk

GROUP = "billing"


class OfATimeline(LateDeliveries):
    """A lease is a timer's, and its owner the claim's nonce."""

    def claiming(self, request: ClaimRequest, relay: int) -> Claiming:
        """As in `LateDeliveries`; so are all here."""
        call = timeline.claim(self.bench.topic, request, park_grace=GRACE, at_once=10)
        return Claiming(request, call, request.nonce)

    def taken(self, claiming: Claiming, reply: Any) -> set[Token]:
        return {Token(timer_id.decode(), claiming.owner) for timer_id in reply.timers[::3]}

    def found(self, claiming: Claiming, relay: int, since: int, until: int) -> set[Token]:
        finding = self.bench.store.claimed(self.bench.topic, claiming.request, since=since, until=until)
        timers = self.runner.run(finding).timers
        return {Token(timer_id, claiming.owner) for timer_id in timers.timer_ids}

    def settling(self, token: Token, verb: Verb) -> Call[Any]:
        args = (token.owner, *ending_words(Ending(verb)), 1, token.what)
        return timeline.settle(self.bench.topic, NO_LIMITS, args)

    def leased(self) -> set[Token]:
        state, now = self.bench.state(), self.bench.now / SECOND
        found = {timer_id: state.of(timer_id) for timer_id in IDS}
        return {
            Token(timer_id, record.nonce)
            for timer_id, (at, _, record) in found.items()
            if at is not None and at > now and record and record.state == LEASED and record.score == at
        }


class OfAGroup(LateDeliveries):
    """A lease is an entry's, with how often that was delivered, and its owner a consumer. Entries are as idle
    as the test's clock says."""

    bench: ClassVar[Desk]

    def __init__(self) -> None:
        super().__init__()
        raw, key = self.bench.raw, self.bench.redis.keys.key
        self.retries, group = self.bench.keys_of(GROUP)
        latest = (
            key("latest", self.bench.topic, group=GROUP, consumer=_reader(relay).name) for relay in (0, 1)
        )
        raw.delete(self.bench.stream, self.retries, group, *latest)

    def claiming(self, request: ClaimRequest, relay: int) -> Claiming:
        options: Any = {"park_grace": GRACE, "cursor": START, "reads_new": True, "at_once": 10, "begin": "$"}
        call = stream.claim(self.bench.topic, _reader(relay), request, **options)
        return Claiming(request, call, _reader(relay).name.encode())

    def taken(self, claiming: Claiming, reply: Any) -> set[Token]:
        flat = reply.timers
        pairs = zip(flat[::FIELDS], flat[1::FIELDS], strict=True)
        return {Token(_entry(entry, deliveries), claiming.owner) for entry, deliveries in pairs}

    def found(self, claiming: Claiming, relay: int, since: int, until: int) -> set[Token]:
        call = stream.claimed(self.bench.topic, _reader(relay), claiming.request.nonce)
        return self.taken(claiming, self.runner.run(self.bench.redis.call(call)))

    def settling(self, token: Token, verb: Verb) -> Call[Any]:
        args = (*token.what.split(), *ending_words(Ending(verb)))
        reader = stream.Consumer(GROUP, token.owner.decode())
        return stream.settle(self.bench.topic, reader, LEASE, NO_LIMITS, args)

    def leased(self) -> set[Token]:
        """Those that end within a second are left out: the server's clock goes on while the test's stands."""
        waiting = set(cast("list[bytes]", self.bench.raw.zrange(self.retries, 0, -1)))
        return {
            Token(_entry(each["message_id"], each["times_delivered"]), each["consumer"])
            for each in self._pending()
            if each["message_id"] not in waiting and each["time_since_delivered"] < (LEASE - SECOND) // 1000
        }

    def _pending(self) -> list[Any]:
        if not self.bench.raw.exists(self.bench.stream):
            return []
        return cast("list[Any]", self.bench.raw.xpending_range(self.bench.stream, GROUP, "-", "+", 1000))

    def pass_by(self, duration: int) -> None:
        super().pass_by(duration)
        if duration < 1000:
            return
        for each in self._pending():
            self.bench.raw.xclaim(
                *(self.bench.stream, GROUP, each["consumer"].decode(), 0, [each["message_id"]]),
                idle=each["time_since_delivered"] + duration // 1000,
                justid=True,
            )


def _reader(relay: int) -> stream.Consumer:
    return stream.Consumer(GROUP, f"relay-{relay}")


def _entry(entry: bytes, deliveries: int) -> str:
    return f"{entry.decode()} {deliveries}"
