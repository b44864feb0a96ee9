"""What stands before the methods of every service: who calls, what callers may cost, messages that can't be
parsed.

gRPC parses a unary request before it calls the servicer. If that fails, gRPC answers UNKNOWN and logs a stack
trace. So each method gets a parser that never raises.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError, Message

from relay.core.errors import InvalidField, OverBound
from relay.core.trust.usage import Bounds
from relay.rpc.errors import abort

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Behaviour = Callable[[Any, Any], Any]
Parse = Callable[[bytes], Any]
Serialize = Callable[[Any], bytes]

UNREADABLE = object()
"""What stands in the place of a message that could not be parsed."""

Count = Callable[[str], None]
"""Called with the method of each message that could not be parsed, such as `a.v1.B/C`."""

log = logging.getLogger(__name__)


Admit = Callable[[Any], Awaitable[None]]
"""Called with the context of each call before anything is done for it. It notes who calls, or ends the
call."""

OPEN_TO_ALL = ("grpc.health.", "grpc.reflection.")
"""How the services begin that anybody may call, as anybody may ask the probes."""


class Unreadable(Exception):
    """A message of a stream could not be parsed."""


def answers(kind: type[Message], method: str, count: Count) -> Parse:
    """Make a parser for the answers to a call of `method`. It returns `UNREADABLE` for bytes that are not
    one."""

    def parsed(raw: bytes) -> Any:
        try:
            return kind.FromString(raw)
        except DecodeError:
            count(method)
            expected = kind.DESCRIPTOR.full_name
            log.warning("an answer can't be read", extra={"method": method, "expected": expected})
            return UNREADABLE

    return parsed


class Guard:  # see 0069
    """Stands in for `server` when services are added to it: each service answers INVALID_ARGUMENT to a
    message that can't be parsed, and none but those of `OPEN_TO_ALL` is called before `admit` has let the
    caller in, and beyond `bounds` (streams see to their own).

    An interceptor would do the same at a cost for every call.
    """

    def __init__(
        self,
        server: grpc.aio.Server,
        count: Count,
        admit: Admit | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self._server = server
        self._count = count
        self._admit = admit
        self._bounds = bounds

    def add_generic_rpc_handlers(self, _: object) -> None:
        """Do nothing: generated code adds the same methods again with the next call."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Add the methods of a service."""
        guarded = {name: self._guard(f"{service}/{name}", handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, guarded),))
        self._server.add_registered_method_handlers(service, guarded)

    def _guard(self, method: str, handler: Handler) -> Handler:
        kind = f"{_arity(handler.request_streaming)}_{_arity(handler.response_streaming)}"
        known = descriptor_pool.Default().FindMethodByName(method.replace("/", "."))
        name = known.input_type.full_name
        failure = InvalidField("message", f"not a {name}; check what sends it")

        async def refuse(context: Any) -> None:
            self._count(method)
            log.warning("a message can't be read", extra={"method": method, "expected": name})
            await abort(context, failure)

        behaviour = _guarded(getattr(handler, kind), refuse)
        parse, serialize = handler.request_deserializer, handler.response_serializer
        assert parse is not None, method
        assert serialize is not None, method
        read: Parse | None = _raising(parse) if handler.request_streaming else _marking(parse)
        write: Serialize | None = serialize
        if not method.startswith(OPEN_TO_ALL):
            if self._bounds is not None and kind == "unary_unary":
                behaviour = _bounded(behaviour, _marking(parse), serialize, self._bounds)
                read = write = None
            if self._admit is not None:
                behaviour = _admitted(behaviour, self._admit)
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        guarded: Handler = make(behaviour, request_deserializer=read, response_serializer=write)
        return guarded


async def _answer_fault(context: Any, fault: Exception) -> NoReturn:
    """Answer a fault of the relay's own. gRPC would tell the caller its type and its words."""
    if isinstance(fault, grpc.aio.BaseError):
        raise fault  # its own: an abort, or a caller who has gone
    log.error("a call failed", exc_info=fault)
    await context.abort(grpc.StatusCode.INTERNAL, "the relay could not do it; its log says more")
    raise AssertionError("abort returned")


def _arity(streaming: bool) -> str:
    return "stream" if streaming else "unary"


def _marking(parse: Parse) -> Parse:
    """Wrap the method of a unary request. gRPC parses it, so the method has to be called to answer."""

    def marked(raw: bytes) -> Any:
        try:
            return parse(raw)
        except DecodeError:
            return UNREADABLE

    return marked


def _raising(parse: Parse) -> Parse:
    """Wrap the method of a stream, which reads by itself and gets the error there."""

    def raised(raw: bytes) -> Any:
        try:
            return parse(raw)
        except DecodeError:
            raise Unreadable from None

    return raised


def _guarded(behaviour: Behaviour, refuse: Callable[[Any], Awaitable[None]]) -> Behaviour:
    async def called(request: Any, context: Any) -> Any:
        if request is UNREADABLE:
            await refuse(context)
        try:
            return await behaviour(request, context)
        except Unreadable:
            await refuse(context)
        except Exception as fault:  # noqa: BLE001 (whatever it is, its words are not for the caller)
            await _answer_fault(context, fault)

    async def iterated(request: Any, context: Any) -> AsyncIterator[Any]:
        if request is UNREADABLE:
            await refuse(context)
        try:
            async for response in behaviour(request, context):
                yield response
        except Unreadable:
            await refuse(context)
        except Exception as fault:  # noqa: BLE001 (whatever it is, its words are not for the caller)
            await _answer_fault(context, fault)

    return iterated if inspect.isasyncgenfunction(behaviour) else called


def _bounded(behaviour: Behaviour, parse: Parse, serialize: Serialize, bounds: Bounds) -> Behaviour:
    """Wrap a unary call, which is refused before it is parsed. Only bytes tell what a message costs, and to
    ask the message for its size would make them once more; so this stands between gRPC and both."""

    async def called(raw: bytes, context: Any) -> bytes:
        try:
            usage = bounds.begin(len(raw))
        except OverBound as over:
            await abort(context, over)
        if usage is None:
            return serialize(await behaviour(parse(raw), context))
        try:
            answer = serialize(await behaviour(parse(raw), context))
            usage.moved(len(answer))
            return answer
        finally:
            usage.end()

    return called


def _admitted(behaviour: Behaviour, admit: Admit) -> Behaviour:
    async def called(request: Any, context: Any) -> Any:
        await admit(context)
        return await behaviour(request, context)

    async def iterated(request: Any, context: Any) -> AsyncIterator[Any]:
        await admit(context)
        async for response in behaviour(request, context):
            yield response

    return iterated if inspect.isasyncgenfunction(behaviour) else called
