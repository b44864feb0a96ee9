"""A policy: which principals may do what to which topics, and what they may cost. What no rule allows is
denied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from relay.core.trust.bounds import Bound
from relay.core.trust.globs import Glob, is_meant
from relay.core.trust.verbs import AccessVerb

REMEMBERED = 10_000
"""The decisions that a policy remembers."""

EVERY_TOPIC = "*"
"""For what belongs to no topic, such as calendars, this is asked: only rules for all topics allow it."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """These principals may do this to these topics. `name` is how people find it in the file."""

    name: str
    principals: Sequence[Glob]
    topics: Sequence[Glob]
    verbs: frozenset[AccessVerb]

    def allows(self, principal: str, verb: AccessVerb, topic: str) -> bool:
        """Whether the rule is about all three."""
        return (
            verb in self.verbs
            and any(glob.matches(topic) for glob in self.topics)
            and any(is_meant(glob, principal) for glob in self.principals)
        )


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """What a policy says; `rule` is the first that allows it, empty if none does."""

    rule: str = ""

    @property
    def allowed(self) -> bool:
        """Whether it may be done."""
        return bool(self.rule)


class AccessPolicy:
    """Rules, each of which allows something, and bounds. The order of rules says only which one a decision
    names; of bounds the first that means a principal holds for it."""

    def __init__(self, rules: Sequence[AccessRule] = (), bounds: Sequence[Bound] = ()) -> None:
        self.rules = tuple(rules)
        self.digest = ""
        """That of the file that says them, such as `sha256:…`."""
        self.bounds = tuple(bounds)
        self.decide = lru_cache(REMEMBERED)(self._decide)
        """Say whether a principal, by its name, may do this to a topic."""

    def _decide(self, principal: str, verb: AccessVerb, topic: str) -> AccessDecision:
        for rule in self.rules:
            if rule.allows(principal, verb, topic):
                return AccessDecision(rule.name)
        return AccessDecision()

    def bound(self, principal: str) -> Bound | None:
        """What a principal may cost; None if nothing bounds it."""
        return next((bound for bound in self.bounds if bound.means(principal)), None)
