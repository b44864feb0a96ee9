"""A relay that was frozen has nothing to say to those who called it meanwhile."""

from __future__ import annotations

import http.client
import signal
import time
from pathlib import Path

import pytest

from tests.web.described import reply
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

WAITS = 8.0
"""Seconds for which the caller waits."""

FROZEN = 6.0
"""Seconds for which the relay is frozen after the request has come."""

PATH = "/v1/topics/t/timers"


def test_the_time_of_a_call_goes_on_while_the_relay_is_frozen(stage: Stage) -> None:
    """The request lies in a socket, and says for how long its caller waits, but not since when. The answer
    comes by the caller's clock, and not later by the time for which the relay was frozen: what the call could
    still do after that would come as a surprise."""
    relay = stage.relay(settings={"RELAY_REDIS__COMMAND_TIMEOUT": "60"})
    caller = http.client.HTTPConnection(relay.api, timeout=60.0)
    caller.request("GET", PATH)
    assert caller.getresponse().read()  # the connection is made, and the relay knows it
    stage.server.freeze()  # nothing else ends the call
    stopped = time.monotonic()
    relay.signal(signal.SIGSTOP)
    eventually(lambda: _is_stopped(relay.pid), "the relay is frozen")
    caller.request("GET", PATH, headers={"Relay-Timeout": f"{WAITS:g}"})
    sent = time.monotonic()
    time.sleep(FROZEN)
    frozen = time.monotonic() - sent  # longer, if this process stood still as well
    relay.signal(signal.SIGCONT)
    answer = caller.getresponse()
    took = time.monotonic() - sent
    told = reply("GET", PATH, answer.status, dict(answer.getheaders()), answer.read())
    assert (told.status, told.value["type"]) == (503, "urn:relay:problem:out-of-time")
    assert int(told.headers["retry-after"]) > 0
    early = 1.0 + (sent - stopped)  # the relay stood still before the request came, too, and can't tell
    assert WAITS - early < took < frozen + WAITS - 1.0
    caller.close()
    stage.server.thaw()


def _is_stopped(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    return state == "T"
