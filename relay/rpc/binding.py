"""Where the gRPC server listens: an address or a Unix socket, with TLS or without."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

import grpc

from relay.core.endpoints import addresses
from relay.core.errors import CannotListen

UNIX = "unix:"
SETTING = "grpc.listen"


@dataclass(frozen=True, slots=True)
class Binding:
    """`listen` is `host:port` or `unix:/path`; the mode and the group (empty for the process's own) are those
    of the socket. Without `credentials` the server speaks plain HTTP/2."""

    listen: str
    socket_mode: int = 0o660
    socket_group: str = ""
    credentials: grpc.ServerCredentials | None = None


def bind(server: grpc.aio.Server, binding: Binding) -> str:
    """Let the server listen; return the address, with the actual port. Raises `CannotListen`."""
    listen, credentials = binding.listen, binding.credentials
    unix = listen.startswith(UNIX)
    if unix:
        _check_free(listen.removeprefix(UNIX))
    # gRPC makes sockets with mode 0755. Nobody else may connect before the mode is set.
    umask = os.umask(0o177) if unix else 0
    try:
        if credentials is None:
            port = server.add_insecure_port(listen)
        else:
            port = server.add_secure_port(listen, credentials)
    except RuntimeError as failure:
        raise CannotListen(SETTING, listen, _why(listen)) from failure
    finally:
        if unix:
            os.umask(umask)
    if unix:
        path = Path(listen.removeprefix(UNIX))
        if binding.socket_group:
            _give_to(path, binding.socket_group)
        path.chmod(binding.socket_mode)  # last: nobody may connect before the group is set
        return listen
    host, _, _ = listen.rpartition(":")
    return f"{host}:{port}"


def _give_to(path: Path, group: str) -> None:
    """Raises `CannotListen` if there is no such group, or this process is not in it."""
    try:
        shutil.chown(path, group=int(group) if group.isdigit() else group)
    except (LookupError, OSError) as error:
        path.unlink(missing_ok=True)
        lacks = isinstance(error, PermissionError)
        reason = "this process is not in it" if lacks else "there is no such group"
        raise CannotListen(
            SETTING, f"{UNIX}{path}", f"grpc.socket_group is {group!r}, and {reason}"
        ) from None


def _check_free(path: str) -> None:
    """Raises `CannotListen` for a path that can't be used. gRPC would take a live relay's socket away from
    it."""
    if not Path(path).parent.is_dir():
        raise CannotListen(SETTING, f"{UNIX}{path}", "its directory does not exist")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            probe.connect(path)
    except TimeoutError:
        pass  # a process listens there, and is too busy to take a connection
    except OSError:
        return  # nothing is there, or the socket of a relay that was killed
    raise CannotListen(SETTING, f"{UNIX}{path}", addresses.REASONS[errno.EADDRINUSE])


def _why(listen: str) -> str:
    """Find out why the server can't listen there: gRPC doesn't say, but the system does."""
    if listen.startswith(UNIX):
        return "no socket can be made there"
    try:
        host, port = addresses.split(listen)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = found[0]
        socket.create_server(where, family=family).close()
    except (OSError, ValueError) as error:
        return addresses.reason(error)
    return "gRPC can't use it"
