"""Lua 5.4 that runs scripts as a server does, each of their commands on a real one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lupa.lua54 import LuaRuntime, lua_type

from tests.chaos import CHAOS
from tests.worlds.lua54.wire import Refusal, Status

LIBRARIES = (Path(__file__).parent / "libraries.lua").read_bytes()

Command = Callable[[list[bytes]], object]
"""Runs a command, and returns its reply; see `reply_from`."""


class Engine:
    """One interpreter. One script runs at a time.

    `writes` are the names of commands that change something: what a full server refuses, it refuses before a
    script's first of them, and not behind it. `make_room` runs a command as if there were room. Whole numbers
    of replies are integers of Lua; in `make chaos` they are doubles, since servers may hand over either.
    """

    def __init__(self, writes: frozenset[bytes], make_room: Callable[[Command, list[bytes]], object]) -> None:
        self._writes = writes
        self._make_room = make_room
        self._lua: Any = LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False)
        self._run = self._lua.execute(LIBRARIES, self._command, self._sha1, self._decode)
        self._forward: Command
        self._dirty = False
        self._time: object = None

    def run(self, text: bytes, keys: Sequence[bytes], argv: Sequence[bytes], forward: Command) -> object:
        """Run a script, whose commands `forward` takes to the server; return what the server would reply."""
        self._forward, self._dirty, self._time = forward, False, None
        name = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        went_well, reply = self._run(name, text, self._lua.table_from(keys), self._lua.table_from(argv))
        return self._said(reply) if went_well else Refusal(reply)

    def _command(self, *args: object) -> tuple[bool, object]:
        parts = [_argument(each) for each in args]
        name = parts[0].upper()
        if name == b"TIME" and self._time is not None:
            return True, self._table(self._time)  # a script's clock stands still
        reply = self._forward(parts)
        if isinstance(reply, Refusal) and reply.startswith(b"OOM") and self._dirty:
            reply = self._make_room(self._forward, parts)
        if isinstance(reply, Refusal):
            return False, bytes(reply)
        if name == b"TIME":
            self._time = reply
        self._dirty = self._dirty or name in self._writes
        return True, self._table(reply)

    def _table(self, reply: object) -> object:
        """A reply as scripts see it."""
        if isinstance(reply, list):
            parts = [{b"err": bytes(x)} if isinstance(x, Refusal) else self._table(x) for x in reply]
            return self._lua.table_from(parts)
        if isinstance(reply, Status):
            return self._lua.table_from({b"ok": bytes(reply)})
        if isinstance(reply, int):
            return float(reply) if CHAOS else reply
        return False if reply is None else reply

    def _said(self, value: Any) -> object:
        """What a script returns as a reply."""
        if value is None or value is False:
            return None
        if value is True:
            return 1
        if isinstance(value, (int, float)):
            return int(value)
        if isinstance(value, bytes):
            return value
        assert lua_type(value) == "table", value
        for field, kind in ((b"err", Refusal), (b"ok", Status)):
            if value[field] is not None:
                return kind(value[field])
        parts: list[object] = []
        while (part := value[len(parts) + 1]) is not None:
            parts.append(self._said(part))
        return parts

    @staticmethod
    def _sha1(text: bytes) -> bytes:
        return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()

    def _decode(self, text: bytes) -> object:
        return self._of_json(json.loads(text.decode(errors="surrogateescape"), parse_int=float))

    def _of_json(self, value: object) -> object:
        if isinstance(value, str):
            return value.encode(errors="surrogateescape")
        if isinstance(value, list):
            return self._lua.table_from([self._of_json(each) for each in value])
        if isinstance(value, dict):
            fields = {self._of_json(name): self._of_json(each) for name, each in value.items()}
            return self._lua.table_from(fields)
        return value


def _argument(value: object) -> bytes:
    """An argument of `redis.call`, as servers print numbers."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("Command arguments must be strings or integers")
    return b"%d" % value if isinstance(value, int) else b"%.17g" % value
