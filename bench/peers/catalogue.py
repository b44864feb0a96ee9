"""Which peers there are, where their programs come from, and which tunings are tried."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

Command = tuple[str, ...]
Tuning = Mapping[str, Any]


class Missing(Exception):
    """What the peer needs is not on this machine; the message says what."""


@dataclass(frozen=True)
class Peer:
    """One peer. `install` answers its command and version, or raises `Missing`.

    `tunings` are tried beside its defaults; the fastest is measured. `share` is the part of the plan's
    timers that it drains, `defaults_share` at its defaults: the slow ones get fewer, so that all end in
    time. `env` says that it needs the clone on its path.
    """

    name: str
    install: Callable[[], tuple[Command, str]]
    tunings: tuple[Tuning, ...]
    share: float = 1.0
    defaults_share: float = 1.0
    env: Mapping[str, str] = field(default_factory=dict)


def module(name: str, package: str) -> Callable[[], tuple[Command, str]]:
    """A Python peer that the extra `bench` brings."""
    return lambda: ((sys.executable, "-m", f"bench.peers.{name}"), version(package))


PEERS = (
    Peer(
        "faststream-redis-timers",
        module("faststream", "faststream-redis-timers"),
        tunings=tuple(
            {"max_concurrent": concurrent, "polling_interval": 0.001}
            for concurrent in (50, 200, 1_000, 5_000)
        ),
        defaults_share=1 / 12,
    ),
)
