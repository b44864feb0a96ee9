"""Calls over HTTP end when their callers say that they stop waiting."""

from __future__ import annotations

from typing import Any

import pytest

from relay.api.call_time import CallTime
from tests.web.described import Reply
from tests.web.rig import Api, with_api
from tests.worlds.engine.served import served
from tests.worlds.waiting import PATIENCE

pytestmark = pytest.mark.anyio

ONE = "/v1/topics/t/timers/a"
TIMER = {"message": 1, "delay_sec": 60}
CALLS: list[tuple[str, str, str, Any]] = [
    ("PUT", ONE, "schedule", TIMER),
    ("DELETE", ONE, "cancel", None),
    ("POST", f"{ONE}:run", "run", {}),
    ("GET", ONE, "get", None),
]


async def call(api: Api, method: str, path: str, body: Any, timeout: str | None = None) -> Reply:
    headers = {} if timeout is None else {"Relay-Timeout": timeout}
    if body is None:
        return await api.call(method, path, headers=headers)
    return await api.call(method, path, body, headers=headers)


def is_out_of_time(told: Reply) -> bool:
    assert int(told.headers["retry-after"]) == 1
    assert "no effect from now on" in told.value["detail"]
    return (told.status, told.value["type"]) == (503, "urn:relay:problem:out-of-time")


@pytest.mark.parametrize(("method", "path", "verb", "body"), CALLS)
@pytest.mark.parametrize(("timeout", "default"), [("0.2", PATIENCE), (None, 0.2)])
async def test_a_call_ends_although_the_store_does_not_answer(
    method: str, path: str, verb: str, body: Any, timeout: str | None, default: float
) -> None:
    """By the header, or by the relay's own limit where there is none."""
    call_time = CallTime(default, lambda: 0.0)
    async with served() as relay, with_api(relay, call_time=call_time) as api:
        door = relay.store.hold(verb)
        for _ in range(20):  # on a busy machine the time may be over before the store is asked
            assert is_out_of_time(await call(api, method, path, body, timeout))
            if door.reached:
                break
        assert door.reached == 1
        door.open()


async def test_a_call_that_may_be_older_than_its_time_has_no_effect() -> None:
    """The relay was frozen, and reads the request only now."""
    call_time = CallTime(PATIENCE, lambda: 2 * PATIENCE)
    async with served() as relay, with_api(relay, call_time=call_time) as api:
        assert is_out_of_time(await call(api, "PUT", ONE, TIMER, f"{PATIENCE:g}"))
        assert await relay.engine.get("t", "a") is None


@pytest.mark.parametrize("timeout", ["", "soon", "-1", "0", "0.0", "nan", "inf", "1e3", "1_0", "86401", "٣"])
async def test_a_timeout_that_is_none_is_refused(api: Api, timeout: str) -> None:
    """Before anything is done."""
    told = await call(api, "PUT", ONE, TIMER, timeout.encode().decode("latin-1") or " ")
    assert (told.status, told.value["type"]) == (400, "urn:relay:problem:bad-timeout")
    assert told.value["detail"].startswith("relay-timeout: ")
    assert await api.relay.engine.get("t", "a") is None


@pytest.mark.parametrize("timeout", ["1", "1.5", "86400", "120.000"])
async def test_a_timeout_is_a_number_of_seconds(api: Api, timeout: str) -> None:
    assert (await call(api, "GET", "/v1/topics/t/timers", None, timeout)).status == 200


async def test_deliveries_have_times_of_their_own() -> None:
    """A call that waits for them says how long in `wait_sec`."""
    async with served() as relay, with_api(relay, call_time=CallTime(0.1, lambda: PATIENCE)) as api:
        told = await call(api, "POST", "/v1/topics/t/deliveries:receive", {"wait_sec": 0.5}, "soon")
        assert (told.status, told.value) == (200, {"deliveries": []})
