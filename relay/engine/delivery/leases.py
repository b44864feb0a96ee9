"""Leases as objects: the deliveries of one claim as columns, and one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

from relay.core.batch import at
from relay.core.partitions import topic_of
from relay.core.policy import HandlerPolicy
from relay.core.timers import ClaimedTimer, ClaimedTimers, content_size

if TYPE_CHECKING:  # the client's testing borrows leases, and must not load OpenTelemetry by that
    from relay.telemetry.traces.spans import DeliveryTrace

T = TypeVar("T")


@dataclass(slots=True, eq=False, repr=False)
class Leases(Sequence["Lease"]):
    """The exclusive right to deliver some timers of a partition, all from one claim; each is a `Lease`.

    Most of what happens to them happens to all of them at once: they are claimed together, go to one session,
    and go out in one message. So each field is a list with a place for each lease, and `sent` and `sent_at`
    are shared.

    `deadlines` and `silent_until` are instants of the engine's clock (seconds): the end of a lease as far as
    the relay knows, and when a delivery without a sign of life is given up. `deadline_time` is the first
    deadline as the server gave it (microseconds). `dues` are the timers' due times by the engine's clock, as
    exact as the claim's round trip allows. `lost` says that the store called the token stale or the timer
    gone while the delivery was under way. `traces` are the spans of traced deliveries, by their places.
    `sent_at` is the instant of the engine's clock at which they went out, 0.0 until then. `sizes` are the
    approximate bytes of each content. The payloads are dropped once they are written to a stream, or with
    their lease. `handler` is what the handler asks for to which they go.
    """

    topic: str
    partition: str
    timers: ClaimedTimers
    nonce: bytes
    tokens: list[bytes]
    deadline_time: int
    deadlines: list[float]
    silent_until: list[float]
    dues: list[float]
    sizes: list[int]
    received: list[bool]
    lost: list[bool]
    traces: dict[int, DeliveryTrace]
    sent: bool = False
    sent_at: float = 0.0
    handler: HandlerPolicy | None = None

    @classmethod
    def of(
        cls,
        partition: str,
        timers: ClaimedTimers,
        nonce: bytes,
        *,
        deadline_time: int,
        deadline: float,
        silent_until: float,
        epoch: float,
    ) -> Leases:
        """Make leases of the timers of a partition's claim under `nonce`. `epoch` is the engine's clock at
        1970."""
        count = len(timers)
        return cls(
            topic=topic_of(partition),
            partition=partition,
            timers=timers,
            nonce=nonce,
            tokens=[nonce + place.to_bytes(2, "big") for place in range(count)],
            deadline_time=deadline_time,
            deadlines=[deadline] * count,
            silent_until=[silent_until] * count,
            dues=[epoch + due / 1e6 for due in timers.dues],
            sizes=list(map(content_size, timers.payloads, timers.headers)),
            received=[False] * count,
            lost=[False] * count,
            traces={},
        )

    def __iter__(self) -> Iterator[Lease]:
        # This runs in C: `Lease(self, place)` for each would take twice as long.
        return map(partial(tuple.__new__, Lease), zip(repeat(self), range(len(self.tokens))))

    @overload
    def __getitem__(self, place: int) -> Lease: ...
    @overload
    def __getitem__(self, place: slice) -> Leases: ...

    def __getitem__(self, place: int | slice) -> Lease | Leases:
        """Return one lease, or some as leases of their own. A slice of all returns this very object."""
        if isinstance(place, slice):
            whole = place.indices(len(self)) == (0, len(self), 1)
            return self if whole else self._picked(itemgetter(place))
        return Lease(self, range(len(self))[place])

    def only(self, places: Sequence[int]) -> Leases:
        """Return the leases at these places, as leases of their own."""
        return self._picked(at(places))

    def _picked(self, pick: Callable[[Sequence[Any]], list[Any]]) -> Leases:
        traces: dict[int, DeliveryTrace] = {}
        if self.traces:
            picked = enumerate(pick(range(len(self))))
            traces = {place: self.traces[before] for place, before in picked if before in self.traces}
        columns: dict[str, Any] = {name: pick(getattr(self, name)) for name in _COLUMNS}
        return replace(self, timers=self.timers.picked(pick), traces=traces, **columns)

    def __len__(self) -> int:
        return len(self.tokens)

    def without(self, places: Sequence[int]) -> list[Leases]:
        """Return the leases between these places, which come in order, as leases of their own."""
        ends = [-1, *places, len(self)]
        return [self[before + 1 : after] for before, after in pairwise(ends) if after > before + 1]

    def send(self, now: float) -> None:
        """Note that they go out: their spans begin, and their timers' headers name these."""
        self.sent, self.sent_at = True, now
        headers = self.timers.headers
        for place, trace in self.traces.items():
            headers[place] = trace.start(headers[place], now - self.dues[place])

    def drop_payloads(self) -> None:
        """Drop the payloads, which the application has by now: two copies of many would take much memory."""
        self.timers.payloads = [b""] * len(self)


