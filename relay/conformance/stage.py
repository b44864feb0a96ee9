"""What a scene plays on: the scripted relay, which listens or dials, and the client beside it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from relay.conformance.dialled import DialledClient
from relay.conformance.observed import Broken, Observed, Unasked
from relay.conformance.scripted import ScriptedRelay
from relay.conformance.stream import TOPIC, ServedStream
from relay.conformance.under_test import MakeClient
from relay.v1 import delivery_service_pb2 as pb

START_PATIENCE = 60.0
"""Seconds that a client may take to start: some languages compile first."""
NO_PUSH = 64
"""The exit code of a client that has no push: EX_USAGE of sysexits.h, which no crash has."""


class Answers(Protocol):
    """What a client has answered, on a stream or to a call."""

    received: list[bytes]

    @property
    def outcomes(self) -> Mapping[bytes, pb.Settlement]:
        """By token."""

    @property
    def ended(self) -> str:
        """How it has ended, so that nothing more comes; empty as long as it has not."""


class Stage(Observed):
    """A scene's relay and client."""

    def __init__(self, make: MakeClient, folder: Path, patience: float) -> None:
        super().__init__(patience)
        self._folder = folder
        self._opened = 0
        self.relay = ScriptedRelay(self)
        self.dialled = DialledClient(self)
        self.client = make(self.relay.target, folder / "client.log", self)

    async def handle(self, outstanding: int = 4) -> None:
        """Start the client as one that handles the topic."""
        await self.client.start("handle", TOPIC, str(outstanding))

    async def schedule(self, timer_id: str, delay_ms: int, payload: str) -> None:
        """Start the client as one that schedules a timer, and ends."""
        self.client.may_end = True
        await self.client.start("schedule", TOPIC, timer_id, str(delay_ms), payload)

    async def pushed(self, places: int = 4) -> DialledClient:
        """Start the client as one that is pushed to, and dial it.

        Raises `Unasked` if it has no push, and `Broken` if it ends.
        """
        client, dialled = self.client, self.dialled
        client.may_end = True  # until it serves: its exit code may say that it has no push
        await client.start("push", TOPIC, dialled.address, str(places))
        dialled.dial()
        await self.until(
            lambda: dialled.has_health is not None or client.exit_code is not None,
            f"the client listens on {dialled.address}",
            patience=START_PATIENCE,
        )
        if client.exit_code == NO_PUSH:
            raise Unasked
        if client.exit_code is not None:
            raise Broken(
                f"the client ended by itself ({client.exit_code}; without push it has to be {NO_PUSH}): "
                f"{client.last_words()}"
            )
        client.may_end = False
        await self.serving()
        return dialled

    async def serving(self) -> None:
        """Wait until the client may be called."""
        await self.until(lambda: self.dialled.serving, "the health of its server as a whole says SERVING")

    async def arrived(self) -> ServedStream:
        """Return the next stream, once its Open has come."""
        number = self._opened
        self._opened += 1
        patience = self.patience if number else START_PATIENCE
        streams = self.relay.streams
        stream = await self.until(
            lambda: streams[number] if len(streams) > number else None,
            "the client opens a stream again" if number else "the client opens a stream",
            patience=patience,
        )
        await self.until(lambda: stream.open, "its first message comes", patience=patience)
        return stream

    async def opened(self) -> ServedStream:
        """Return the next stream, once it is open."""
        stream = await self.arrived()
        await stream.open_it()
        return stream

    async def stream(self, outstanding: int = 4) -> ServedStream:
        """Start the client, and return its stream."""
        await self.handle(outstanding)
        return await self.opened()

    async def begin(self, stream: ServedStream, *deliveries: pb.Delivery) -> None:
        """Deliver by stream, and wait until all of them have their receipts."""
        await stream.deliver(*deliveries)
        for each in deliveries:
            await self.receipt(stream, each)

    async def receipt(self, answers: Answers, of: pb.Delivery) -> None:
        """Wait for the receipt of a delivery. Raises `Broken` if none comes."""
        await self.until(
            lambda: of.token in answers.received or answers.ended, f"the receipt of {of.timer_id} comes"
        )
        if of.token not in answers.received:
            raise Broken(f"{answers.ended}, and the receipt of {of.timer_id} had not come")

    async def outcome(self, answers: Answers, of: pb.Delivery) -> pb.Settlement:
        """Wait for the outcome of a delivery. Raises `Broken` if none comes."""
        await self.until(
            lambda: of.token in answers.outcomes or answers.ended, f"the outcome of {of.timer_id} comes"
        )
        if of.token not in answers.outcomes:
            raise Broken(f"{answers.ended}, and the outcome of {of.timer_id} had not come")
        return answers.outcomes[of.token]

    async def settled(self, answers: Answers, of: pb.Delivery, outcome: pb.Outcome) -> pb.Settlement:
        """Wait for it, and expect this one; raises `Broken` for another."""
        said = await self.outcome(answers, of)
        if said.outcome != outcome:
            raise Broken(
                f"{of.timer_id}: {pb.Outcome.Name(outcome)} was asked for, and {_named(said.outcome)} came"
            )
        return said

    async def ended(self) -> int:
        """Wait for the client's end, and return its exit code."""
        await self.until(lambda: self.client.exit_code is not None, "the client ends")
        assert self.client.exit_code is not None
        return self.client.exit_code

    def gate(self, name: str = "gate") -> Path:
        """A file that isn't there: the handler of `hold PATH` works until it is."""
        return self._folder / name


def _named(outcome: int) -> str:
    return pb.Outcome.Name(outcome) if outcome in pb.Outcome.values() else str(outcome)


@asynccontextmanager
async def set_up(make: MakeClient, patience: float) -> AsyncIterator[Stage]:
    """A stage, whose relay listens; in the end relay and client are gone."""
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="relay-conformance-"))
    stage = Stage(make, folder, patience)
    try:
        await stage.relay.start()
        yield stage
    finally:
        await stage.client.close()
        await stage.dialled.close()
        await stage.relay.close()
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
