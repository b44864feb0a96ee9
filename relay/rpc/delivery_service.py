"""`DeliveryService`: one bidirectional stream of batches for each application."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
from grpc.aio import ServicerContext

from relay.api import frames
from relay.api.access import Access, Holding
from relay.api.settlements import admit, agreed, invalid, problem, take, told
from relay.core import validate
from relay.core.errors import Denied, InvalidField, OverBound, Unauthenticated
from relay.core.trust.usage import Bounds, Usage
from relay.core.trust.verbs import AccessVerb
from relay.engine.delivery.session import REST, Outgoing, Session
from relay.engine.engine import Engine
from relay.rpc.callers import prove_again
from relay.rpc.errors import abort
from relay.v1 import delivery_service_pb2 as pb
from relay.v1 import delivery_service_pb2_grpc as base

Context = ServicerContext[Any, Any]

MAX_TOPICS = 1_000
"""The most topics of one stream; each has a poller of its own."""

LEAVE = 30.0
"""Seconds that an application has to settle what it has after it has lost the right to more."""

LAST_WORDS = 1.0
"""Seconds that it has to read what the relay still says to it then."""


class DeliveryService(base.DeliveryServiceServicer):
    """See `proto/relay/v1/delivery_service.proto`."""

    def __init__(self, engine: Engine, access: Access | None = None, bounds: Bounds | None = None) -> None:
        self._engine = engine
        self._access = access or Access()
        self._bounds = bounds or Bounds(time.monotonic)

    async def Deliver(self, _requests: object, context: Context) -> None:
        """Serve one stream, from Open to its end."""
        try:
            usage = self._bounds.open()
        except OverBound as failure:
            await abort(context, failure)
        try:
            await self._serve(context, usage)
        finally:
            usage.close()

    async def _serve(self, context: Context, usage: Usage) -> None:
        try:
            opened = await self._open(context)
        except (InvalidField, Denied) as failure:
            await abort(context, failure)
        if opened is None:
            return
        session, asked = opened
        with self._access.hold(AccessVerb.DELIVER, session.topics) as right:
            await self._deliver(session, asked, context, usage, right)

    async def _deliver(
        self, session: Session, asked: pb.Open, context: Context, usage: Usage, right: Holding
    ) -> None:
        tasks: list[asyncio.Task[Any]] = []
        try:
            self._rest(session, usage, 0)  # else each new stream would have a frame beyond the bound
            # Before the answer: a relay that is told to stop in between would not wait for this application,
            # which knows already that its stream is open.
            self._engine.attach(session)
            answer = pb.Opened(acknowledged=True, handlers=told(session.handlers))
            await context.write(pb.DeliverResponse(opened=answer))
            reader = asyncio.create_task(self._read(session, context, usage))
            writer = asyncio.create_task(self._write(session, context, asked, usage))
            lost = asyncio.create_task(right.lost.wait())
            tasks += (reader, writer, lost, asyncio.create_task(prove_again(right)))
            await asyncio.wait((reader, writer, lost), return_when=asyncio.FIRST_COMPLETED)
            if lost.done():
                self._engine.quiesce(session, say=True)
                await asyncio.wait((reader, writer), timeout=LEAVE, return_when=asyncio.FIRST_COMPLETED)
            for task in (reader, writer):
                if task.done():
                    task.result()  # raises the error that ended it
            self._detach(session)
            await self._engine.flush(session)
            session.finish()
            await asyncio.wait((writer,), timeout=None if right.why is None else LAST_WORDS)
            if right.why is not None:
                raise right.why
            writer.result()
        except (InvalidField, Denied, Unauthenticated) as failure:
            self._engine.detach(session, broken=False)  # the application may not even read the status
            await abort(context, failure)
        finally:
            # A broken connection cancels the call, and comes here, too.
            self._detach(session)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _detach(self, session: Session) -> None:
        """Detach the session if it is not detached yet: a detached session drains, and holds nothing any
        more."""
        # The death of an application looks like an end without a Drain before it, too.
        self._engine.detach(session, broken=not session.draining)

    async def _open(self, context: Context) -> tuple[Session, pb.Open] | None:
        """Read Open and return the stream's session, and what the Open said; None if the stream ended before.
        Raises `InvalidField`, `Denied`."""
        request = await context.read()
        if request is grpc.aio.EOF:
            return None
        if request.WhichOneof("message") != "open":
            raise InvalidField("open", "has to come first; send it before anything else")
        topics = list(request.open.topics)
        if not 1 <= len(topics) <= MAX_TOPICS:
            raise InvalidField("topics", f"has {len(topics)} names; give 1 to {MAX_TOPICS:,}")
        for topic in topics:
            self._access.require(AccessVerb.DELIVER, topic, field="topics")
        admit(self._engine, "topics", topics)
        limit = request.open.max_outstanding
        if not 1 <= limit <= validate.MAX_OUTSTANDING:
            raise InvalidField("max_outstanding", f"is {limit}; give 1 to {validate.MAX_OUTSTANDING}")
        slow = request.open.slow_outstanding
        if not 0 <= slow <= limit:
            raise InvalidField("slow_outstanding", f"is {slow}; give 0 to max_outstanding, which is {limit}")
        handlers = agreed(self._engine, request.open.handlers, topics)
        return self._engine.open(topics, limit, slow, handlers), request.open

    async def _read(self, session: Session, context: Context, usage: Usage) -> None:
        """Take the application's messages until it ends its side. Raises `InvalidField`."""
        while (request := await context.read()) is not grpc.aio.EOF:
            kind = request.WhichOneof("message")
            if kind == "settle":
                self._settle(session, request.settle)
                await session.listening()
            elif kind == "drain":
                self._engine.quiesce(session)
            elif kind == "open":
                raise InvalidField("open", "came twice; open another stream for other topics")
            else:
                raise InvalidField("message", "is empty or unknown; send settle or drain")
            if usage.counts_bytes:
                await self._listen_later(session, usage, usage.said(request.ByteSize()))

    async def _listen_later(self, session: Session, usage: Usage, pause: float) -> None:
        """Wait for the end of the pause, of the debt if a new policy ends it before, or for a drain."""
        if pause and not session.draining:
            self._bounds.held_back(usage.name, pause)
        end = time.monotonic() + pause
        while not session.draining and (left := min(end - time.monotonic(), usage.said(0))) > 0:  # noqa: ASYNC110 (a new policy wakes nobody)
            await asyncio.sleep(min(left, REST))

    async def _write(self, session: Session, context: Context, asked: pb.Open, usage: Usage) -> None:
        """Write the session's messages until it has finished."""
        while (outgoing := await session.next()) is not None:
            frame = await _say(outgoing, context, asked)
            if frame is not None and usage.counts_bytes:
                self._rest(session, usage, frame.ByteSize())

    def _rest(self, session: Session, usage: Usage, size: int) -> None:
        if pause := usage.delivered(size):
            self._bounds.held_back(usage.name, pause)
            session.rest(pause, usage.owes)

    def _settle(self, session: Session, said: pb.Settle) -> None:
        if said.received:
            self._engine.received(session, said.received)

        def wrong(token: bytes, failure: InvalidField) -> None:
            session.complain(token, invalid(failure))

        take(self._engine, session, said.settlements, said.acknowledged, wrong=wrong)


async def _say(outgoing: Outgoing, context: Context, asked: pb.Open) -> pb.DeliverResponse | None:
    """Write one message; return its deliveries, if it had any."""
    frame = None
    if outgoing.parts:
        frame = frames.frame(outgoing.parts, columns=asked.columns, header_columns=asked.header_columns)
        for part in outgoing.parts:
            part.drop_payloads()
        await context.write(frame)
    if outgoing.problems:
        problems = [problem(token, what) for token, what in outgoing.problems]
        await context.write(pb.DeliverResponse(problems=pb.Problems(problems=problems)))
    if outgoing.drain:
        await context.write(pb.DeliverResponse(drain=pb.Drain()))
    return frame
