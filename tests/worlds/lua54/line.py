"""Stands before a server: runs the scripts that clients send by Lua 5.4, and passes all else on."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, Self

from tests.worlds.lua54.engine import Command, Engine
from tests.worlds.lua54.wire import Gone, Refusal, Status, command, reply_from, written

STREAMING = frozenset((b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE", b"MONITOR"))
"""What more than one reply comes of."""

SCRIPTS = frozenset((b"EVAL", b"EVALSHA"))


class Upstream:
    """A connection to the server."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream: BinaryIO = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # who reads from it ends, too
        self.stream.close()
        self.socket.close()

    def ask(self, parts: list[bytes]) -> object:
        """Raises `Gone`, `OSError`."""
        self.socket.sendall(command(parts))
        return reply_from(self.stream)


class Lua54Line:
    """Listens on `port` for clients of the server on another. One command or script is under way at a time,
    as on a server: that is what makes a script whole."""

    def __init__(self, port: int, server: int) -> None:
        self._server = server
        self._one = threading.Lock()
        self._scripts: dict[bytes, bytes] = {}
        self._operator = Upstream(server)
        told = self._operator.ask([b"COMMAND"])
        assert isinstance(told, list)
        writes = frozenset(bytes(each[0]).upper() for each in told if b"write" in each[2])
        self._engine = Engine(writes, self._make_room)
        self._clients: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self._begin(self._accept)

    def _begin(self, task: Callable[..., None], *args: object) -> None:
        self._threads = [each for each in self._threads if each.is_alive()]
        thread = threading.Thread(target=task, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Cut everything."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in tuple(self._clients):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._operator.__exit__()

    def _make_room(self, forward: Command, parts: list[bytes]) -> object:
        limit = self._operator.ask([b"CONFIG", b"GET", b"maxmemory"])
        assert isinstance(limit, list)
        self._operator.ask([b"CONFIG", b"SET", b"maxmemory", b"0"])
        try:
            return forward(parts)
        finally:
            self._operator.ask([b"CONFIG", b"SET", b"maxmemory", limit[1]])

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._begin(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        self._clients.add(client)
        with (
            client,
            suppress(Gone, OSError),
            Upstream(self._server) as upstream,
            client.makefile("rb") as stream,
        ):
            self._exchange(client, stream, upstream)
        self._clients.discard(client)

    def _exchange(self, client: socket.socket, stream: BinaryIO, upstream: Upstream) -> None:
        is_streaming = False
        queued: list[list[bytes]] | None = None
        while True:
            parts = reply_from(stream)
            assert isinstance(parts, list), parts
            name = parts[0].upper()
            if name in STREAMING and not is_streaming:
                is_streaming = True
                self._begin(_pass_on, upstream, client)
            if is_streaming:
                upstream.socket.sendall(command(parts))
                continue
            if name == b"MULTI":
                queued = []
                reply: object = Status(b"OK")
            elif queued is not None and name not in (b"EXEC", b"DISCARD"):
                queued.append(parts)
                reply = Status(b"QUEUED")
            elif queued is not None:
                reply, queued = self._end(name, queued, upstream), None
            else:
                with self._one:
                    reply = self._reply(name, parts, upstream)
            client.sendall(written(reply))

    def _end(self, how: bytes, queued: list[list[bytes]], upstream: Upstream) -> object:
        """End a transaction. One with a script is as whole as a script: nothing else is under way."""
        if how == b"DISCARD":
            return Status(b"OK")
        with self._one:
            if any(parts[0].upper() in SCRIPTS for parts in queued):
                return [self._reply(parts[0].upper(), parts, upstream) for parts in queued]
            for parts in ([b"MULTI"], *queued):
                upstream.ask(parts)
            return upstream.ask([b"EXEC"])

    def _reply(self, name: bytes, parts: list[bytes], upstream: Upstream) -> object:
        if name not in SCRIPTS:
            if name == b"SCRIPT":
                return self._about_scripts(parts)
            return upstream.ask(parts)
        text = parts[1] if name == b"EVAL" else self._scripts.get(parts[1])
        if text is None:
            return Refusal(b"NOSCRIPT No matching script. Please use EVAL.")
        self._keep(text)
        keys = 3 + int(parts[2])
        return self._engine.run(text, parts[3:keys], parts[keys:], upstream.ask)

    def _keep(self, text: bytes) -> bytes:
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        self._scripts[sha] = text
        return sha

    def _about_scripts(self, parts: list[bytes]) -> object:
        what = parts[1].upper()
        if what == b"FLUSH":
            self._scripts.clear()
            return Status(b"OK")
        if what == b"LOAD":
            return self._keep(parts[2])
        assert what == b"EXISTS", parts
        return [int(sha in self._scripts) for sha in parts[2:]]


def _pass_on(upstream: Upstream, client: socket.socket) -> None:
    """What a subscriber hears, until one of both has gone."""
    with suppress(Gone, OSError, ValueError):  # it was closed in the middle of a reply
        while True:
            client.sendall(written(reply_from(upstream.stream)))