_COLUMNS = ("tokens", "deadlines", "silent_until", "dues", "sizes", "received", "lost")
"""The fields that have a list with a place for each lease."""


def by_claim(some: Iterable[Lease]) -> dict[Leases, list[int]]:
    """Return the places of leases by their claims."""
    groups: dict[Leases, list[int]] = {}
    for leases, place in some:
        groups.setdefault(leases, []).append(place)
    return groups


class _Place(NamedTuple):
    leases: Leases
    place: int


class _Column(Generic[T]):
    """A field of one lease, which a list of its `Leases` holds."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, lease: Lease, owner: type[Lease]) -> T:
        column: list[T] = getattr(lease.leases, self._name)
        return column[lease.place]

    def __set__(self, lease: Lease, value: T) -> None:
        getattr(lease.leases, self._name)[lease.place] = value


class Lease(_Place):
    """The exclusive right to deliver one timer: a place among `Leases`, which hold its fields.

    Two leases are equal if they are the same place. The session may move a lease (`Session.give_up`,
    `Session.tidy`): code that has waited since, and is to note something, asks the session for it again by
    its token.
    """

    __slots__ = ()

    token = _Column[bytes]("tokens")
    deadline = _Column[float]("deadlines")
    silent_until = _Column[float]("silent_until")
    due = _Column[float]("dues")
    size = _Column[int]("sizes")
    received = _Column[bool]("received")
    lost = _Column[bool]("lost")

    def __repr__(self) -> str:
        return f"<Lease {self.topic}/{self.timer_id}>"  # no payload: it may come into a log

    @property
    def topic(self) -> str:
        """The field of its timer."""
        return self.leases.topic

    @property
    def partition(self) -> str:
        """The name of the partition that has its timer."""
        return self.leases.partition

    @property
    def timer(self) -> ClaimedTimer:
        """The timer as it stands, without its payload once that was written to a stream."""
        return self.leases.timers[self.place]

    @property
    def timer_id(self) -> str:
        """The field of its timer. This is quicker than asking the timer."""
        return self.leases.timers.timer_ids[self.place]

    @property
    def attempt(self) -> int:
        """The field of its timer. This is quicker than asking the timer."""
        return self.leases.timers.attempts[self.place]

    @property
    def trace(self) -> DeliveryTrace | None:
        """The span of the delivery, if it has one."""
        return self.leases.traces.get(self.place)

    @property
    def proof(self) -> bytes:
        """The field of its timer; see `ClaimedTimer`."""
        return self.leases.timers.proofs[self.place]

    @property
    def nonce(self) -> bytes:
        """What proves it: the timer's proof, or its claim's nonce where the timer has none."""
        return self.proof or self.leases.nonce

    @property
    def last(self) -> bool:
        """Whether this is the last attempt that its handler allows."""
        handler = self.leases.handler
        return handler is not None and 0 < handler.max_attempts <= self.attempt

    @property
    def deadline_time(self) -> int:
        """See `Leases`."""
        return self.leases.deadline_time

    @property
    def sent(self) -> bool:
        """Whether the delivery has gone out."""
        return self.leases.sent

    @property
    def sent_at(self) -> float:
        """When the delivery went out; 0.0 until then."""
        return self.leases.sent_at
