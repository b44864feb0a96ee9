"""The API as such: who may call, what a body must be, which errors have which status, what is told of it."""

from __future__ import annotations

import json
import logging
import socket
import time
from typing import Any

import anyio
import pytest

from relay.core.endpoints import addresses
from relay.core.errors import OtherLayout, StoreFull, StoreRefused, StoreUnavailable, WrongKeyType
from relay.web import forms, guard
from tests.web.rig import MAX_BODY, Api, with_api
from tests.worlds.engine.served import served
from tests.worlds.waiting import until

pytestmark = pytest.mark.anyio

TIMERS = "/v1/topics/t/timers"
GOOD: dict[str, Any] = {"message": 1, "delay_sec": 60}


async def test_only_these_hosts(api: Api) -> None:
    """A page whose name was made to point here (DNS rebinding) is refused, whatever it asks for."""
    _, port = addresses.split(api.server.address)
    for host in (
        f"localhost:{port}",
        "LOCALHOST",
        "127.0.0.1",
        f"127.0.0.2:{port}",
        f"[::1]:{port}",
        "[::1]",
    ):
        assert (await api.call("GET", TIMERS, headers={"host": host})).status == 200, host
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "localhost.evil.example",
        "10.0.0.1",
        "",
        "[::2]",
        "::",
    ):
        for method, body in (("GET", None), ("POST", b"{}")):
            refused = await api.call(method, TIMERS, raw=body, headers={"host": host or " "})
            assert (refused.status, refused.value["type"]) == (403, "urn:relay:problem:host-not-allowed"), (
                host
            )


async def test_hosts_that_are_set() -> None:
    async with served() as relay, with_api(relay, allowed_hosts={"relay.internal"}) as api:
        for host in ("relay.internal", "Relay.Internal:7453"):
            assert (await api.call("GET", TIMERS, headers={"host": host})).status == 200
        assert (await api.call("GET", TIMERS, headers={"host": "internal"})).status == 403


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", TIMERS),
        ("PUT", f"{TIMERS}/a"),
        ("POST", f"{TIMERS}/a:run"),
        ("POST", "/v1/topics/t:pause"),
    ],
)
async def test_what_a_browser_may_send_unasked_is_refused(
    api: Api, kind: str, method: str, path: str
) -> None:
    """A page can send these bodies anywhere; JSON only with leave, which `OPTIONS` does not give."""
    for content in (b"", json.dumps(GOOD).encode()):
        refused = await api.call(method, path, raw=content, headers={"content-type": kind})
        assert refused.status == 415
    asked = await api.call("OPTIONS", path, headers={"origin": "http://evil.example"})
    assert asked.status == 405
    assert not [name for name in asked.headers if name.startswith("access-control")]
    assert (await api.call("GET", TIMERS)).value["timers"] == []


@pytest.mark.parametrize(
    "kind",
    ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"'],
)
async def test_content_types_of_json(api: Api, kind: str) -> None:
    raw = json.dumps(GOOD).encode()
    assert (await api.call("POST", TIMERS, raw=raw, headers={"content-type": kind})).status == 201


async def test_another_charset(api: Api) -> None:
    headers = {"content-type": "application/json; charset=latin-1"}
    assert (await api.call("POST", TIMERS, raw=b"{}", headers=headers)).status == 415


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{", "line 1"),
        (b'{"message":NaN,"delay_sec":1}', "NaN"),
        (b'{"delay_sec":1,"delay_sec":2}', "'delay_sec' twice"),
        (b'{"message":{"a":1,"a":2},"delay_sec":2}', "'a' twice"),
        (b'\xff\xfe{\x00}\x00', "UTF-8"),
        (b'\xef\xbb\xbf{}', "BOM"),
        (b"[" * 100_000, ""),
        (b'{"delay_sec":' + b"9" * 5_000 + b"}", "digits"),
        (b"{} {}", "Extra data"),
        (b'{"\\ud800":1}', "half a character in the key"),
        (b'{"message":{"\\ud800":1},"delay_sec":1}', "half a character in the key"),
    ],
)  # fmt: skip
async def test_bodies_that_are_no_json(raw: bytes, words: str) -> None:
    async with served() as relay, with_api(relay, max_body_bytes=1 << 20) as api:
        refused = await api.call("POST", TIMERS, raw=raw)
        assert (refused.status, refused.value["type"]) == (400, "urn:relay:problem:not-json")
        assert refused.value["detail"].startswith("body: ")
        assert words in refused.value["detail"]
        assert (await api.call("POST", TIMERS, GOOD)).status == 201


