"""Which status each error has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.rpc import code_pb2

from relay.api.errors import INTERNAL, kind
from relay.core.errors import DurabilityMissed, ReplicasAway, ServiceError, StoreRefused
from relay.store.server.errors import Leaving, PauseUnknown


@pytest.mark.parametrize("failure", [Leaving(), PauseUnknown()])
def test_what_passes_is_unavailable(failure: ServiceError) -> None:
    """Also what the store says of a move, should it ever reach a caller: a retry helps."""
    assert kind(failure).code == code_pb2.UNAVAILABLE
    assert kind(failure).retry_after


def test_who_is_told_at_once_that_replicas_are_away_is_told_to_wait() -> None:
    """A repeat after no pause would be answered at once as well, and open a connection to Redis each time."""
    missed, away = kind(DurabilityMissed()), kind(ReplicasAway())
    assert not missed.retry_after
    assert away.retry_after
    assert replace(away, retry_after=0) == missed


def test_what_nobody_can_mend_is_internal() -> None:
    """Such as a command that the server does not know."""
    assert kind(StoreRefused("unknown command")) is INTERNAL
