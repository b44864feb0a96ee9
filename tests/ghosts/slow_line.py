"""A line on the way to Redis, or to a relay, that holds bytes back after their sender is gone."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from math import inf
from types import TracebackType
from typing import Self

PATIENCE = 120.0
"""Seconds within which bytes must come that are waited for, on however busy a machine."""

LAST_WORD = b"*2\r\n$4\r\nECHO\r\n$16\r\nall-was-heard-so\r\n"
HEARD = b"$16\r\nall-was-heard-so\r\n"
"""A command that is sent behind bytes that were held back, and the reply to it: Redis has run them then."""


class Connection:
    """One connection of the sender's, and the one that goes on from here."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near, self.far = near, far
        self.waiting = bytearray()
        """What was sent, and has not gone on."""
        self.replies = bytearray()
        """What was answered since bytes were held back; the sender does not see it."""
        self.held = False
        self.forgotten = False
        """Whether what either end says is lost, and neither is told."""
        self.sender_is_gone = False
        self.ended = False
        """Whether one of its ends is gone, so that nothing comes back any more."""
        self.cut_after: int | None = None
        """So many bytes of the next reply still reach the sender; then its side is cut. None: all do."""

    def hang_up(self) -> None:
        """Close the sender's side: it is gone, and what it sent is not."""
        with suppress(OSError):
            self.near.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for end in (self.near, self.far):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class SlowLine:
    """Listens on `port` of 127.0.0.1, and carries bytes to another port and back.

    `hold(mark)`: from the piece that has `mark` in it on, a connection's bytes wait here. `hang_up` closes
    the sender's side of such connections. `deliver` hands their bytes to Redis, `release` to whom they were
    for. All else passes, at the pace that `slow` sets, unless `forget_all` or `cut_all` ends it.
    """

    def __init__(self, onward: int) -> None:
        self._onward = onward
        self._changed = threading.Condition()
        self._connections: list[Connection] = []
        self._mark: bytes | None = None
        self._pass_on = False
        self._cutting: tuple[bytes, int] | None = None
        self._delay, self._rate = 0.0, inf
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut = 0
        """How many replies were cut."""
        self._start(self._accept)

    @property
    def url(self) -> str:
        """The URL under which a relay reaches Redis by this line."""
        return f"redis://127.0.0.1:{self.port}/0"

    # ------------------------------------------------------------------ what a test asks for

    def hold(self, mark: str, *, pass_on: bool = False) -> None:
        """Hold back what carries this text from now on, and all that comes behind it on its connection; ""
        holds back everything.

        `pass_on`: let the piece with the text go on. So who stands still has it, and does not hear that its
        sender has gone.
        """
        with self._changed:
            self._mark, self._pass_on = mark.encode(), pass_on

    @property
    def holds(self) -> bool:
        """Whether the text has come."""
        with self._changed:
            return bool(self._held())

    def senders(self) -> set[int]:
        """The ports from which came what is held."""
        with self._changed:
            return {each.near.getpeername()[1] for each in self._held()}

    def hang_up(self) -> None:
        """Cut the sender off from the connections whose bytes are held. It notices at once."""
        with self._changed:
            for each in self._held():
                each.hang_up()

    def let_pass(self) -> None:
        """Hold back no more than there is."""
        with self._changed:
            self._mark = None

    def deliver(self) -> bytes:
        """Hand the held bytes to Redis, wait until it has run them, and return its replies. The relay does
        not get them. Raises `OSError` if Redis dies over that."""
        with self._changed:
            self._mark = None
            held = self._held()
            for each in held:
                each.far.sendall(bytes(each.waiting) + LAST_WORD)
                each.waiting.clear()
            done = self._changed.wait_for(
                lambda: all(HEARD in each.replies or each.ended for each in held), PATIENCE
            )
            assert done, f"Redis has not run within {PATIENCE:g} s what was held back"
            if any(HEARD not in each.replies for each in held):
                raise ConnectionResetError("Redis has not run all that was held back, and is gone")
            replies = b"".join(bytes(each.replies).partition(HEARD)[0] for each in held)
            for each in held:
                self._forget(each)
        return replies

    def wait_answered(self, text: bytes) -> None:
        """Return once the answer to what was held has this text in it; drop its connections."""
        with self._changed:
            held = self._held()
            told = self._changed.wait_for(lambda: all(text in each.replies for each in held), PATIENCE)
            assert told, f"no answer with {text!r} within {PATIENCE:g} s"
        self.drop()

    def wait_run(self) -> None:
        """Return once what was held is answered; the sender does not hear of it."""
        with self._changed:
            held = self._held()
            told = self._changed.wait_for(lambda: all(each.replies for each in held), PATIENCE)
            assert told, f"no answer within {PATIENCE:g} s"

    def release(self) -> None:
        """Hand the held bytes on. A sender that is still there gets what was answered meanwhile, and the line
        is as it was; behind the bytes of one that is gone the connection ends."""
        with self._changed:
            self._mark = None
            for each in self._held():
                with suppress(OSError):
                    each.far.sendall(each.waiting)
                    if each.sender_is_gone:
                        each.close()
                    else:
                        each.near.sendall(each.replies)
                each.waiting.clear()
                each.replies.clear()
                each.held = False

    def slow(self, *, delay: float = 0.0, rate: float = inf) -> None:
        """Let each piece wait so many seconds, either way, and pass so many bytes a second on each
        connection."""
        with self._changed:
            self._delay, self._rate = delay, rate
            self._changed.notify_all()

    def forget_all(self) -> None:
        """Leave all connections half open, as a router does that has forgotten them: what either end says
        from now on is heard by nobody, its own end included. New connections are taken as before."""
        with self._changed:
            for each in self._connections:
                each.forgotten = True

    def remember(self) -> None:
        """Tell both ends of connections that were forgotten."""
        with self._changed:
            for each in [each for each in self._connections if each.forgotten]:
                self._forget(each)

    def cut_all(self) -> None:
        """Break all connections, as a router does that restarts: what is on its way is lost. New connections
        are taken as before."""
        with self._changed:
            for each in self._connections:
                each.close()

    def drop(self) -> None:
        """Close the connections whose bytes are held: these arrive nowhere."""
        with self._changed:
            self._mark = None
            for each in self._held():
                self._forget(each)

    def cut_reply(self, mark: str, after: int) -> None:
        """Let the next piece with this text pass to Redis, and cut its reply after so many bytes."""
        with self._changed:
            self._cutting = (mark.encode(), after)

    def wait_cut(self, count: int) -> None:
        """Return once so many replies were cut."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.cut >= count, PATIENCE), f"{self.cut} replies were cut"

    def close(self) -> None:
        """Break all connections, and take no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            for each in self._connections:
                each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -------------------------------------------------------------------------- the threads

    def _held(self) -> list[Connection]:
        return [each for each in self._connections if each.held]

    def _start(self, target: object, *arguments: object) -> None:
        threading.Thread(target=target, args=arguments, daemon=True, name="slow line").start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._onward))
                except OSError:
                    near.close()
                    continue
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = Connection(near, far)
                with self._changed:
                    self._connections.append(connection)
                self._start(self._carry_up, connection)
                self._start(self._carry_down, connection)

    def _carry_up(self, connection: Connection) -> None:
        with suppress(OSError):
            while piece := connection.near.recv(65_536):
                self._take_time(piece)
                with self._changed:
                    self._taken(connection, piece)
                    self._changed.notify_all()
        with self._changed:
            connection.sender_is_gone = True
            if not connection.held:
                self._end(connection)

    def _take_time(self, piece: bytes) -> None:
        """Wait as long as `slow` says; one that says otherwise ends that."""
        with self._changed:
            delay, rate = self._delay, self._rate
            pause = delay + len(piece) / rate
            if pause:
                self._changed.wait_for(lambda: (self._delay, self._rate) != (delay, rate), pause)

    def _taken(self, connection: Connection, piece: bytes) -> None:
        if connection.forgotten:
            return
        marked = self._mark is not None and self._mark in piece
        connection.held |= marked
        if connection.held and not (marked and self._pass_on):
            connection.waiting += piece
            return
        if self._cutting is not None and self._cutting[0] in piece:
            connection.cut_after, self._cutting = self._cutting[1], None
        connection.far.sendall(piece)

    def _carry_down(self, connection: Connection) -> None:
        with suppress(OSError):
            while piece := connection.far.recv(65_536):
                self._take_time(piece)
                with self._changed:
                    self._answered(connection, piece)
                    self._changed.notify_all()
        with self._changed:
            self._end(connection)

    def _answered(self, connection: Connection, piece: bytes) -> None:
        if connection.forgotten:
            return
        if connection.held:
            connection.replies += piece
        elif connection.cut_after is None:
            connection.near.sendall(piece)
        else:
            connection.near.sendall(piece[: connection.cut_after])
            self.cut += 1
            connection.close()

    def _end(self, connection: Connection) -> None:
        connection.ended = True
        if connection.forgotten:
            return  # the other end does not hear of it
        self._forget(connection)
        self._changed.notify_all()

    def _forget(self, connection: Connection) -> None:
        connection.close()
        if connection in self._connections:  # it may have ended by itself
            self._connections.remove(connection)
