"""Where loops are started that outlive whoever needs them first."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVarTuple

from anyio.abc import TaskGroup

Args = TypeVarTuple("Args")


class LoopStarter:
    """Starts tasks in the context in which it was made: that of the engine.

    A task inherits the context of whoever starts it. A lane, a poller or a mover may be needed first by a
    call, whose deadline and trace it would keep, though it works for others.
    """

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._context = copy_context()

    def start(self, loop: Callable[[*Args], Coroutine[Any, Any, object]], *args: *Args) -> None:
        """Start a task that ends with the task group."""
        self._context.run(lambda: self._tasks.start_soon(loop, *args))
