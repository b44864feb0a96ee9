"""A real relay with 300 bad sockets on each listener, and callers beside them who notice nothing."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.worlds.relay.processes import CHANNEL, Relay
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

TOPIC = "orders"
BAD = 300
SOON = {f"RELAY_{listener}__IDLE_TIMEOUT": "5" for listener in ("GRPC", "HTTP", "API")}
"""So that what is left of the bad ones is seen to go."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def bad(listener: str, number: int) -> bytes:
    """What the socket of this number sends."""
    noise = random.Random(number).randbytes(500)
    kinds = (
        [b"", noise, PREFACE[:20], PREFACE, PREFACE + noise]
        if listener == "grpc"
        else [
            b"",
            noise,
            b"GET /healthz/live HTTP/1.1\r\nhost: localhost\r\nx: ",
            b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 100_000,
            b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        ]
    )
    return kinds[number % len(kinds)]


def flood(stack: ExitStack, listener: str, address: str) -> None:
    host, _, port = address.rpartition(":")
    for number in range(BAD):
        raw = stack.enter_context(socket.create_connection((host, int(port)), timeout=60.0))
        try:
            raw.sendall(bad(listener, number))
        except OSError:
            continue  # it was answered and closed before all of it was sent


def files(relay: Relay) -> int:
    """How many files and sockets the process has open."""
    return len(list(Path(f"/proc/{relay.pid}/fd").iterdir()))


def memory(relay: Relay) -> int:
    """Its resident memory, in bytes."""
    return int(Path(f"/proc/{relay.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def api(relay: Relay) -> int:
    """Status of a plain request on a new connection."""
    connection = http.client.HTTPConnection(relay.api, timeout=30.0)
    try:
        body = json.dumps({"timer_id": "by-http", "delay_sec": 3600})
        connection.request("POST", f"/v1/topics/{TOPIC}/timers", body, {"content-type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


def schedule(relay: Relay, count: int) -> None:
    """Calls on a new connection, each within a caller's usual patience."""
    with grpc.insecure_channel(relay.target, options=CHANNEL) as channel:
        call: Any = channel.unary_unary("/relay.v1.TopicService/ListTopics")
        for _ in range(count):
            call(b"", timeout=30.0)


def check_log(relay: Relay, message: str, since: float) -> None:
    """It says this once a minute at most, and nothing about errors."""
    assert 1 <= relay.said(message) <= 1 + (time.monotonic() - since) // 60
    assert not [line for line in relay.lines() if line["level"] in ("error", "critical")]


def test_bad_sockets_beside_good_callers(stage: Stage) -> None:
    """Every call of a good caller succeeds, on connections from before and on new ones, and so does every
    probe. Afterwards the relay has the files and the memory that it had, and no loop has stopped."""
    since = time.monotonic()
    relay = stage.relay(settings=SOON)
    stage.application(relay, TOPIC)
    producer = stage.producer(relay)
    accepted = [f"before-{number}" for number in range(5)]
    for name in accepted:
        producer.schedule(TOPIC, name)
    assert api(relay) in (200, 201)
    schedule(relay, 1)
    before, weight = files(relay), memory(relay)
    with ExitStack() as stack:
        for listener, address in (("grpc", relay.target), ("http", relay.http), ("api", relay.api)):
            flood(stack, listener, address)
        for number in range(5):
            accepted.append(f"beside-{number}")
            producer.schedule(TOPIC, accepted[-1])
            schedule(relay, 5)
            assert api(relay) in (200, 201)
            assert relay.probe("/healthz/live") == relay.probe("/healthz/ready") == 200
    eventually(lambda: files(relay) <= before + 10, "the sockets are given back")
    assert memory(relay) < weight + 64 * 1024 * 1024
    eventually(lambda: set(accepted) <= set(stage.journal.ended()), "all are delivered")
    assert relay.probe("/healthz/live") == 200
    said = relay.metrics()
    assert 'relay_connections_refused_total{listener="api",reason="unreadable"}' in said
    assert 'relay_connections_refused_total{listener="http",reason="header"}' in said
    check_log(relay, "Invalid HTTP request received.", since)


def test_unreadable_messages_are_counted_and_said_once(stage: Stage) -> None:
    """Calls beside them are answered; the log has one line and no stack trace."""
    since = time.monotonic()
    relay = stage.relay()
    with grpc.insecure_channel(relay.target, options=CHANNEL) as channel:
        raw: Any = channel.unary_unary("/relay.v1.TimerService/Schedule")
        calls = [raw.future(b"\x0a\x7f", timeout=60.0) for _ in range(500)]
        schedule(relay, 20)
        assert {call.code() for call in calls} == {grpc.StatusCode.INVALID_ARGUMENT}
    line = 'relay_messages_unreadable_total{rpc_method="relay.v1.TimerService/Schedule"} 500'
    eventually(lambda: line in relay.metrics(), "they are counted")
    check_log(relay, "a message can't be read", since)
