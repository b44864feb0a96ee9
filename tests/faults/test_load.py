"""What callers ask for is what faults and judges take it for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from chaos.ledger import Ledger, lines
from chaos.load import client
from chaos.load.calls import Insistent
from relay.client import CallError, RelayClient


class Relay:
    """Takes calls, and answers each."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    async def schedule(self, _: str, payload: bytes, **__: Any) -> SimpleNamespace:
        self.payloads.append(payload)
        return SimpleNamespace(durability="stored")

    async def cancel(self, *_: Any, **__: Any) -> SimpleNamespace:
        return SimpleNamespace(durability="stored")


async def at_once(_: float) -> None:
    """Lives, and pauses between tries, take seconds otherwise."""


async def test_a_call_ends_with_the_error_that_is_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for what is not there any more asks once; any other error is met by a next try."""
    monkeypatch.setattr(asyncio, "sleep", at_once)
    errors = [
        CallError("away", code=grpc.StatusCode.UNAVAILABLE),
        CallError("gone", code=grpc.StatusCode.NOT_FOUND),
    ]

    async def act(*_: Any) -> dict[str, Any]:
        raise errors.pop(0)

    ledger = Ledger(tmp_path, "operator")
    caller = Insistent([cast("RelayClient", Relay())], ledger, 3.0)
    assert await caller.ask("r", act, final="NOT_FOUND", n=2, what="pause") is None
    answers = [entry for entry in lines(tmp_path / "operator.jsonl") if entry["kind"] == "answer"]
    assert [each["code"] for each in answers] == ["UNAVAILABLE", "NOT_FOUND"]


async def test_every_payload_has_the_text_by_which_calls_are_held_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "sleep", at_once)
    relay = Relay()
    caller = Insistent([cast("RelayClient", relay)], Ledger(tmp_path, "client-1"), 3.0)
    for number in range(50):
        await client.Life(caller, f"client-1-{number}", "", Random(number)).live()
    assert len(relay.payloads) > 50
    assert all(client.PAYLOAD.encode() in each for each in relay.payloads)
