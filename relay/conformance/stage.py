"""What a scene plays on: the scripted relay, and the client beside it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from relay.conformance.observed import Broken, Observed
from relay.conformance.scripted import ScriptedRelay
from relay.conformance.stream import TOPIC, ServedStream
from relay.conformance.under_test import ClientProcess
from relay.v1 import delivery_service_pb2 as pb

START_PATIENCE = 60.0
"""Seconds that a client may take to start: some languages compile first."""


class Stage(Observed):
    """A scene's relay and client."""

    def __init__(self, command: Sequence[str], folder: Path, patience: float) -> None:
        super().__init__(patience)
        self._folder = folder
        self._opened = 0
        self.relay = ScriptedRelay(self)
        self.command = command
        self.client = ClientProcess(command, "", folder / "client.log", self)

    async def handle(self, outstanding: int = 4) -> None:
        """Start the client as one that handles the topic."""
        await self._start("handle", TOPIC, str(outstanding))

    async def schedule(self, timer_id: str, delay_ms: int, payload: str) -> None:
        """Start the client as one that schedules a timer, and ends."""
        self.client.may_end = True
        await self._start("schedule", TOPIC, timer_id, str(delay_ms), payload)

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
        """Deliver, and wait until all of them have their receipts."""
        await stream.deliver(*deliveries)
        for each in deliveries:
            await self.receipt(stream, each)

    async def receipt(self, stream: ServedStream, of: pb.Delivery) -> None:
        """Wait for the receipt of a delivery."""
        await self.until(lambda: of.token in stream.received, f"the receipt of {of.timer_id} comes")

    async def outcome(self, stream: ServedStream, of: pb.Delivery) -> pb.Settlement:
        """Wait for the outcome of a delivery."""
        return await self.until(lambda: stream.outcomes.get(of.token), f"the outcome of {of.timer_id} comes")

    async def settled(self, stream: ServedStream, of: pb.Delivery, outcome: pb.Outcome) -> pb.Settlement:
        """Wait for it, and expect this one; raises `Broken` for another."""
        said = await self.outcome(stream, of)
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

    async def _start(self, *arguments: str) -> None:
        self.client = ClientProcess(self.command, self.relay.target, self._folder / "client.log", self)
        self.client.may_end = arguments[0] == "schedule"
        await self.client.start(*arguments)


def _named(outcome: int) -> str:
    return pb.Outcome.Name(outcome) if outcome in pb.Outcome.values() else str(outcome)


@asynccontextmanager
async def set_up(command: Sequence[str], patience: float) -> AsyncIterator[Stage]:
    """A stage, whose relay listens; in the end relay and client are gone."""
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="relay-conformance-"))
    stage = Stage(command, folder, patience)
    try:
        await stage.relay.start()
        yield stage
    finally:
        await stage.client.close()
        await stage.relay.close()
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
