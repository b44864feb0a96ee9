"""What a handler wants to be called with: the delivery, the value of its payload, or both."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from relay.client.errors import InvalidArgument
from relay.client.handling.delivery import Delivery, Nack, Reject
from relay.client.payloads.codecs import Unfit
from relay.client.payloads.schema import Newer, Schema

_log = logging.getLogger("relay.client")
_FILLED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ANYTHING = (inspect.Parameter.empty, Any, object)
_Hints: TypeAlias = list[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a handler that wants the value of its payload."""

    schema: Schema[Any]
    order: tuple[bool, ...]
    """For each argument whether it is the value; otherwise it is the delivery."""

    def of(self, delivery: Delivery) -> Iterator[Any]:
        """Return what the handler is called with. Raises `Reject` if the payload does not fit, and `Nack` if
        it has a version that only a newer application knows."""
        try:
            value = self.schema.decode(delivery.payload, delivery.content_type, delivery.headers)
        except Unfit as error:
            outcome: Nack | Reject = Reject(f"payload is not {self.schema.name}: {error}")
        except Newer as error:
            outcome = Nack(reason=str(error))
        else:
            return (value if is_value else delivery for is_value in self.order)
        # Raised here, so that it has no context: the library's own error quotes the payload.
        _log.warning("payload is not read: %r: %s", delivery, outcome.reason)
        raise outcome

    def around(self, handler: Callable[..., Any], *, is_async: bool) -> Callable[[Delivery], Any]:
        """Return what calls the handler with its arguments. The payload is read where the handler runs."""
        if is_async:

            async def call(delivery: Delivery) -> Any:
                return await handler(*self.of(delivery))

            return call
        return lambda delivery: handler(*self.of(delivery))


def arguments_of(handler: Callable[..., Any], schema: Schema[Any] | None) -> Arguments | None:
    """Read a handler's parameters; return None if it wants the delivery alone.

    `schema` is that of the topic, if it has a type. Without one the parameter's annotation is the type.
    Parameters that have a default are left alone. Raises `InvalidArgument`, which names handler, parameter
    and remedy.
    """
    name = getattr(handler, "__qualname__", type(handler).__qualname__).rpartition("<locals>.")[2]
    hints = _hints(handler, name)
    if schema is not None and any(hint is inspect.Parameter.empty for _, hint in hints):
        untyped = next(parameter for parameter, hint in hints if hint is inspect.Parameter.empty)
        raise _wrong(
            name, f"parameter {untyped} has no annotation; annotate it with {schema.name} or Delivery"
        )
    values = [(parameter, hint) for parameter, hint in hints if not _is_delivery(hint)]
    if len(values) > 1 or len(hints) - len(values) > 1:
        several = ", ".join(parameter for parameter, _ in hints)
        raise _wrong(
            name,
            f"parameters {several}: at most one may be the payload's value and one the Delivery; "
            "read the rest from the Delivery, or give it a default",
        )
    if not values:
        return None
    ((parameter, hint),) = values
    if isinstance(hint, str):
        raise _wrong(
            name,
            f"parameter {parameter}: {hint} is not known at run time; import or define it at the top of the "
            "module, outside of TYPE_CHECKING",
        )
    return Arguments(_schema(name, parameter, hint, schema), tuple(each == parameter for each, _ in hints))


def _schema(name: str, parameter: str, hint: Any, known: Schema[Any] | None) -> Schema[Any]:
    if known is None:
        try:
            return Schema(hint)
        except InvalidArgument as error:
            words = error.message.partition(": ")[2]
        shown = getattr(hint, "__name__", None) or str(hint)
        raise _wrong(
            name,
            f"parameter {parameter}: {shown} can't be read from a payload ({words}); annotate it with "
            "Delivery, a pydantic model, a dataclass, a msgspec struct, a TypedDict, dict, str or bytes",
        )
    if hint != known.kind:
        raise _wrong(name, f"parameter {parameter} must have the topic's type, {known.name}")
    return known


def _hints(handler: Callable[..., Any], name: str) -> _Hints:
    """Return the parameters that have to be filled with their types. A type is a str if its name is not
    known. Empty if the signature can't be read. Raises `InvalidArgument` if there is none to fill, or
    one that is filled by its name only."""
    try:
        if sys.version_info >= (3, 14):
            from annotationlib import Format

            signature = inspect.signature(handler, annotation_format=Format.FORWARDREF)
        else:
            signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return []
    parameters = signature.parameters.values()
    if not any(each.kind in (*_FILLED, inspect.Parameter.VAR_POSITIONAL) for each in parameters):
        raise InvalidArgument(
            f"handler {name} has no parameter; give it one for the Delivery or the payload's value",
            field="handler",
        )
    for each in parameters:
        if each.kind is inspect.Parameter.KEYWORD_ONLY and each.default is inspect.Parameter.empty:
            raise _wrong(name, f"parameter {each.name} can be filled by its name only; give it a default")
    names = _names(handler)
    return [
        (each.name, _resolved(each.annotation, names))
        for each in parameters
        if each.kind in _FILLED and each.default is inspect.Parameter.empty
    ]


def _names(handler: Any) -> dict[str, Any]:
    """Return the names that the annotations of a handler may use."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    found = inspect.unwrap(handler)
    if not hasattr(found, "__globals__"):
        found = type(found).__call__ if not hasattr(found, "__func__") else found.__func__
    names: dict[str, Any] = getattr(found, "__globals__", {})
    return names


def _resolved(hint: Any, names: dict[str, Any]) -> Any:
    text = getattr(hint, "__forward_arg__", hint)
    if not isinstance(text, str):
        return hint
    try:
        return eval(text, names)
    except Exception:  # noqa: BLE001 (an annotation may be any expression)
        return text


def _is_delivery(hint: Any) -> bool:
    if isinstance(hint, str):  # it is imported for type checkers only
        return hint.rpartition(".")[2] == Delivery.__name__
    return any(hint is each for each in _ANYTHING) or (isinstance(hint, type) and issubclass(hint, Delivery))


def _wrong(name: str, words: str) -> InvalidArgument:
    return InvalidArgument(f"handler {name}, {words}", field="handler")
