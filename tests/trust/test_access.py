"""Policies as values: patterns, and what rules allow."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core.trust.access import AccessPolicy, AccessRule
from relay.core.trust.globs import Glob, principal_glob
from relay.core.trust.verbs import AccessVerb

SERVICE = "spiffe://example.org/ns/shop/sa/orders"
READ, DELIVER = AccessVerb.READ, AccessVerb.DELIVER


def rule(name: str, principals: str, topics: str, *verbs: AccessVerb) -> AccessRule:
    split = principals.split(), topics.split()
    globs = [principal_glob(each) for each in split[0]], [Glob(each) for each in split[1]]
    return AccessRule(name, *globs, frozenset(verbs))


@given(st.text("ab/*", max_size=9), st.text("ab/*", max_size=9))
def test_a_star_is_any_characters_and_all_else_itself(pattern: str, name: str) -> None:
    expected = ".*".join(map(re.escape, pattern.split("*")))
    assert Glob(pattern).matches(name) is (re.fullmatch(expected, name) is not None)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "Orders", False),
        ("orders", "orders2", False),
        ("orders-*", "orders-", True),
        ("*", "", True),
        ("a*a", "a", False),
        ("o?ders", "orders", False),
        ("[a-z]", "b", False),
        ("spiffe://example.org/ns/shop/*", SERVICE, True),
    ],
)
def test_examples(pattern: str, name: str, matches: bool) -> None:
    assert Glob(pattern).matches(name) is matches


def test_no_pattern_takes_long() -> None:
    """A search that goes back would take years."""
    began = time.process_time()
    assert not Glob("*a" * 500 + "*b").matches("a" * 2_000)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "pattern",
    [
        "orders",
        "spiffe://*",
        "spiffe://example.org*",
        "spiffe://*/ns/shop",
        "jwt:*",
        "jwt:prod*",
        "dns:",
        "ANONYMOUS",
    ],
)
def test_a_pattern_that_could_let_in_others_is_refused(pattern: str) -> None:
    """`spiffe://example.org*` would mean example.org.evil.net, too."""
    with pytest.raises(ValueError, match="write"):
        principal_glob(pattern)


@pytest.mark.parametrize(
    "pattern", ["*", "anonymous", "spiffe://example.org/*", "jwt:prod:*", "token:*", "dns:*.x"]
)
def test_others_are_taken(pattern: str) -> None:
    assert principal_glob(pattern) == Glob(pattern)


def test_what_no_rule_allows_is_denied() -> None:
    """All three must fit one rule: what several rules say of a principal does not mix."""
    policy = AccessPolicy(
        [
            rule("takers", "spiffe://example.org/ns/shop/*", "orders orders-*", DELIVER),
            rule("readers", "token:*", "bills", READ),
        ]
    )
    assert policy.decide(SERVICE, DELIVER, "orders-eu").rule == "takers"
    assert policy.decide("token:ops", READ, "bills").rule == "readers"
    for principal, verb, topic in (
        (SERVICE, READ, "orders"),
        (SERVICE, DELIVER, "bills"),
        ("token:ops", READ, "orders"),
        ("token:ops", DELIVER, "orders"),
        ("spiffe://example.org.evil/ns/shop/x", DELIVER, "orders"),
    ):
        assert not policy.decide(principal, verb, topic).allowed
    assert not AccessPolicy().decide(SERVICE, READ, "orders").allowed


def test_a_star_means_all_who_have_proved_something() -> None:
    """Who has proved nothing is allowed nothing that does not name it."""
    policy = AccessPolicy([rule("all", "*", "*", READ), rule("open", "anonymous", "news", READ)])
    assert policy.decide(SERVICE, READ, "orders").rule == "all"
    assert not policy.decide("anonymous", READ, "orders").allowed
    assert policy.decide("anonymous", READ, "news").rule == "open"
