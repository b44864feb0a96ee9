"""A server that answers what it is told to, and a line that loses replies."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from time import time


@asynccontextmanager
async def serving(answer: Callable[[bytes], bytes | None]) -> AsyncIterator[str]:
    """A URL at which each command, in lower case, is answered by `answer`; None hangs up."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                count = int((await reader.readuntil(b"\r\n"))[1:])
                parts = []
                for _ in range(count):
                    size = int((await reader.readuntil(b"\r\n"))[1:])
                    parts.append((await reader.readexactly(size + 2))[:-2])
                name = parts[0].lower()
                if name == b"time":
                    reply: bytes | None = b"*2\r\n" + bulk(str(int(time()))) + bulk("0")
                else:
                    reply = b"+OK\r\n" if name in (b"client", b"hello", b"select") else answer(name)
                if reply is None:
                    break
                writer.write(reply)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()


def bulk(text: str) -> bytes:
    """A RESP bulk string."""
    return f"${len(text.encode())}\r\n{text}\r\n".encode()


class Line:
    """A proxy in front of a server; it cuts the line instead of passing on a reply while `losing`.

    A connection by which something comes while it is `deaf` is never read again. What comes while it is
    `holding` goes no further, until `deliver`.

    `sent` is all that clients said, in order, and `told` all that the server did.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.sent = self.told = b""
        self.losing = False
        self.deaf = False
        self.holding = False
        self._held = b""
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        try:
            yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0)  # let the transports close

    def loses(self, reply: bytes) -> bool:
        """Whether to cut the line instead of passing on this piece of a reply."""
        return self.losing

    async def deliver(self) -> bytes:
        """Let the server have what was held, whatever became of those who said it; return its replies."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(self._held + b"*1\r\n$4\r\nPING\r\n")
        self._held = b""
        replies = await reader.readuntil(b"+PONG\r\n")
        writer.close()
        return replies.removesuffix(b"+PONG\r\n")

    def reset(self) -> None:
        """Every connection is lost at once, as when a machine between the two has forgotten it: what comes by
        it is refused, and its end is never told."""
        for writer in self._clients:
            linger = struct.pack("ii", 1, 0)  # so that closing sends RST instead of FIN
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        self._clients.clear()

    def hang_up(self) -> None:
        """Every connection is closed, behind what was passed on."""
        for writer in self._clients:
            writer.close()
        self._clients.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.append(writer)
        upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self.port)
        self._tasks.add(asyncio.ensure_future(self._there(reader, upstream)))
        self._tasks.add(asyncio.ensure_future(self._back(upstream_reader, writer, upstream)))

    async def _there(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(1 << 16):
                    self.sent += data
                    if self.deaf:
                        await asyncio.Event().wait()
                    if self.holding:
                        self._held += data
                        continue
                    upstream.write(data)
                    await upstream.drain()
        finally:
            upstream.close()

    async def _back(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: asyncio.StreamWriter
    ) -> None:
        try:
            with suppress(OSError):
                while (data := await reader.read(1 << 16)) and not self.loses(data):
                    writer.write(data)
                    await writer.drain()
                    self.told += data
        finally:
            writer.close()
            upstream.close()
