"""What each principal costs a relay now, held to the bounds of the policy in force."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from relay.core.errors import OverBound
from relay.core.trust.access import AccessPolicy
from relay.core.trust.bounds import Bound, TokenBucket
from relay.core.trust.principals import caller

UNTIL_ONE_ENDS = 0.1
"""Seconds after which to try again what waits for the end of something else: nobody knows when that is."""

MOST_OWED = 60.0
"""Seconds that refused calls alone can keep their caller out. One that repeats them without waiting would
have a debt without end otherwise, and be kept out for hours after it has stopped."""

REMEMBERED = 10_000
"""The principals from which on those are forgotten that use nothing."""

UNBOUNDED = Bound("", ())

Over = Callable[[str, str], None]
"""Called with the principal and the bound of each call and stream that is refused."""
HeldBack = Callable[[str, float], None]
"""Called with the principal of each stream that has to wait, and the seconds."""


class Usage:  # see 0111
    """What one principal uses. Each number of bytes has a bucket of its own: a backlog of deliveries must not
    keep the principal from calls, nor from saying what became of them."""

    __slots__ = ("_bound", "_bytes", "_calls", "_delivered", "_now", "_said", "calls", "name", "streams")

    def __init__(self, name: str, bound: Bound | None, now: Callable[[], float]) -> None:
        self.name = name
        self.calls = 0
        """Those under way."""
        self.streams = 0
        """Those that are open."""
        self._now = now
        self._hold_to(bound or UNBOUNDED)

    def use(self, bound: Bound | None) -> None:
        """Hold it to these from now on. If they are others than before, their buckets are full."""
        if self._bound != (bound or UNBOUNDED):
            self._hold_to(bound or UNBOUNDED)

    def _hold_to(self, bound: Bound) -> None:
        self._bound = bound
        calls, most = self._bound.calls_per_second, self._bound.bytes_per_second
        self._calls = self._bucket(calls)
        self._bytes, self._delivered, self._said = (self._bucket(most) for _ in range(3))

    def _bucket(self, rate: float | None) -> TokenBucket | None:
        return None if rate is None else TokenBucket(rate, self._bound.burst_seconds, self._now())

    def is_idle(self) -> bool:
        """Whether nothing would change if it were forgotten."""
        now = self._now()
        buckets = (self._calls, self._bytes, self._delivered, self._said)
        full = all(bucket is None or bucket.is_full(now) for bucket in buckets)
        return full and not self.calls and not self.streams

    def begin(self, size: int, *, delivers: bool = False) -> None:
        """Begin a call of `size` bytes; with `delivers` its answer has deliveries, whose bytes are apart.
        Raises `OverBound`. The bytes have come by then, and count all the same."""
        bound, moved = self._bound, self._delivered if delivers else self._bytes
        if bound.max_calls is not None and self.calls >= bound.max_calls:
            raise self._over("max_calls", bound.max_calls, UNTIL_ONE_ENDS, size, moved)
        if self._calls is not None or moved is not None:
            self._spend(size, moved)
        self.calls += 1

    def _spend(self, size: int, moved: TokenBucket | None) -> None:
        """Take a call and its bytes out of the buckets. Raises `OverBound`, and takes only the bytes then."""
        now, bound = self._now(), self._bound
        if self._calls is not None and (wait := self._calls.wait(now)):
            raise self._over("calls_per_second", bound.calls_per_second, wait, size, moved)
        if moved is not None:
            if moved.wait(now):
                raise self._over("bytes_per_second", bound.bytes_per_second, 0.0, size, moved)
            moved.take(size, now)
        if self._calls is not None:
            self._calls.take(1, now)

    def _over(
        self, bound: str, most: float | None, wait: float, size: int, moved: TokenBucket | None
    ) -> OverBound:
        """The error of a call that is refused, whose bytes are taken up to `MOST_OWED`. It says when the
        caller is let in, with them."""
        if moved is not None:
            now = self._now()
            moved.owe(size, now, MOST_OWED)
            wait = max(wait, moved.wait(now))
        return OverBound.of(self.name, bound, most, wait)

    def moved(self, size: int) -> None:
        """Count more bytes of a call that goes on."""
        if self._bytes is not None:
            self._bytes.take(size, self._now())

    def end(self) -> None:
        """End a call."""
        self.calls -= 1

    def open(self) -> None:
        """Open a stream, which counts as a call among those a second. Raises `OverBound`, and counts nothing
        then."""
        most = self._bound.max_streams
        if most is not None and self.streams >= most:
            raise OverBound.of(self.name, "max_streams", most, UNTIL_ONE_ENDS)
        self._spend(0, None)
        self.streams += 1

    def close(self) -> None:
        """Close a stream."""
        self.streams -= 1

    @property
    def counts_bytes(self) -> bool:
        """Whether the bytes of streams have to be counted."""
        return self._delivered is not None

    def delivered(self, size: int) -> float:
        """Count what was delivered; return the seconds that the next deliveries have to wait."""
        return 0.0 if self._delivered is None else self._delivered.take(size, self._now())

    def owes(self) -> bool:
        """Whether deliveries have to wait."""
        return self.delivered(0) > 0

    def said(self, size: int) -> float:
        """Count what an application said over a stream; return the seconds that its next word has to wait."""
        return 0.0 if self._said is None else self._said.take(size, self._now())


class Bounds:
    """Holds the callers of all listeners to the bounds of the policy in force. `now` is monotonic time in
    seconds. Without a policy nothing is counted."""

    def __init__(
        self,
        now: Callable[[], float],
        over: Over = lambda *_: None,
        held_back: HeldBack = lambda *_: None,
    ) -> None:
        self._now = now
        self._over = over
        self.held_back = held_back
        """Whom to tell of a stream that has to wait."""
        self._policy = AccessPolicy()
        self._users: dict[str, Usage] = {}
        self._enough = REMEMBERED

    def use(self, policy: AccessPolicy) -> None:
        """Go by this policy from now on. What is under way and open stays so, and counts."""
        self._policy = policy
        for usage in self._users.values():
            usage.use(policy.bound(usage.name))

    def begin(self, size: int = 0, *, delivers: bool = False) -> Usage | None:
        """Begin a call of the caller of the running task, see `Usage.begin`; `end` it. None if there are no
        bounds. Raises `OverBound`."""
        if not self._policy.bounds:
            return None
        usage = self._of(caller.get().name)
        with self._told(usage):
            usage.begin(size, delivers=delivers)
        return usage

    def open(self) -> Usage:
        """Open a stream of the caller of the running task; `close` it. Raises `OverBound`.

        Streams are counted without bounds, too, since bounds may come while they are open.
        """
        usage = self._of(caller.get().name)
        with self._told(usage):
            usage.open()
        return usage

    @contextmanager
    def _told(self, usage: Usage) -> Iterator[None]:
        """Tell of what is refused within the block."""
        try:
            yield
        except OverBound as over:
            self._over(usage.name, over.bound)
            raise

    def _of(self, name: str) -> Usage:
        usage = self._users.get(name)
        if usage is None:
            if len(self._users) >= self._enough:
                self._users = {each.name: each for each in self._users.values() if not each.is_idle()}
                self._enough = max(REMEMBERED, 2 * len(self._users))
            usage = self._users[name] = Usage(name, self._policy.bound(name), self._now)
        return usage
