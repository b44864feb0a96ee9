"""Fields by the names that they have in a body."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from relay.core.errors import InvalidField


@contextmanager
def named_without(prefix: str) -> Generator[None, None, None]:
    """Name fields without this prefix: those of the message behind it stand in the body by themselves. Raises
    `InvalidField`."""
    try:
        yield
    except InvalidField as failure:
        raise InvalidField(failure.field.removeprefix(prefix), failure.problem) from None
