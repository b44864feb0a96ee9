"""Work on several partitions at the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import anyio

from relay.core.errors import ServiceError

R = TypeVar("R")
T = TypeVar("T")


async def for_each(work: Callable[[T], Awaitable[R]], parts: Iterable[T]) -> list[R]:
    """Do the work for all parts at once; the answers are in the order of the parts. Raises the first refusal
    in that order, when all have ended."""
    listed = list(parts)
    if len(listed) == 1:
        return [await work(listed[0])]
    answers: dict[int, R] = {}
    refusals: dict[int, ServiceError] = {}

    async def do(number: int, part: T) -> None:
        try:
            answers[number] = await work(part)
        except ServiceError as refusal:
            refusals[number] = refusal

    async with anyio.create_task_group() as tasks:
        for number, part in enumerate(listed):
            tasks.start_soon(do, number, part)
    if refusals:
        raise refusals[min(refusals)]
    return [answers[number] for number in range(len(listed))]
