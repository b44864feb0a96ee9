"""Callers, by a name that the listener could prove."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller, by its name.

    The names of each kind begin with its own word, so none can pass for one of another:

    - `spiffe://domain/path`, `dns:name`, `subject:CN=…`: from a verified client certificate;
    - `jwt:issuer:subject`: from a verified JWT, with the name that the settings give its issuer;
    - `token:name`: from a static token;
    - `anonymous`: nobody proved anything.
    """

    name: str

    def __str__(self) -> str:
        return self.name


ANONYMOUS = Principal("anonymous")

caller: ContextVar[Principal] = ContextVar("caller", default=ANONYMOUS)
"""For whom the running task works. A listener sets it before it does anything for a call; each call is a task
of its own."""

proof: ContextVar[Callable[[], Awaitable[Principal]] | None] = ContextVar("proof", default=None)
"""Proves the caller of the running task once more, by what it showed as its call began. None for whoever
showed nothing that may expire, or be taken back, while a call goes on."""
