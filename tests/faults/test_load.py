"""What callers ask for is what faults and judges take it for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos.ledger import Ledger
from chaos.load import client
from chaos.load.calls import Insistent
from chaos.load.operator import Recurring
from relay.client import RelayClient


class Relay:
    """Takes calls, and answers each."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    async def schedule(self, _: str, payload: bytes, **__: Any) -> SimpleNamespace:
        self.payloads.append(payload)
        return SimpleNamespace(durability="stored")

    async def recur(self, _: str, *, payload: bytes, **__: Any) -> SimpleNamespace:
        self.payloads.append(payload)
        return SimpleNamespace(next_time=None)

    async def cancel(self, *_: Any, **__: Any) -> SimpleNamespace:
        return SimpleNamespace(durability="stored")


async def at_once(_: float) -> None:
    """Lives take seconds otherwise."""


async def test_every_payload_has_the_text_by_which_calls_are_held_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "sleep", at_once)
    relay = Relay()
    caller = Insistent([cast("RelayClient", relay)], Ledger(tmp_path, "client-1"), 3.0)
    for number in range(50):
        await client.Life(caller, f"client-1-{number}", "", Random(number)).live()
    await Recurring(caller, "every-second", "").put()
    assert len(relay.payloads) > 50
    assert all(client.PAYLOAD.encode() in each for each in relay.payloads)
