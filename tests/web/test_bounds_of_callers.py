"""What a policy's bounds do to requests over HTTP."""

from __future__ import annotations

import pytest

from relay.core.timers import NewTimer
from relay.core.trust.access import AccessPolicy
from relay.core.trust.bounds import Bound
from relay.core.trust.globs import Glob
from relay.core.trust.usage import Bounds
from tests.web.rig import with_api
from tests.worlds.engine.fake_clock import FakeClock
from tests.worlds.engine.served import served

pytestmark = pytest.mark.anyio


async def test_a_request_over_a_bound_is_told_when_to_come_back() -> None:
    """429 with Retry-After in whole seconds, rounded up. Bodies count, those of answers too."""
    clock = FakeClock()
    bounds = Bounds(clock.now)
    bounds.use(AccessPolicy(bounds=[Bound("it", [Glob("anonymous")], bytes_per_second=1000)]))
    async with served() as relay, with_api(relay, bounds_of_callers=bounds) as api:
        assert (await api.schedule(timer_id="a", message="x" * 3000, delay_sec=60)).status == 201
        told = await api.call("GET", "/v1/topics/t/timers/a")
        assert (told.status, told.value["type"]) == (429, "urn:relay:problem:over-bound")
        assert told.value["detail"].startswith("anonymous is over its bytes_per_second of 1000, ")
        assert told.headers["retry-after"] == "3"
        await clock.advance(2.1)
        assert (await api.call("GET", "/v1/topics/t/timers/a")).status == 429
        await clock.advance(0.9)
        assert (await api.call("GET", "/v1/topics/t/timers/a")).status == 200
        told = await api.call("GET", "/v1/topics/t/timers/a")  # the answer before it had the content in it
        assert int(told.headers["retry-after"]) > 3


async def test_a_body_that_is_refused_counts() -> None:
    """Whoever sends what is no JSON would cost nothing otherwise."""
    bounds = Bounds(FakeClock().now)
    bounds.use(AccessPolicy(bounds=[Bound("it", [Glob("anonymous")], bytes_per_second=1000)]))
    async with served() as relay, with_api(relay, bounds_of_callers=bounds) as api:
        refused = await api.call("POST", "/v1/topics/t/timers", raw=b"{" * 3000)
        assert refused.value["type"] == "urn:relay:problem:not-json"
        assert (await api.call("GET", "/v1/topics")).status == 429


async def test_deliveries_keep_nobody_from_settling_them() -> None:
    """Their bytes are apart, as those of streams are. The next deliveries wait until they are paid for."""
    clock = FakeClock()
    bounds = Bounds(clock.now)
    bounds.use(AccessPolicy(bounds=[Bound("it", [Glob("anonymous")], bytes_per_second=1000)]))
    async with served() as relay, with_api(relay, bounds_of_callers=bounds) as api:
        await relay.engine.schedule("t", NewTimer("a", bytes(9000), delay=0))
        taken = await api.call("POST", "/v1/topics/t/deliveries:receive", {})
        (delivery,) = taken.value["deliveries"]
        again = await api.call("POST", "/v1/topics/t/deliveries:receive", {})
        assert again.value["type"] == "urn:relay:problem:over-bound"
        ack = {"token": delivery["token"], "outcome": "ACK"}
        settled = await api.call("POST", "/v1/topics/t/deliveries:settle", {"settlements": [ack]})
        assert (settled.status, settled.value) == (200, {"problems": []})
        await clock.advance(20.0)
        assert (await api.call("POST", "/v1/topics/t/deliveries:receive", {"wait_sec": 0})).status == 200


async def test_a_request_holds_its_place_until_it_ends() -> None:
    bounds = Bounds(FakeClock().now)
    bounds.use(AccessPolicy(bounds=[Bound("it", [Glob("anonymous")], max_calls=1)]))
    async with served() as relay, with_api(relay, bounds_of_callers=bounds) as api:
        usage = bounds.begin()
        assert usage is not None
        assert (await api.call("GET", "/v1/topics")).status == 429
        usage.end()
        for path in ("/v1/topics", "/v1/nowhere", "/v1/topics/t/timers/none", "/v1/topics"):
            assert (await api.call("GET", path)).status != 429
        assert usage.calls == 0
