"""One relay, a process of its own, that all of the folder's strangers meet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worlds.relay.processes import Relay
from tests.worlds.relay.stage import Stage, staged

GROUP = pytest.mark.xdist_group("hostile")
"""The tests with the relay below: one worker has them."""


@pytest.fixture(scope="package")
def relay() -> Iterator[Relay]:
    """At its end it is still well, and its log has neither an exception nor an error in it."""
    with staged(Stage) as stage:
        relay = stage.relay(settings={"RELAY_TOPICS__t__JOURNAL": "true"})
        yield relay
        assert relay.health() == "SERVING"
        assert relay.probe("/healthz/ready") == 200
        loud = [line for line in relay.lines() if line["level"] in ("error", "critical")]
        assert not loud, loud[:3]
