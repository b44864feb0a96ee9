"""Whether callers may do what they ask for, by the policy in force."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from relay.api.people.actions import Actions
from relay.core import validate
from relay.core.errors import Denied, Unauthenticated
from relay.core.trust.access import AccessPolicy
from relay.core.trust.principals import caller
from relay.core.trust.verbs import AccessVerb

MOST_LOGGED = 10
"""The topics that one line of the log names."""

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Holding:
    """A right that a stream uses for as long as it is open. `lost` is set once a policy does not give it any
    more, or nobody can prove its holder; then `why` says so."""

    principal: str
    verb: AccessVerb
    topics: Sequence[str]
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    why: Denied | Unauthenticated | None = None

    def lose(self, why: Denied | Unauthenticated) -> None:
        """Take the right away. The first reason stands."""
        if not self.lost.is_set():
            self.why = why
            self.lost.set()


class Access:  # see 0107
    """What `policy` says about the caller of the running task. Without a policy everything is allowed.

    `denied` is called with the verb of each call that is denied. `actions` records what callers change by
    calls that were allowed.
    """

    def __init__(
        self,
        policy: AccessPolicy | None = None,
        denied: Callable[[str], None] = lambda _: None,
        actions: Actions | None = None,
    ) -> None:
        self.policy = policy
        self.actions = actions or Actions()
        self._denied = denied
        self._holdings: set[Holding] = set()

    def use(self, policy: AccessPolicy) -> None:
        """Ask this policy from the next question on, and about what streams hold."""
        self.policy = policy
        for holding in self._holdings:
            try:
                for topic in holding.topics:
                    self._require(holding.principal, holding.verb, topic)
            except Denied as denied:
                holding.lose(denied)

    @contextmanager
    def hold(self, verb: AccessVerb, topics: Sequence[str]) -> Iterator[Holding]:
        """Tell within the block whether the caller still has a right, which it had a moment ago."""
        holding = Holding(caller.get().name, verb, topics)
        self._holdings.add(holding)
        try:
            yield holding
        finally:
            self._holdings.remove(holding)

    def require(self, verb: AccessVerb, topic: str, *, field: str = "topic") -> None:
        """Ask before anything is read, and before `Engine.admit`, which knows the topics.

        Raises `Denied`, which is the same whether there is such a topic or not, and `InvalidField` for
        what is not a topic's name.
        """
        if self.policy is None:
            return
        validate.topic(field, topic)  # first, so that decisions about endless names are not remembered
        self._require(caller.get().name, verb, topic)

    def _require(self, principal: str, verb: AccessVerb, topic: str) -> None:
        try:
            self._ask(principal, verb, topic)
        except Denied:
            log.info("a call was denied", extra={"principal": principal, "verb": verb.value, "topic": topic})
            raise

    def _ask(self, principal: str, verb: AccessVerb, topic: str) -> None:
        if self.policy is None or self.policy.decide(principal, verb, topic).allowed:
            return
        self._denied(verb.value)
        raise Denied(f"the policy does not give {principal} the verb {verb.value} on topic {topic!r}")

    @contextmanager
    def together(self, verb: AccessVerb) -> Iterator[Callable[[str], None]]:
        """Yield what asks about the topics of one call that may hold thousands, as `require` does: what is
        denied of them is one line of the log."""
        topics: set[str] = set()
        denied, principal = 0, caller.get().name

        def require(topic: str) -> None:
            nonlocal denied
            if self.policy is None:
                return
            validate.topic("topic", topic)
            try:
                self._ask(principal, verb, topic)
            except Denied:
                denied += 1
                if len(topics) < MOST_LOGGED:
                    topics.add(topic)
                raise

        try:
            yield require
        finally:
            if denied:
                more = {"denied": denied, "topics": sorted(topics)}
                log.info(
                    "timers of a call were denied",
                    extra={"principal": principal, "verb": verb.value, **more},
                )

    def allows(self, verb: AccessVerb, topic: str) -> bool:
        """Whether the caller may do this, where an answer only leaves out what it may not see."""
        policy = self.policy
        return policy is None or policy.decide(caller.get().name, verb, topic).allowed
