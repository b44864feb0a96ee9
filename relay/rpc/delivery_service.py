"""`DeliveryService`: one bidirectional stream of batches an application."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from grpc.aio import ServicerContext

from relay.api import translate
from relay.api.settlements import admit, problem, settle
from relay.core import validate
from relay.core.errors import InvalidField
from relay.engine.delivery.session import Outgoing, Session
from relay.engine.engine import Engine
from relay.rpc.errors import abort
from relay.v1 import delivery_service_pb2 as pb
from relay.v1 import delivery_service_pb2_grpc as base

Context = ServicerContext[Any, Any]

MAX_TOPICS = 1_000
"""On one stream; each has a poller of its own."""


class DeliveryService(base.DeliveryServiceServicer):
    """See `proto/relay/v1/delivery_service.proto`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def Deliver(self, _requests: object, context: Context) -> None:
        """Serve one stream, from Open to its end."""
        try:
            opened = await self._open(context)
        except InvalidField as failure:
            await abort(context, failure)
        if opened is None:
            return
        session, columns = opened
        tasks: list[asyncio.Task[None]] = []
        try:
            await context.write(pb.DeliverResponse(opened=pb.Opened(acknowledged=True)))
            self._engine.attach(session)
            reader = asyncio.create_task(self._read(session, context))
            writer = asyncio.create_task(_write(session, context, columns=columns))
            tasks += (reader, writer)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()  # raises what ended it
            self._detach(session)
            await self._engine.flush(session)
            session.finish()
            await writer
        except InvalidField as failure:
            self._engine.detach(session, broken=False)  # the application may not even read the status
            await abort(context, failure)
        finally:
            # Also when the call is cancelled, which is what a broken connection does.
            self._detach(session)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _detach(self, session: Session) -> None:
        """Once is enough: a session that is detached drains, and holds nothing any more."""
        # An end without a Drain before it is how the death of an application looks, too.
        self._engine.detach(session, broken=not session.draining)

    async def _open(self, context: Context) -> tuple[Session, bool] | None:
        """The stream's session, and whether deliveries may go by columns; None if nothing was said."""
        request = await context.read()
        if request is grpc.aio.EOF:
            return None
        if request.WhichOneof("message") != "open":
            raise InvalidField("open", "has to come first; send it before anything else")
        topics = list(request.open.topics)
        if not 1 <= len(topics) <= MAX_TOPICS:
            raise InvalidField("topics", f"has {len(topics)} names; give 1 to {MAX_TOPICS:,}")
        admit(self._engine, "topics", topics)
        limit = request.open.max_outstanding
        if not 1 <= limit <= validate.MAX_OUTSTANDING:
            raise InvalidField("max_outstanding", f"is {limit}; give 1 to {validate.MAX_OUTSTANDING}")
        slow = request.open.slow_outstanding
        if not 0 <= slow <= limit:
            raise InvalidField("slow_outstanding", f"is {slow}; give 0 to max_outstanding, which is {limit}")
        return self._engine.open(topics, limit, slow), request.open.columns

    async def _read(self, session: Session, context: Context) -> None:
        """Take what the application says until it ends its side."""
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

    def _settle(self, session: Session, said: pb.Settle) -> None:
        if said.received:
            self._engine.received(session, said.received)
        acknowledged: list[bytes] = []
        for settlement in said.settlements:
            if translate.acknowledges(settlement):
                acknowledged.append(settlement.token)
                continue
            # What came first counts first, should two be about one delivery.
            self._engine.acknowledged(session, acknowledged)
            acknowledged = []
            what = settle(self._engine, session, settlement)
            if what is not None:
                session.complain(settlement.token, what)
        self._engine.acknowledged(session, [*acknowledged, *said.acknowledged])


async def _write(session: Session, context: Context, *, columns: bool) -> None:
    """Say what there is to say, until the session has finished."""
    while (outgoing := await session.next()) is not None:
        await _say(outgoing, context, columns=columns)


async def _say(outgoing: Outgoing, context: Context, *, columns: bool) -> None:
    if outgoing.parts:
        frame = translate.frame(outgoing.parts, columns=columns)
        for part in outgoing.parts:
            part.drop_payloads()
        await context.write(frame)
    if outgoing.problems:
        problems = [problem(token, what) for token, what in outgoing.problems]
        await context.write(pb.DeliverResponse(problems=pb.Problems(problems=problems)))
    if outgoing.drain:
        await context.write(pb.DeliverResponse(drain=pb.Drain()))
