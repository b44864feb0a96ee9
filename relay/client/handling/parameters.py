"""What a handler wants to be called with: the delivery, the value of its payload, dependencies."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relay.client.errors import InvalidArgument
from relay.client.handling.delivery import Delivery, Nack, Reject
from relay.client.handling.dependencies import (
    Dependency,
    dependency_of,
    with_dependencies,
    with_dependencies_here,
)
from relay.client.handling.signatures import Hints, depends_of, hints_of, is_delivery, wrong
from relay.client.payloads.codecs import Unfit
from relay.client.payloads.schema import Newer, Schema

_log = logging.getLogger("relay.client")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a handler that wants more than the delivery."""

    schema: Schema[Any] | None
    """The type of the payload; None if the handler doesn't want its value."""
    order: tuple[Dependency | bool, ...]
    """For each argument its dependency, or whether it is the value; otherwise it is the delivery."""

    def of(self, delivery: Delivery) -> list[Any]:
        """Return what the handler is called with, but for dependencies, which are still to be made. Raises
        `Reject` if the payload does not fit, and `Nack` if it has a version that only a newer application
        knows."""
        value = None if self.schema is None else _value(self.schema, delivery)
        return [each if isinstance(each, Dependency) else value if each else delivery for each in self.order]

    def around(self, handler: Callable[..., Any], *, is_async: bool) -> Callable[[Delivery], Any]:
        """Return what calls the handler with its arguments. The payload is read where the handler runs."""
        if any(isinstance(each, Dependency) for each in self.order):
            return (with_dependencies if is_async else with_dependencies_here)(handler, self.of)
        if is_async:

            async def call(delivery: Delivery) -> Any:
                return await handler(*self.of(delivery))

            return call
        return lambda delivery: handler(*self.of(delivery))


def _value(schema: Schema[Any], delivery: Delivery) -> Any:
    try:
        return schema.decode(delivery.payload, delivery.content_type, delivery.headers)
    except Unfit as error:
        outcome: Nack | Reject = Reject(f"payload is not {schema.name}: {error}")
    except Newer as error:
        outcome = Nack(reason=str(error))
    # Raised here, so that it has no context: the library's own error quotes the payload.
    _log.warning("payload is not read: %r: %s", delivery, outcome.reason)
    raise outcome


def arguments_of(
    handler: Callable[..., Any], schema: Schema[Any] | None, *, is_async: bool
) -> Arguments | None:
    """Read a handler's parameters; return None if it wants the delivery alone.

    `schema` is that of the topic, if it has a type. Without one the parameter's annotation is the type.
    Parameters that have a default are left alone. Raises `InvalidArgument`, which names handler, parameter
    and remedy.
    """
    name = getattr(handler, "__qualname__", type(handler).__qualname__).rpartition("<locals>.")[2]
    found = hints_of(handler, f"handler {name}", needs_one=True)
    made = {
        parameter: dependency_of(depends, f"handler {name}", is_async=is_async)
        for parameter, hint in found
        if (depends := depends_of(hint)) is not None
    }
    hints = [each for each in found if each[0] not in made]
    parameter, of = _value_among(name, hints, schema)
    if of is None and not made:
        return None
    return Arguments(of, tuple(made.get(each, each == parameter) for each, _ in found))


def _value_among(name: str, hints: Hints, schema: Schema[Any] | None) -> tuple[str, Schema[Any] | None]:
    """Return the parameter that is to be the payload's value, and its type; ('', None) if none is."""
    if schema is not None and any(hint is inspect.Parameter.empty for _, hint in hints):
        untyped = next(parameter for parameter, hint in hints if hint is inspect.Parameter.empty)
        raise _wrong(
            name, f"parameter {untyped} has no annotation; annotate it with {schema.name} or Delivery"
        )
    values = [(parameter, hint) for parameter, hint in hints if not is_delivery(hint)]
    if len(values) > 1 or len(hints) - len(values) > 1:
        several = ", ".join(parameter for parameter, _ in hints)
        raise _wrong(
            name,
            f"parameters {several}: at most one may be the payload's value and one the Delivery; "
            "read the rest from the Delivery, or give it a default",
        )
    if not values:
        return "", None
    ((parameter, hint),) = values
    if isinstance(hint, str):
        raise _wrong(
            name,
            f"parameter {parameter}: {hint} is not known at run time; import or define it at the top of the "
            "module, outside of TYPE_CHECKING",
        )
    return parameter, _schema(name, parameter, hint, schema)


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


def _wrong(name: str, words: str) -> InvalidArgument:
    return wrong(f"handler {name}", words)
