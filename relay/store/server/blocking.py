"""The way to Redis that blocks, for Spark's workers: commands are sent ahead of their replies."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from time import monotonic
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from redis.exceptions import NoScriptError, RedisError

from relay.core.durability import STORED, Durability
from relay.core.endpoints.redis_url import parse
from relay.core.errors import StoreUnavailable
from relay.core.journal import NO_JOURNALS, Journals
from relay.core.partitions import Layout, layout_of
from relay.store.keys import KeyNames
from relay.store.server.cluster.blocking_nodes import BlockingNodes
from relay.store.server.cluster.redirects import REFUSALS
from relay.store.server.connect import options_of
from relay.store.server.durable.owed import Owed
from relay.store.server.errors import translated_errors, words
from relay.store.server.line import BLOCKING, Exchange, Line, OneServer, packed
from relay.store.server.pool import told_by
from relay.store.server.scripts import (
    Argument,
    Call,
    OnRefusedHint,
    Prepared,
    Scripts,
    publish_command,
    reply_of,
)
from relay.store.server.sentinel import SENTINEL_TIMEOUT

TIMEOUT = 20.0
"""Seconds within which Redis must answer: a loader is not a relay, and can wait."""

KEEP_ALL = 1 << 52
"""Records that a journal keeps where nobody told how many: trimming is left to the relays."""

R = TypeVar("R")

log = logging.getLogger(__name__)


@lru_cache(maxsize=16)
def log_refused_hint(reason: str) -> None:
    """Log once in this process that Redis refuses wake hints."""
    log.warning(
        "Redis refuses the wake hints of this load (%s): a relay that sleeps may be late with its timers by "
        "up to max_polling_interval; permit PUBLISH, in a Cluster SPUBLISH, on the channels that "
        "docs/how-to/redis.md names",
        reason,
    )


class ScriptCall(Protocol):
    """A script's call as it goes over the wire."""

    @property
    def call(self) -> Prepared:
        """What is called."""

    def encoded(self, until: int, *, known: bool) -> bytes:
        """See `Prepared.command`."""


class PlainCall(NamedTuple):
    """One that has all its arguments."""

    call: Prepared

    def encoded(self, until: int, *, known: bool) -> bytes:
        """See `ScriptCall`."""
        return packed(self.call.command(until, known=known))


