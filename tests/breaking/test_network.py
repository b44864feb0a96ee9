"""A line cuts, delays, narrows, forgets and holds back what goes by it, until it is healed. At its ends stand
plain sockets, and a real server for what is held back."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from chaos.faults.network import CallsHeldBack
from chaos.load.client import PAYLOAD
from chaos.world import World
from tests.ghosts.slow_line import SlowLine
from tests.servers import RunningServer
from tests.worlds.waiting import eventually

PATIENCE = 60.0
"""Seconds; a test that waits in vain fails by that."""


class Ends:
    """Two ends of a line, connected."""

    def __init__(self, stack: ExitStack) -> None:
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._listener.settimeout(PATIENCE)
        self.line = stack.enter_context(SlowLine(self._listener.getsockname()[1]))
        self._stack = stack
        self.near, self.far = self.connect()

    def connect(self) -> tuple[socket.socket, socket.socket]:
        near = self._stack.enter_context(socket.create_connection(("127.0.0.1", self.line.port), PATIENCE))
        far = self._stack.enter_context(self._listener.accept()[0])
        far.settimeout(PATIENCE)
        passes(near, far)  # so that the line has both
        return near, far


@pytest.fixture
def ends() -> Iterator[Ends]:
    with ExitStack() as stack:
        yield Ends(stack)


def passes(sender: socket.socket, receiver: socket.socket, text: bytes = b"text") -> None:
    sender.sendall(text)
    assert receiver.recv(100) == text


def is_silent(end: socket.socket) -> bool:
    """Whether there is nothing to be read, and no end either."""
    end.settimeout(0.05)
    try:
        end.recv(100)
    except TimeoutError:
        return True
    finally:
        end.settimeout(PATIENCE)
    return False


def test_all_connections_are_cut_and_new_ones_are_taken(ends: Ends) -> None:
    ends.line.cut_all()
    assert ends.near.recv(1) == b""
    assert ends.far.recv(1) == b""
    ends.connect()


def test_what_is_delayed_comes_later_either_way(ends: Ends) -> None:
    ends.line.slow(delay=0.3)
    for sender, receiver in ((ends.near, ends.far), (ends.far, ends.near)):
        began = time.monotonic()
        passes(sender, receiver)
        assert time.monotonic() - began >= 0.3


def test_a_narrow_line_takes_its_time(ends: Ends) -> None:
    ends.line.slow(rate=10.0)
    began = time.monotonic()
    passes(ends.near, ends.far, b"12345")
    assert time.monotonic() - began >= 0.5


def test_healing_ends_the_wait(ends: Ends) -> None:
    ends.line.slow(delay=1e6)
    ends.near.sendall(b"text")
    assert is_silent(ends.far)
    ends.line.slow()
    assert ends.far.recv(100) == b"text"


def test_half_open(ends: Ends) -> None:
    """Neither end hears anything of the other, not even that it is gone; a new connection passes. Healed, the
    end that is left is told."""
    ends.line.forget_all()
    ends.near.sendall(b"lost")
    ends.far.sendall(b"lost")
    assert is_silent(ends.far)
    assert is_silent(ends.near)
    ends.connect()
    ends.near.close()
    assert is_silent(ends.far)
    ends.line.remember()
    assert ends.far.recv(1) == b""


def test_what_was_held_back_passes_to_whom_it_was_for(ends: Ends) -> None:
    """The sender is still there, and the line is as it was."""
    ends.line.hold("")
    ends.near.sendall(b"text")
    eventually(lambda: ends.line.holds, "the bytes are on their way")
    assert is_silent(ends.far)
    ends.far.sendall(b"meanwhile")
    eventually(lambda: ends.line._connections[0].replies, "the answer is on its way")
    assert is_silent(ends.near)
    ends.line.release()
    assert ends.far.recv(100) == b"text"
    assert ends.near.recv(100) == b"meanwhile"
    passes(ends.near, ends.far)


@contextmanager
def speaking(line: SlowLine) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", line.port), PATIENCE) as sender:
        yield sender


def test_a_ghost(valkey: RunningServer) -> None:
    """A command runs after its sender is gone, and after the sender's next one, by another connection."""
    with SlowLine(valkey.port) as line, valkey.client() as client:
        line.hold("first")
        with speaking(line) as sender:
            sender.sendall(b"SET ghost first\r\n")
            eventually(lambda: line.holds, "the command is on its way")
            line.hang_up()
            assert sender.recv(100) == b""
        line.let_pass()
        with speaking(line) as sender:
            sender.sendall(b"SET ghost second\r\n")
            assert sender.recv(100) == b"+OK\r\n"
        assert client.get("ghost") == b"second"
        line.release()
        eventually(lambda: client.get("ghost") == b"first", "the first command has run")
        client.delete("ghost")


def test_calls_that_store_timers_are_held_back_and_all_else_passes(valkey: RunningServer) -> None:
    """Their relay is cut off from them before they arrive."""
    with SlowLine(valkey.port) as line, valkey.client() as client:
        world, fault = (
            cast("World", SimpleNamespace(to_servers={"one": {valkey.port: line}})),
            CallsHeldBack(),
        )
        fault.strike(world, Random(1))
        with speaking(line) as caller, speaking(line) as other:
            caller.sendall(b"SET call '" + PAYLOAD.encode() + b"'\r\n")
            eventually(lambda: line.holds, "the call is on its way")
            other.sendall(b"EXISTS call\r\n")
            assert other.recv(100) == b":0\r\n"
            fault.heal(world)
            assert caller.recv(100) == b""
            eventually(lambda: client.get("call") == PAYLOAD.encode(), "the call has run")
            other.sendall(b"DEL call\r\n")
            assert other.recv(100) == b":1\r\n"
