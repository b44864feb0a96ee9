"""The parameters of handlers and of their dependencies, as their annotations have them."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias, get_args, get_origin

from relay.client.errors import InvalidArgument
from relay.client.handling.delivery import Delivery

_FILLED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ANYTHING = (inspect.Parameter.empty, Any, object)
Hints: TypeAlias = list[tuple[str, Any]]


class Depends:
    """Says where a handler's parameter comes from: `Annotated[Session, Depends(get_session)]`.

    The function may be plain or async, and may yield the value instead of returning it: then it goes on after
    the handler's end, before the outcome is sent. Its own parameters are the `Delivery` or dependencies. It
    is called once for each delivery, however many ask for it. Raises `InvalidArgument` for what can't be
    called.

    >>> async def get_session():
    ...     async with sessions() as session:
    ...         yield session
    >>> @client.on("invoices")
    ... async def remind(invoice: Invoice, session: Annotated[Session, Depends(get_session)]) -> None:
    ...     ...
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise InvalidArgument("function must be callable", field="function")
        self.function = function

    def __repr__(self) -> str:
        return f"Depends({getattr(self.function, '__name__', self.function)})"


def depends_of(hint: Any) -> Depends | None:
    """Return the dependency that an annotation names."""
    if get_origin(hint) is not Annotated:
        return None
    return next((each for each in get_args(hint)[1:] if isinstance(each, Depends)), None)


def wrong(who: str, words: str) -> InvalidArgument:
    """Return the error of a signature."""
    return InvalidArgument(f"{who}, {words}", field="handler")


def hints_of(handler: Callable[..., Any], who: str, *, needs_one: bool) -> Hints:
    """Return the parameters to fill, each with its type, which is a str if its name is not known. The list is
    empty if the signature can't be read. Raises `InvalidArgument` if `needs_one` and there is none, or for
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
    taking = (*_FILLED, inspect.Parameter.VAR_POSITIONAL)
    if needs_one and not any(each.kind in taking for each in parameters):
        raise InvalidArgument(
            f"{who} has no parameter; give it one for the Delivery or the payload's value", field="handler"
        )
    names = _names(handler)
    hints: Hints = []
    for each in parameters:
        hint = _resolved(each.annotation, names)
        if each.default is not inspect.Parameter.empty:
            if depends_of(hint) is not None:
                raise wrong(who, f"parameter {each.name} is a dependency; leave its default out")
        elif each.kind is inspect.Parameter.KEYWORD_ONLY:
            raise wrong(who, f"parameter {each.name} can be filled by its name only; give it a default")
        elif each.kind in _FILLED:
            hints.append((each.name, hint))
    return hints


def _names(handler: Any) -> dict[str, Any]:
    """Return the names that the annotations of a handler may use."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    found = inspect.unwrap(handler)
    if inspect.isclass(found):
        found = inspect.unwrap(found.__init__)
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


def is_delivery(hint: Any) -> bool:
    if isinstance(hint, str):  # it is imported for type checkers only
        return hint.rpartition(".")[2] == Delivery.__name__
    return any(hint is each for each in _ANYTHING) or (isinstance(hint, type) and issubclass(hint, Delivery))