class BlockingServer:
    """`Server` for one thread: a connection to the master, in a Cluster one to each node that is needed.

    `send` puts commands on their way, `receive` reads as many replies, in the same order, whichever node
    answers first. What Redis refuses is an exception among the replies; a connection that is lost raises
    `StoreUnavailable`, and what was sent and not answered may have happened. That is never sent twice. The
    error comes once Redis would refuse the scripts that were under way. If replies to other commands are
    awaited then, nobody could tell whose the next one is: from then on everything is refused, until `close`.

    What a node of a Cluster refuses because the slot has moved, or can't be had at present, was not done.
    Whoever calls with nothing else under way (`call`, `ask` and the like) is led to the right node; whoever
    has sent ahead finds the refusal among the replies (`is_refused`).

    A topic whose journal is there has one, whatever `journals` says of it. `on_refused_hint` is called for
    each wake hint that Redis refused. `texts` replaces scripts by other text, for tests that break them on
    purpose.
    """

    def __init__(
        self,
        url: str,
        keys: KeyNames | None = None,
        *,
        timeout: float = TIMEOUT,
        journals: Journals = NO_JOURNALS,
        durability: Callable[[str], Durability] = lambda _: STORED,
        on_refused_hint: OnRefusedHint = log_refused_hint,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """`timeout` is also the time for which refusals of a Cluster are followed (seconds). `durability` is
        that of a topic, which its changes have once `settle` has returned.

        Raises `ValueError` for a text that is not a URL, `UnfitServer` if a file that it names can't be
        used."""
        where = parse(url)
        self.keys = replace(keys or KeyNames(), hash_tags=True) if where.cluster else keys or KeyNames()
        self.on_refused_hint = on_refused_hint
        self._journals = journals
        self._kept: dict[str, int] = {}
        self._owed = Owed(self.keys, durability, timeout)
        self._scripts = Scripts(self.keys, texts, guarded=where.cluster)
        options = options_of(where, BLOCKING, timeout=timeout)
        self._servers: OneServer | BlockingNodes
        if where.cluster:
            to_ask = options_of(where, BLOCKING, timeout=SENTINEL_TIMEOUT)
            self._servers = BlockingNodes(
                where, options, to_ask, patience=timeout, changed=self._choose_hints
            )
        else:
            self._servers = OneServer(Line(options), hash_tags=self.keys.hash_tags)
        self._awaited: deque[Line] = deque()
        """Where each reply comes from that was not received yet."""
        self._trouble = ""
        """Why nothing can be sent or received any more."""

    def _choose_hints(self) -> None:
        self._scripts.publish_by(publish_command(is_sharded=self._servers.is_sharded))

    # ------------------------------------------------------------------ scripts

    def call(self, call: Call[R]) -> R:
        """Run a script; nothing else may be under way. Raises `StoreError`."""
        prepared = self.prepare(call)
        return self._read(call, prepared, self.run(PlainCall(prepared)))

    def each(self, calls: Sequence[Call[R]]) -> list[R]:
        """Run scripts at once; nothing else may be under way. Raises `StoreError`."""
        self._check_free()
        prepared = [self.prepare(call) for call in calls]
        replies = self._ran(prepared)
        refused = [place for place, reply in enumerate(replies) if is_refused(reply)]
        if refused:
            # By the first one the node is found, and learns the script: the others go out at once again.
            first, *others = refused
            replies[first] = self.run(PlainCall(prepared[first]))
            again = self._ran([prepared[place] for place in others])
            for place, reply in zip(others, again, strict=True):
                replies[place] = self.run(PlainCall(prepared[place])) if is_refused(reply) else reply
        return [
            self._read(call, made, reply) for call, made, reply in zip(calls, prepared, replies, strict=True)
        ]

    def _ran(self, prepared: Sequence[Prepared]) -> list[Any]:
        """What comes of scripts that are sent at once, refusals among it."""
        self.send(*(made.command(self.until(*made.keys[:1])) for made in prepared))
        return self.receive(len(prepared))

    def prepare(self, call: Call[Any]) -> Prepared:
        """The call for whoever sends it ahead; `reply_to` is what came of it. The first one for a topic asks
        for its journal, and then nothing else may be under way."""
        with self._lost():
            self._servers.known()  # the version of a Cluster says how hints are published
        return self._scripts.prepare(call, self.keep)

    def run(self, call: ScriptCall) -> Any:
        """Run a script with nothing else under way, by its text if the server does not know it; return its
        reply, for `reply_to`. Raises `StoreUnavailable`."""

        def attempt(to: Exchange) -> Any:
            (reply,) = to.replies(call.encoded(to.until(), known=True), 1)
            if isinstance(reply, NoScriptError):
                (reply,) = to.replies(call.encoded(to.until(), known=False), 1)
            if not is_refused(reply):
                self._owed.note(to.line, call.call)
            return reply

        return self._led(call.call.keys, attempt)

    def send_call(self, call: ScriptCall) -> None:
        """Send a script's call ahead, which has one reply.

        Race: the server does not know the script yet, and another load tells it while this one has several
        calls under way. The first ones would be refused, and come again behind the later ones: a timer with a
        row in two batches would get the older row. So the first call over a connection has the script's text.
        """
        sha = call.call.script.sha
        with self._lost():
            line = self._servers.line(call.call.keys)
            with self._doubted(line):
                until = line.until()
                self._owed.note(line, call.call)
                line.send(call.encoded(until, known=sha in line.told), 1)
        line.told.add(sha)
        self._awaited.append(line)

    def require(self, name: str) -> None:
        """Check, before anything is written to a topic or partition, that its node can give the durability of
        the topic. Nothing else may be under way. Raises `NotOffered`, which says what to set."""
        with self._lost():
            self._owed.require(self._servers.line((self.keys.key("timeline", name),)), name)

    def owe(self, name: str) -> None:
        """Have `settle` wait as well for what a load before has written to a topic or partition, to be called
        before that is asked for: it may have ended before that was durable. Raises `DurabilityMissed`,
        `StoreError`."""
        with self._lost():
            self._owed.owe(self._servers.line((self.keys.key("timeline", name),)), name)

    @property
    def owes(self) -> bool:
        """Whether there is something for which `settle` has to wait."""
        return self._owed.any

    def settle(self) -> None:
        """Wait until all that scripts have changed has the durability of its topic. Nothing else may be under
        way. Raises `DurabilityMissed`, `NotOffered`, `StoreUnavailable`."""
        self._check_free()
        with self._lost():
            self._owed.settle()

    def until(self, *keys: Argument) -> int:
        """The instant after which Redis refuses a script that is sent now (microseconds), by the clock of the
        node that has the keys. Raises `StoreError`."""
        with self._lost():
            return self._servers.line(keys).until()

    def _read(self, call: Call[R], prepared: Prepared, reply: Any) -> R:
        answer = self.reply_to(prepared, reply)
        read: R = answer if call.read is None else call.read(answer)
        return read

    def reply_to(self, prepared: Prepared, reply: Any) -> Any:
        """The script's own reply; raises `StoreError` where it is a refusal."""
        answer = checked(reply)
        if prepared.journaled:
            answer, _trimmed = answer
        return reply_of(answer, self.on_refused_hint) if prepared.script.journaled else answer

    def keep(self, name: str) -> int:
        """How many changes the journal of a topic or partition keeps; 0 if it has none."""
        if name not in self._kept:
            self.look_for_journals([name])
        return self._kept[name]

    def look_for_journals(self, names: Sequence[str]) -> None:
        """Ask which of these topics or partitions have a journal, so that no call of theirs has to. Nothing
        else may be under way. Raises `StoreError`."""
        new = [name for name in names if name not in self._kept]
        kinds = self.ask_each([("TYPE", self.keys.key("journal", name)) for name in new])
        for name, kind in zip(new, kinds, strict=True):
            layout = layout_of(name)
            keeps = layout.share(self._journals.keep(layout.topic))
            self._kept[name] = keeps or (KEEP_ALL if kind == b"stream" else 0)

    def layout_now(self, topic: str) -> Layout:
        """The layout of a topic, in which nothing begins by this. Nothing else may be under way. Raises
        `StoreError`."""
        key = self.keys.key("layout", topic)
        if self.ask("TYPE", key) != b"string":  # lease records lie there then
            return Layout(topic)
        return self.keys.read_layout(topic, self.ask("GET", key) or b"")

    # ----------------------------------------------------------------- commands

    def send(self, *commands: Sequence[Argument]) -> None:
        """Send commands ahead, each to the node of its key: a script's first one, any other command's first
        argument. One without arguments goes to any node."""
        with self._lost():
            for line, group in groupby(commands, lambda command: self._servers.line(key_in(command))):
                each = [packed(command) for command in group]
                with self._doubted(line):
                    line.send(b"".join(each), len(each))
                self._awaited.extend([line] * len(each))

    def send_packed(self, data: bytes, replies: int, *keys: Argument) -> None:
        """Send packed commands ahead, which will have `replies` replies, to the node that has the keys."""
        with self._lost():
            line = self._servers.line(keys)
            with self._doubted(line):
                line.send(data, replies)
        self._awaited.extend([line] * replies)

    def receive(self, count: int) -> list[Any]:
        """Read the next replies. Raises `StoreUnavailable`."""
        with self._lost():
            return [self._received(self._awaited.popleft()) for _ in range(count)]

    def _received(self, line: Line) -> Any:
        with self._doubted(line):
            reply = line.receive()
        if is_refused(reply):
            line.told.clear()  # whoever refuses a call has not taken its script's text either
        return reply

    def ask(self, *command: Argument) -> Any:
        """Send one command, whose key is as for `send`, and read its reply. Raises a refusal. Nothing else
        may be under way."""
        return self._asked(key_in(command), command)

    def ask_each(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Send commands at once, each to the node of its key as for `send`, and read their replies. Raises
        the first refusal. Nothing else may be under way."""
        self._check_free()
        self.send(*commands)
        replies = self.receive(len(commands))
        return [
            self.ask(*command) if is_refused(reply) else checked(reply)
            for command, reply in zip(commands, replies, strict=True)
        ]

    def atomic(self, *commands: Sequence[Argument]) -> list[Any]:
        """The replies to commands about one topic that only read; nothing comes between them. Raises a
        refusal. Nothing else may be under way."""
        transaction: list[Sequence[Argument]] = [("MULTI",), *commands, ("EXEC",)]
        data = b"".join(map(packed, transaction))

        def attempt(to: Exchange) -> Any:
            *queued, answer = to.replies(data, len(transaction))
            return next((reply for reply in queued if isinstance(reply, REFUSALS)), answer)

        answers: list[Any] = checked(self._led(key_in(commands[0]), attempt))
        return answers

    def scan(self, command: str, key: str, count: int) -> Iterator[list[Any]]:
        """The pages of SSCAN or HSCAN, of about `count` elements. Raises `StoreError`.

        A cursor means something to the node that gave it. If another one has the key then, it is read from
        its beginning again, and what was read before comes twice.
        """
        cursor = b"0"
        asked: Line | None = None
        answered: Line | None = None

        def page(to: Exchange) -> Any:
            nonlocal asked
            asked = to.line
            start = cursor if asked is answered else b"0"
            return to.replies(packed((command, key, start, "COUNT", count)), 1)[0]

        while True:
            cursor, found = checked(self._led((key,), page))
            answered = asked
            yield found
            if int(cursor) == 0:
                return

    def now(self, topic: str = "") -> int:
        """The time in microseconds since 1970 by the clock of Redis; in a Cluster by that of the node with
        the topic, or without one of any. Raises `StoreError`."""
        return told_by(self._asked((self.keys.key("timeline", topic),) if topic else (), ("TIME",)))

    def _asked(self, keys: Sequence[Argument], command: Sequence[Argument]) -> Any:
        return checked(self._led(keys, lambda to: to.replies(packed(command), 1)[0]))

    def _led(self, keys: Sequence[Argument], attempt: Callable[[Exchange], Any]) -> Any:
        """What comes of an attempt at the node with the keys."""
        self._check_free()
        with self._lost():
            return self._servers.lead(keys, attempt)

    def _check_free(self) -> None:
        """Raises `RuntimeError` while replies are awaited: the next one would be taken for another's."""
        if self._awaited and not self._trouble:
            raise RuntimeError(f"{len(self._awaited)} replies are under way")

    @contextmanager
    def _lost(self) -> Iterator[None]:
        """Raise what goes wrong with a connection within the block once nothing that was sent can act any
        more. Raises `StoreUnavailable`."""
        if self._trouble:
            raise StoreUnavailable(f"a connection was lost before, with replies under way: {self._trouble}")
        with translated_errors():
            try:
                yield
            except (RedisError, OSError) as failure:
                under_way = (line.given_up_at for line in self._servers.lines if line.waiting)
                time.sleep(max(max(under_way, default=-math.inf) - monotonic(), 0.0))
                if self._awaited:
                    self._trouble = words(failure)
                raise

    @contextmanager
    def _doubted(self, line: Line) -> Iterator[None]:
        """Note where a connection is lost within the block."""
        try:
            yield
        except (RedisError, OSError):
            self._servers.doubt(line)
            raise

    def close(self) -> None:
        """Leave; what is under way is not waited for."""
        self._awaited.clear()
        self._owed.forget()
        self._trouble = ""
        for line in self._servers.lines:
            line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def checked(reply: Any) -> Any:
    """The reply; raises `StoreError` if it is, or holds, a refusal."""
    for each in reply if isinstance(reply, list) else [reply]:
        if isinstance(each, RedisError):
            with translated_errors():
                raise each
    return reply


def is_refused(reply: Any) -> bool:
    """Whether a script did not run, and may run if it is sent again: the server does not know it by its
    digest, or a node of a Cluster can't take it."""
    return isinstance(reply, (NoScriptError, *REFUSALS))


def key_in(command: Sequence[Argument]) -> Sequence[Argument]:
    """The key by which a command finds its node; nothing if it has no arguments."""
    place = 3 if command[0] in ("EVALSHA", "EVAL") else 1
    return command[place : place + 1]


def as_arguments(*arguments: Argument) -> bytes:
    """Arguments as they go over the wire, without the number of them that stands before a command."""
    return packed(arguments).partition(b"\r\n")[2]
