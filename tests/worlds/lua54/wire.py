"""Redis' protocol, as far as one who stands between a client and a server has to read and write it."""

from __future__ import annotations

from typing import BinaryIO

Reply = "bytes | int | list[Reply] | Status | Refusal | Nothing | None"


class Status(bytes):
    """Such as OK."""


class Refusal(bytes):
    """An error."""


class Gone(ConnectionError):
    """The other side has closed the connection."""


def reply_from(stream: BinaryIO) -> object:
    """The next reply: bytes, a whole number, a list, None, `Status` or `Refusal`. Raises `Gone`."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise Gone
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return Status(rest)
    if kind == b"-":
        return Refusal(rest)
    if kind == b":":
        return int(rest)
    size = int(rest)
    if size < 0:
        return None
    if kind == b"*":
        return [reply_from(stream) for _ in range(size)]
    assert kind == b"$", line
    return stream.read(size + 2)[:-2]


def written(reply: object) -> bytes:
    """A reply in the protocol."""
    if isinstance(reply, list):
        return b"*%d\r\n%s" % (len(reply), b"".join(map(written, reply)))
    if isinstance(reply, Status):
        return b"+%s\r\n" % bytes(reply)
    if isinstance(reply, Refusal):
        return b"-%s\r\n" % bytes(reply)
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if reply is None:
        return b"$-1\r\n"
    assert isinstance(reply, bytes), reply
    return b"$%d\r\n%s\r\n" % (len(reply), reply)


def command(parts: list[bytes]) -> bytes:
    """A command in the protocol."""
    return written(list(map(bytes, parts)))