@pytest.mark.parametrize("raw", [b"5", b"null", b'"text"', b"[]", b"{}", b"", b" "])
async def test_bodies_that_say_too_little(api: Api, raw: bytes) -> None:
    assert (await api.call("POST", TIMERS, raw=raw)).status == 422


async def test_numbers_that_are_too_large(api: Api) -> None:
    """1e400 is JSON, but no number that JSON of ours could hold."""
    for raw in (
        b'{"message":1e400,"delay_sec":1}',
        b'{"message":1,"delay_sec":1e400}',
        b'{"message":1,"delay_sec":1%s}' % (b"0" * 400),
    ):
        assert (await api.call("POST", TIMERS, raw=raw)).status == 422


async def test_a_body_that_is_too_large(api: Api) -> None:
    """By its declared length, and by what comes without one; the bound itself is fine."""
    fits = json.dumps({**GOOD, "message": ""}).encode()
    fits = fits.replace(b'""', b'"' + b"x" * (MAX_BODY - len(fits)) + b'"')
    assert (await api.call("POST", TIMERS, raw=fits)).status == 201
    refused = await api.call("POST", TIMERS, raw=fits + b" ")
    assert (refused.status, refused.headers["connection"]) == (413, "close")
    async with await anyio.connect_tcp(*addresses.split(api.server.address)) as stream:
        head = f"POST {TIMERS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        await stream.send(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
        await stream.send(b"%x\r\n%s\r\n" % (MAX_BODY + 1, b" " * (MAX_BODY + 1)))
        assert b" 413 " in await stream.receive()


