"""What a script says to a call whose caller has given it up: nothing happens."""

from __future__ import annotations

import time

import pytest
from redis.exceptions import ResponseError

from relay.core.instants import SECOND
from relay.store.keys import KeyNames
from relay.store.server.scripts import Scripts
from relay.store.verbs import timeline
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY


async def test_a_late_call_is_refused(bench: Bench) -> None:
    """The clock of Redis shows that nobody waits for it any more."""
    scripts = Scripts(KeyNames(), bench.texts)
    call = scripts.prepare(timeline.schedule(bench.topic, 0, ["a", "5", b""]), lambda _: 0)
    with pytest.raises(ResponseError, match="GIVENUP"):
        bench.raw.execute_command(*call.command((int(time.time()) - 60) * SECOND, known=False))
    assert bench.state() == EMPTY
