"""Which durability a server can give, and what it says of a wait, whoever asks."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, TypeAlias

from redis.exceptions import ResponseError

from relay.core.durability import Durability
from relay.store.server.errors import CantGive, CantGiveNow, words

SYNC_INTERVAL = 1.2
"""Seconds within which a server with `appendfsync everysec` begins an fsync, if none is under way: one, and
what its loop, which turns ten times a second, may be late."""

PACE = 0.05
"""Seconds between two looks at a server that has an fsync under way."""

HOW_SYNCED = "CONFIG", "GET", "appendfsync"
NOT_SYNCED = "needs appendfsync everysec or always, and the server has no: set it"

FSYNCS = "INFO", "persistence"
UNDER_WAY = re.compile(rb"^aof_pending_bio_fsync:[1-9]", re.MULTILINE)
FILES = re.compile(rb"^aof_(?:rewrite_in_progress|base_size):\d+", re.MULTILINE)
"""What that says of fsyncs, and what changes in it with a rewrite of the append-only file."""

Questions: TypeAlias = Generator[tuple[str | int, ...], Any, bytes | None]
"""Commands to one server, each of which is answered by its reply, or by the exception in its place."""


class Replicas:
    """How many replicas were seen online at a time, at any server of the URL: `most`.

    Behind a failover the new master has fewer until the others follow it. So it passes, as far as anybody can
    tell, that a server lacks what was there before. In a Cluster it may have been another master that had
    them; and who takes replicas away for good is told so once relays are started again.
    """

    def __init__(self) -> None:
        self.most = 0


def look(level: Durability, replicas: Replicas) -> Questions:
    """Find out whether a server can give a level, without waiting for anything. Return the id of the server's
    process if it may sync its file once a second, and None otherwise. Notes what is seen of `replicas`.

    Raises `CantGive`, which says what to set, `CantGiveNow`, and redis-py's errors that are among the
    replies.
    """
    if level.replicas:
        there = online(_reply((yield "INFO", "replication")))
        replicas.most = max(replicas.most, there)
        if there < level.replicas:
            needs = "1 replica" if level.replicas == 1 else f"{level.replicas} replicas"
            if level.replicas <= replicas.most:
                raise CantGiveNow(f"it needs {needs}, and {there} of {replicas.most} are online at present")
            raise CantGive(
                f"durability: {level} needs {needs}, and the server has {there} that are online: start "
                "replicas, or ask for less"
            )
    if not level.fsync:
        return None
    refusal = yield wait_command(Durability(fsync=True), 1)
    if isinstance(refusal, ResponseError):
        raise CantGive(f"durability: {level} {_advice(str(refusal))}") from refusal
    _reply(refusal)
    synced = appendfsync((yield HOW_SYNCED))
    if synced == b"no":
        raise CantGive(f"durability: {level} {NOT_SYNCED}")
    return None if synced == b"always" else run_id(_reply((yield "INFO", "server")))


def _reply(reply: Any) -> Any:
    if isinstance(reply, BaseException):
        raise reply
    return reply


def appendfsync(reply: Any) -> bytes:
    """The setting, by the reply to `HOW_SYNCED`; empty if that may not be known. Raises redis-py's errors, if
    the reply is another one than a refusal."""
    if isinstance(reply, ResponseError):  # a right that only this question needs
        return b""
    settings = _reply(reply)
    return bytes(settings[-1]) if settings else b""


def files_at_rest(reply: Any) -> list[bytes] | None:
    """What tells the server's append-only files from those of before, by the reply to `FSYNCS`; None while an
    fsync is under way. Where nobody may ask, no fsync is seen."""
    if isinstance(reply, BaseException):
        return []
    return None if UNDER_WAY.search(reply) else FILES.findall(reply)


def wait_command(level: Durability, milliseconds: int) -> tuple[str | int, ...]:
    """What waits for a level, for at most that long."""
    if level.fsync:
        return "WAITAOF", 1, level.replicas, milliseconds
    return "WAIT", level.replicas, milliseconds


def run_id(told: bytes) -> bytes:
    """The id of the server's process in INFO; `?` if it isn't there."""
    found = re.search(rb"^run_id:(\w+)", told, re.MULTILINE)
    return found[1] if found else b"?"


def online(told: bytes) -> int:
    """How many replicas INFO says that take part."""
    return len(re.findall(rb"^slave\d+:.*state=online", told, re.MULTILINE))


def _advice(refusal: str) -> str:
    if "appendonly" in refusal:
        return "needs the server's append-only file, which is off: set appendonly to yes"
    if "unknown command" in refusal:
        return (
            "needs the command WAITAOF, which the server does not have (Redis has it from 7.2 on): replace "
            "the server, or ask for replicas"
        )
    return f"needs the command WAITAOF, which the server refuses: {refusal}"


def missing(level: Durability, reached: Any) -> str:
    """What was not reached, by the reply to `wait_command`, in words; empty if all was."""
    if isinstance(reached, BaseException):
        return words(reached)
    local, replicas = reached if level.fsync else (1, reached)
    if int(local) < level.fsync:
        return "the server's disk did not have it in time"
    if int(replicas) < level.replicas:
        return f"{int(replicas)} of {level.replicas} replicas had it in time"
    return ""
