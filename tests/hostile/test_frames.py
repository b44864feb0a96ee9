"""Frames of HTTP/2 that no client sends, on the port of gRPC."""

from __future__ import annotations

import random
import socket
import struct
from contextlib import suppress

import pytest

from tests.hostile.conftest import GROUP
from tests.worlds.relay.processes import Relay

pytestmark = GROUP

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
SETTINGS_EMPTY = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
END_HEADERS, END_STREAM = 4, 1
PATIENCE = 30.0


def frame(kind: int, flags: int, stream: int, content: bytes, length: int | None = None) -> bytes:
    size = len(content) if length is None else length
    return struct.pack(">I", size)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content


def header(name: bytes, value: bytes) -> bytes:
    """A field without HPACK's table and Huffman's code."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def request(stream: int = 1, path: bytes = b"/relay.v1.TimerService/Schedule") -> bytes:
    """The headers of a good call."""
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": path,
        b":authority": b"localhost",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    return frame(HEADERS, END_HEADERS, stream, b"".join(header(*each) for each in fields.items()))


def body(flag: int, length: int, content: bytes, stream: int = 1) -> bytes:
    return frame(DATA, END_STREAM, stream, bytes([flag]) + struct.pack(">I", length) + content)


CASES = {
    "a message of 4 GiB": request() + body(0, 0xFFFFFFFF, b"x"),
    "a message that ends early": request() + body(0, 100, b"x"),
    "a message that is compressed by nothing": request() + body(1, 4, b"\x0a\x02hi"),
    "a flag that is unknown": request() + body(7, 1, b"x"),
    "two messages on a unary call": request() + frame(DATA, 1, 1, b"\x00\x00\x00\x00\x00" * 2),
    "a path of another kind": request(path=b"/../../etc/passwd") + body(0, 0, b""),
    "an empty path": request(path=b"") + body(0, 0, b""),
    "headers that are noise": frame(HEADERS, END_HEADERS, 1, b"\xff" * 200),
    "a table of 4 GiB": frame(HEADERS, END_HEADERS, 1, b"\x3f\xff\xff\xff\xff\x0f"),
    "continuations without an end": frame(HEADERS, 0, 1, b"")
    + frame(CONTINUATION, 0, 1, b"\x00" * 16) * 2_000,
    "a continuation of nothing": frame(CONTINUATION, END_HEADERS, 1, b"x"),
    "data on stream 0": frame(DATA, 0, 0, b"x"),
    "data on a stream that is not open": frame(DATA, 0, 7, b"x"),
    "settings of an odd length": frame(SETTINGS, 0, 0, b"\x00" * 5),
    "settings that are too large": frame(SETTINGS, 0, 0, b"\x00\x04\xff\xff\xff\xff\x00\x05\x00\x00\x00\x00"),
    "windows that overflow": frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff") * 3,
    "a window of 0": frame(WINDOW, 0, 1, b"\x00\x00\x00\x00"),
    "a push from a client": frame(PUSH, END_HEADERS, 1, b"\x00\x00\x00\x02"),
    "a stream that depends on itself": frame(PRIORITY, 0, 1, b"\x00\x00\x00\x01\x10"),
    "a length without its bytes": frame(DATA, 0, 1, b"", 0xFFFFFF),
    "pings": frame(PING, 0, 0, b"x" * 8) * 3_000,
    "settings without an end": SETTINGS_EMPTY * 3_000,
    "calls that are reset at once": b"".join(
        request(stream) + frame(RST, 0, stream, b"\x00\x00\x00\x08") for stream in range(1, 4_000, 2)
    ),
    "farewell and on": frame(GOAWAY, 0, 0, b"\x00" * 8) + request(),
}


def send(relay: Relay, raw: bytes) -> None:
    """Send all that the relay takes, and wait until it has closed the connection or answered."""
    host, _, port = relay.target.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection, suppress(OSError):
        connection.sendall(PREFACE + SETTINGS_EMPTY + raw)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass


@pytest.mark.parametrize("case", CASES)
def test_frames_that_no_client_sends(relay: Relay, case: str) -> None:
    """The connection ends, and others are served."""
    send(relay, CASES[case])
    assert relay.health() == "SERVING"


def test_frames_by_chance(relay: Relay) -> None:
    """Frames of every kind, with lengths, flags and streams at random."""
    drawn = random.Random(31)
    for _ in range(60):
        frames = b"".join(
            frame(
                drawn.randrange(12),
                drawn.randrange(256),
                drawn.choice((0, 1, 1, 3, 2**31 - 1)),
                drawn.randbytes(drawn.randrange(64)),
                drawn.choice((None, None, None, drawn.randrange(2**24))),
            )
            for _ in range(drawn.randrange(1, 8))
        )
        send(relay, drawn.choice((b"", request())) + frames)
    assert relay.health() == "SERVING"
    assert relay.probe("/healthz/live") == 200
