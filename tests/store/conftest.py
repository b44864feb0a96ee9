"""What the tests of stores share."""

from __future__ import annotations

import pytest

from relay.store.server import blocking, connect, line, pool, sentinel

QUESTION = 60.0
"""Seconds for a Sentinel's answer, and for a node's about the slots."""


@pytest.fixture(autouse=True)
def patient_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Sentinel or a node has a second to answer such a question, and then the next one is asked. On a busy
    machine the only one that a test has may take longer. One that is away here refuses at once."""
    for module in (blocking, connect, line, sentinel):
        monkeypatch.setattr(module, "SENTINEL_TIMEOUT", QUESTION)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of a call is waited for however late it is, so that what was lost was seen."""
    monkeypatch.setattr(pool, "GRACE", 60.0)