async def test_a_body_that_does_not_come(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_TIMEOUT", 0.05)
    async with await anyio.connect_tcp(*addresses.split(api.server.address)) as stream:
        head = f"POST {TIMERS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        await stream.send(f"{head}content-length: 5\r\n\r\n{{".encode())
        assert b" 408 " in await stream.receive()


async def test_a_caller_who_goes_while_he_speaks(api: Api) -> None:
    """Is no error of the relay's, and counted as what he is."""
    async with await anyio.connect_tcp(*addresses.split(api.server.address)) as stream:
        head = f"POST {TIMERS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        await stream.send(f"{head}content-length: 5\r\n\r\n{{".encode())

    async def counted() -> bool:
        return ("POST", "/v1/topics/{topic}/timers", 0) in api.measured

    await until(counted, "the request has ended")


async def test_methods(api: Api) -> None:
    """405 with what there is, whatever else the path could mean; HEAD as GET without its content."""
    allowed = {
        "/v1/topics": {"GET", "HEAD"},
        TIMERS: {"GET", "HEAD", "POST"},
        f"{TIMERS}/a": {"GET", "HEAD", "PUT", "DELETE"},
        f"{TIMERS}/a:run": {"GET", "HEAD", "PUT", "DELETE", "POST"},
        f"{TIMERS}:batch": {"POST"},
        "/v1/topics/t/dead-letters:redrive": {"POST"},
    }
    for path, methods in allowed.items():
        for method in ("PATCH", "OPTIONS", "FOO", *({"HEAD", "PUT"} - methods)):
            answer = await api.call(method, path, raw=b"{}" if method == "PUT" else None)
            assert answer.status == 405, (method, path)
            assert set(answer.headers["allow"].split(", ")) == methods
    await api.schedule(timer_id="a", **GOOD)
    got, headed = [await api.call(method, f"{TIMERS}/a") for method in ("GET", "HEAD")]
    assert (headed.status, headed.headers["content-length"]) == (200, str(len(got.content)))
    assert (await api.call("HEAD", f"{TIMERS}/b")).status == 404


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v2/topics", "/v1/topics/t/timer", f"{TIMERS}/a/b", "/v1/topic"]
)
async def test_paths_that_are_none(api: Api, path: str) -> None:
    assert (await api.call("GET", path)).status == 404


@pytest.mark.parametrize(
    ("failure", "status", "waits"),
    [
        (StoreUnavailable("away"), 503, True),
        (StoreFull("full"), 507, True),
        (OtherLayout("2 8"), 503, True),
        (WrongKeyType("timers_timeline:t holds a string"), 409, False),
        (StoreRefused("secret words of the server"), 500, False),
        (RuntimeError("secret words of the code"), 500, False),
    ],
)
async def test_errors_of_the_store(
    api: Api, failure: Exception, status: int, waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Each has its status; what waiting mends says for how long; none tells more than a caller may know."""
    api.relay.store.fail("schedule", failure)
    answer = await api.schedule(timer_id="a", message="a secret payload", delay_sec=1)
    assert answer.status == status
    assert ("retry-after" in answer.headers) is waits
    assert b"secret" not in answer.content
    assert b"Traceback" not in answer.content
    said = "".join(record.getMessage() + repr(vars(record)) for record in caplog.records)
    assert "a secret payload" not in said
    if status == 500:
        assert any(record.levelno == logging.ERROR for record in caplog.records)


def test_a_key_twice_among_many() -> None:
    """It is found by one look at each, since the relay does nothing else meanwhile."""
    keys = "".join(f'"{n}":0,' for n in range(100_000))
    began = time.process_time()
    with pytest.raises(forms.NotJson, match="'last' twice"):
        forms.parse(f'{{{keys}"last":0,"last":0}}'.encode())
    assert time.process_time() - began < 5


async def test_a_full_topic(api: Api) -> None:
    api.relay.tune(max_waiting=1)
    assert (await api.schedule(**GOOD)).status == 201
    full = await api.schedule(**GOOD)
    assert (full.status, full.value["type"]) == (429, "urn:relay:problem:topic-full")
    assert int(full.headers["retry-after"]) > 0


async def test_topics_that_are_closed() -> None:
    async with served(closed=True) as relay, with_api(relay) as api:
        refused = await api.schedule(**GOOD)
        assert (refused.status, refused.field) == (422, "topic")


async def test_each_request_is_measured_once(api: Api) -> None:
    """By method, template and status: never by an id, and never by a method that somebody made up."""
    await api.schedule(timer_id="a", **GOOD)
    await api.call("GET", f"{TIMERS}/a")
    await api.call("HEAD", f"{TIMERS}/b")
    await api.call("BREW", TIMERS)
    await api.call("GET", "/x")
    await api.call("DELETE", f"{TIMERS}:batch")
    one = "/v1/topics/{topic}/timers/{timer_id}"
    assert api.measured == [
        ("POST", "/v1/topics/{topic}/timers", 201),
        ("GET", one, 200),
        ("HEAD", one, 404),
        ("_OTHER", "/v1/topics/{topic}/timers", 405),
        ("GET", "", 404),
        ("DELETE", "/v1/topics/{topic}/timers:batch", 405),
    ]


async def test_answers_are_not_kept(api: Api) -> None:
    for path in ("/v1/topics/t/timers", "/nowhere"):
        headers = (await api.call("GET", path)).headers
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


async def test_a_stop_ends_requests_and_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """One under way gets its answer."""
    monkeypatch.setattr("relay.web.server.GRACE", 60)
    answers: list[Any] = []
    async with served() as relay, with_api(relay) as api, anyio.create_task_group() as tasks:
        door = api.relay.store.hold("schedule")

        async def ask() -> None:
            answers.append(await api.schedule(timer_id="a", **GOOD))

        tasks.start_soon(ask)

        async def reached() -> bool:
            return door.reached == 1

        await until(reached, "the store is asked")
        async with anyio.create_task_group() as stopping:
            stopping.start_soon(api.server.stop)
            await until(lambda: _closed(api.server.address), "it listens no more")
            door.open()
    assert [answer.status for answer in answers] == [201]


async def _closed(address: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(addresses.split(address)) != 0
