"""Calls that are repeated until they are answered; each try is written down as it begins and ends."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from chaos.ledger import Ledger
from relay.client import CallError, NotDurable, RelayClient

Act = Callable[[RelayClient, float], Awaitable[dict[str, Any]]]
"""Makes one try through a relay, with a timeout (seconds); returns what the answer says, for the ledger."""


MORE, MOST = 1.5, 4.0
"""By how much a try is given more time than the one before, and how much more than the first at most: callers
who repeat in a fixed pace keep a machine that is too slow for them too slow."""


class Insistent:
    """Asks one relay after the other. A next try begins when the one before can't act any more."""

    def __init__(self, clients: Sequence[RelayClient], ledger: Ledger, patience: float) -> None:
        self._clients = itertools.cycle(clients)
        self._ledger = ledger
        self._patience = patience
        """Seconds that the first try of a call may take."""

    async def ask(self, timer_id: str, act: Act, *, once: bool = False, **what: Any) -> dict[str, Any] | None:
        """The answer. With `once` the call is given up after a first error, and None comes back: whether it
        has acted is open, and that it will not any more is certain."""
        for number in itertools.count():
            patience = self._patience * min(MORE**number, MOST)
            self._ledger.write("ask", id=timer_id, **what)
            ends = time.monotonic() + patience
            try:
                answer = await act(next(self._clients), patience)
            except CallError as error:
                code = "NOT_DURABLE" if isinstance(error, NotDurable) else error.code.name
                self._ledger.write(
                    "answer", id=timer_id, n=what["n"], ok=False, code=code, said=error.message
                )
                await asyncio.sleep(max(ends - time.monotonic(), 0.0))
                if once:
                    return None
            else:
                self._ledger.write("answer", id=timer_id, n=what["n"], ok=True, **answer)
                return answer
        raise AssertionError("unreachable")
