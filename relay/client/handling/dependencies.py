"""What handlers are given beside the delivery: made for each delivery, and closed behind its handler."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from relay.client.handling.delivery import Delivery
from relay.client.handling.signatures import Depends, depends_of, hints_of, is_delivery, wrong

_Made: TypeAlias = dict[Callable[..., Any], Any]
"""The values of one delivery by their functions."""

_Stack: TypeAlias = contextlib.ExitStack | contextlib.AsyncExitStack


@dataclass(frozen=True, slots=True)
class Dependency:
    """A function and what it needs: other dependencies, or the delivery (None)."""

    function: Callable[..., Any]
    needs: tuple[Dependency | None, ...]
    is_async: bool
    yields: bool

    async def make(self, delivery: Delivery, made: _Made, stack: contextlib.AsyncExitStack) -> Any:
        """Return the value for an async handler. It is closed with the stack."""
        if self.function not in made:
            wanted = [
                delivery if each is None else await each.make(delivery, made, stack) for each in self.needs
            ]
            if not self.yields:
                value = self.function(*wanted)
                made[self.function] = await value if self.is_async else value
            elif self.is_async:
                value = contextlib.asynccontextmanager(self.function)(*wanted)
                made[self.function] = await value.__aenter__()
                stack.push_async_exit(_closing_async(value))
            else:
                made[self.function] = _entered(contextlib.contextmanager(self.function)(*wanted), stack)
        return made[self.function]

    def make_here(self, delivery: Delivery, made: _Made, stack: contextlib.ExitStack) -> Any:
        """Return the value for a plain handler, in the handler's thread."""
        if self.function not in made:
            wanted = [
                delivery if each is None else each.make_here(delivery, made, stack) for each in self.needs
            ]
            if self.yields:
                made[self.function] = _entered(contextlib.contextmanager(self.function)(*wanted), stack)
            else:
                made[self.function] = self.function(*wanted)
        return made[self.function]


def _entered(value: AbstractContextManager[Any], stack: _Stack) -> Any:
    made = value.__enter__()

    def close(*failure: Any) -> None:
        value.__exit__(*failure)  # what it returns is dropped: see `with_dependencies`

    stack.push(close)
    return made


def _closing_async(value: AbstractAsyncContextManager[Any]) -> Callable[..., Awaitable[None]]:
    async def close(*failure: Any) -> None:
        await value.__aexit__(*failure)

    return close


def dependency_of(
    depends: Depends, who: str, *, is_async: bool, above: tuple[Callable[..., Any], ...] = ()
) -> Dependency:
    """Read a dependency and all that it needs. Raises `InvalidArgument`, which names it and the remedy.

    `above` are the functions that need it.
    """
    function = depends.function
    name = f"dependency {getattr(function, '__name__', type(function).__name__)}"
    if function in above:
        raise wrong(who, f"{name} needs itself; break the circle")
    # The method of an object; that of a class is for the objects that it makes.
    call = None if inspect.isclass(function) else getattr(function, "__call__", None)  # noqa: B004
    yields_async = inspect.isasyncgenfunction(function) or inspect.isasyncgenfunction(call)
    yields = inspect.isgeneratorfunction(function) or inspect.isgeneratorfunction(call)
    waits = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
    if (yields_async or waits) and not is_async:
        raise wrong(who, f"{name} is async, and the handler is not; make the handler async")
    needs: list[Dependency | None] = []
    for parameter, hint in hints_of(function, f"{who}, {name}", needs_one=False):
        if (further := depends_of(hint)) is not None:
            needs.append(dependency_of(further, who, is_async=is_async, above=(*above, function)))
        elif is_delivery(hint) and hint is not inspect.Parameter.empty:
            needs.append(None)
        else:
            raise wrong(
                who,
                f"{name}, parameter {parameter}: annotate it with Delivery or Annotated[…, Depends(…)], or "
                "give it a default",
            )
    return Dependency(function, tuple(needs), yields_async or waits, yields_async or yields)


def with_dependencies(
    handler: Callable[..., Awaitable[Any]], fill: Callable[[Delivery], list[Any]]
) -> Callable[[Delivery], Awaitable[Any]]:
    """Return what calls an async handler with what `fill` returns, dependencies made.

    No dependency can swallow an exception, of the handler or of another one that fails to open or to close:
    the delivery would count as done.
    """

    async def call(delivery: Delivery) -> Any:
        wanted, made = fill(delivery), {}  # type: list[Any], _Made
        async with contextlib.AsyncExitStack() as stack:
            for place, each in enumerate(wanted):
                if isinstance(each, Dependency):
                    wanted[place] = await each.make(delivery, made, stack)
            return await handler(*wanted)

    return call


def with_dependencies_here(
    handler: Callable[..., Any], fill: Callable[[Delivery], list[Any]]
) -> Callable[[Delivery], Any]:
    """The same for a plain handler."""

    def call(delivery: Delivery) -> Any:
        wanted, made = fill(delivery), {}  # type: list[Any], _Made
        with contextlib.ExitStack() as stack:
            for place, each in enumerate(wanted):
                if isinstance(each, Dependency):
                    wanted[place] = each.make_here(delivery, made, stack)
            return handler(*wanted)

    return call
