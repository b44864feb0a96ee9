"""Addresses as text, `host:port` with an IPv6 host in brackets, and why a listener can't bind one."""

from __future__ import annotations

import errno
import os
import re
import socket

REASONS = {
    errno.EADDRINUSE: "another process listens there already",
    errno.EACCES: "the port needs privileges that this process lacks",
    errno.EADDRNOTAVAIL: "this machine has no such address",
}

_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)


def split(value: str) -> tuple[str, int]:
    """Return host (without brackets) and port, 0 to 65535. Raises `ValueError`, which says what is wanted."""
    host, colon, port = value.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not (host and colon and _PORT.fullmatch(port) and int(port) <= 65_535):
        raise ValueError(f"must be host:port with a port from 0 to 65535, got {value!r}")
    return host, int(port)


def join(host: str, port: int) -> str:
    """Join host and port: the reverse of `split`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reason(error: Exception) -> str:
    """Say in words why an address could not be bound."""
    if isinstance(error, socket.gaierror):
        return "the host name has no address"
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        return str(error)
    return REASONS.get(number, os.strerror(number))
