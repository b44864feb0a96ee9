"""The commands that Relay needs, what for, and how a server is asked whether it has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from relay.core.dispatch import Dispatch
from relay.store.server.manifest import text_of

PROBE = text_of("lib/server/probe")


class Feature(Enum):
    """What commands are needed for; the value ends a sentence."""

    TIMERS = "to schedule, deliver and settle timers"
    PEOPLE = "for dead letters, pauses and the list of topics"
    RECURRENCES = "for recurrences, topics with a journal, and those that are moved"
    JOURNAL = "for topics with a journal"
    LIST = "for topics that go to a ready list"
    STREAM = "for topics that go to a stream"
    MOVES = "to change how many partitions a topic has"


BASE = (Feature.TIMERS, Feature.PEOPLE, Feature.RECURRENCES, Feature.JOURNAL)
"""What every relay does, or may be asked to do."""

BEHIND = {Dispatch.LIST: Feature.LIST, Dispatch.STREAM: Feature.STREAM}
"""What a topic needs besides whose due timers go on to there."""

TRIALS: Mapping[Feature, Sequence[str]] = {
    Feature.TIMERS: (
        "TIME",
        "TYPE k",
        "GET k",
        "ZADD k x m",
        "ZREM k m",
        "ZRANGE k 0 0",
        "ZRANGEBYSCORE k 0 0",
        "ZCARD k",
        "ZCOUNT k 0 0",
        "ZSCORE k m",
        "ZMSCORE k m",
        "HGET k f",
        "HMGET k f",
        "HSET k f v",
        "HDEL k f",
        "HLEN k",
        "HSTRLEN k f",
        "HSCAN k 0",
        "XADD k 0-0 f v",
        "XDEL k 0-0",
    ),
    Feature.PEOPLE: ("XRANGE k - +", "XLEN k", "XTRIM k MAXLEN 0", "SADD k m", "SSCAN k 0"),
    Feature.RECURRENCES: ("HEXISTS k f", "ZSCAN k 0"),
    Feature.JOURNAL: ("XREVRANGE k + -",),
    Feature.LIST: ("LPUSH k m", "RPUSH k m", "LRANGE k 0 0", "LLEN k", "LREM k 0 m"),
    Feature.STREAM: (
        "XGROUP CREATE k g $",
        "XPENDING k g",
        "XREADGROUP GROUP g c STREAMS k >",
        "XCLAIM k g c 0 0-0",
        "XAUTOCLAIM k g c 0 0-0",
        "XACK k g 0-0",
        "XINFO GROUPS k",
    ),
    Feature.MOVES: ("RENAME k k", "HGETALL k", "HKEYS k"),
}
"""Each command with arguments that do no harm to a key that holds a text: see `lib/server/probe.lua`, which
tries SET and DEL, too."""

ALWAYS = {"SET": Feature.TIMERS, "DEL": Feature.TIMERS}

OUTSIDE: Mapping[str, str] = {
    "EVAL": "to run its scripts",
    "EVALSHA": "to run its scripts",
    "INFO": "to tell a master from a replica",
    "TIME": "to go by the server's clock",
    "PING": "to see whether the server lives",
    "CLUSTER": "to find the nodes of a Cluster",
}
"""What a relay sends by itself."""

SHARDED_PUBLISH = ("SPUBLISH",)
"""Refused by each server, and by one that has the command for its arguments."""

_MISSING = re.compile(r"unknown (?:\w+ )?command|unknown subcommand", re.IGNORECASE)
_REFUSED = re.compile(
    r"no permissions? to run|can't run this command|command is not allowed|"
    r"command not allowed(?! when)|not supported|is disabled",
    re.IGNORECASE,
)
_NO_LUA = re.compile(r"scripting engine|scripting (?:is )?disabled", re.IGNORECASE)
_NAME = re.compile(r"unknown command [`'\"]?([a-z|]+)|to run the '([a-z|]+)' command", re.IGNORECASE)


class Lack(NamedTuple):
    """A command that a server does not give. `words` are the server's."""

    command: str
    purpose: str
    words: str

    @property
    def is_vital(self) -> bool:
        """Whether no timer is delivered without it."""
        return self.purpose == Feature.TIMERS.value or self.command in OUTSIDE

    def __str__(self) -> str:
        if self.command in ("EVAL", "EVALSHA") and (_NO_LUA.search(self.words) or is_missing(self.words)):
            return (
                f"the server runs no scripts ({self.words}), and all that Relay does is one: load its Lua "
                f"module, which Valkey has from 9.1 on, or give {self.command} its name back where "
                "rename-command took it"
            )
        if is_missing(self.words):
            return (
                f"the server has no command {self.command}, which Relay needs {self.purpose}: give it its "
                "name back where rename-command took it, or take a newer server: Redis 6.2 has it, or Valkey"
            )
        return (
            f"the server refuses the command {self.command}, which Relay needs {self.purpose} "
            f"({self.words}): give the user +{self.command.lower()}, as docs/how-to/redis.md lists it"
        )


def trials(features: Iterable[Feature]) -> list[str]:
    """What to try for some features, as the probe takes it."""
    return [line for feature in features for line in TRIALS[feature]]


def lacks_in(reply: Sequence[bytes]) -> Iterator[Lack]:
    """What is lacking, by the probe's reply. Other refusals, as that of a full server, are none."""
    purposes = {line.split()[0]: feature for feature in Feature for line in TRIALS[feature]} | ALWAYS
    said = [text.decode(errors="replace") for text in reply]
    for command, words in zip(said[::2], said[1::2], strict=True):
        if is_missing(words) or _REFUSED.search(words):
            yield Lack(command, purposes[command].value, _short(words))


def lack_of(words: str, command: str = "") -> Lack | None:
    """What is lacking where a command was refused outside a script, by the server's words; None if these tell
    of something else."""
    if not (is_missing(words) or _REFUSED.search(words) or _NO_LUA.search(words)):
        return None
    named = _NAME.search(words)
    name = (named[1] or named[2]).upper().partition("|")[0] if named else command
    return Lack(name, OUTSIDE[name], _short(words)) if name in OUTSIDE else None


def is_missing(words: str) -> bool:
    """Whether a server that says so has no such command."""
    return bool(_MISSING.search(words))


def _short(words: str) -> str:
    """Without the script's digest and line."""
    return re.sub(r"^.*@user_script: ?\d+: | script: .*$|, with args beginning with.*$", "", words).strip()
