"""What an audit remembers is bounded, and what it has forgotten is a doubt."""

from __future__ import annotations

import pytest

from relay.core.audit import Promise, PromiseVerdict, rules
from relay.core.audit import leases as lease_rules
from relay.core.audit.state import LastEnd, Memory, Nonces
from relay.core.journal import RecordKind
from tests.audit.forge import Forge, audited, nonce, refuted


def test_nonces_of_each_relay() -> None:
    """Two relays count each for itself; what was used is told with its entry."""
    nonces = Nonces(10)
    assert nonces.use(nonce(1), "1-0") is None
    assert nonces.use(nonce(1, b"relay-02"), "2-0") is None
    assert nonces.use(nonce(1), "3-0") == "1-0"


def test_a_nonce_that_was_overtaken() -> None:
    """A call may come to Redis later than the one after it."""
    nonces = Nonces(10)
    assert [nonces.use(nonce(number), "1-0") for number in (1, 3, 2, 4)] == [None] * 4


def test_a_nonce_that_is_too_old() -> None:
    """It may have been used, or not."""
    nonces = Nonces(2)
    assert [nonces.use(nonce(number), "1-0") for number in (1, 2, 3)] == [None] * 3
    assert nonces.use(nonce(1), "1-0") == ""
    assert nonces.use(nonce(3), "2-0") == "1-0"


def test_a_forgotten_nonce_is_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of promise 3 alone."""
    monkeypatch.setattr(lease_rules, "MOST_NONCES", 1)
    forge = Forge().scheduled("a").claimed("a", 1).acked("a", 1)
    forge.scheduled("b").claimed("b", 2).acked("b", 2).scheduled("c").claimed("c", 1).acked("c", 1)
    report = audited(forge.batches)
    assert not refuted(report)
    unproved = [each.promise for each in report.judgements if each.verdict is not PromiseVerdict.PROVED]
    assert unproved == [Promise.ONE_LEASE]
    assert list(report.of(Promise.ONE_LEASE).doubts) == [lease_rules.UNSEEN_NONCE]


def test_the_oldest_end_is_forgotten() -> None:
    """By when it came, and a timer that ended again has come again."""
    memory = Memory(2)
    for timer_id in "abac":
        memory.add(timer_id, LastEnd(RecordKind.ACKED, b"", timer_id, b"", ""))
    assert [timer_id for timer_id in "abc" if memory.get(timer_id)] == ["a", "c"]


def test_a_forgotten_end_is_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second commit is a write under a lease that nobody knows: refuted, or doubted in a shared topic."""
    monkeypatch.setattr(rules, "MOST_ENDED", 1)
    forge = Forge().scheduled("a").claimed("a", 1).acked("a", 1)
    forge.scheduled("b").claimed("b", 2).acked("b", 2).acked("a", 1)
    assert refuted(audited(forge.batches)) == {Promise.ONE_LEASE}
    shared = audited(forge.batches, exclusive=False)
    assert shared.of(Promise.ONE_LEASE).verdict is PromiseVerdict.UNSAID
