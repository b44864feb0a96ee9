"""Takes rows out of the database and hands them to a relay: one step, and the loop around it.

Two rows of one timer must never be on their way in two movers: the older one could come last, and would
stand. So all rows of a timer are in one lane, and a mover takes a lane before it reads rows, by a row of
`relay_outbox_lanes` that is committed before any call is made.

Race    A mover dies after its call has left. Its locks would end with its session, and another mover would go
        on to the timer's next row while the call is still on its way through a relay that hangs. The call
        would land last. So a lane is held until an instant, and not by a session. No call is begun later than
        `call_time` after the lane was asked for, and none acts longer than its own deadline of at most that
        (see 0076, 0079): so none acts after twice that time, and the lane is held for longer.
Race    A mover is stopped by its machine after its call was answered, and goes on when its lane is another's.
        It only deletes rows then that a relay has taken, and it gives back lanes that are still its own.
Race    A step gives a call up that a relay has not answered. The call may act until its own deadline, so the
        lanes are not given back then: they are free when their time is over.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import timedelta
from time import monotonic
from uuid import uuid4

from relay.client import RelayClient
from relay.outbox.databases import database_at
from relay.outbox.handing_over import HandedOver, OutboxRow, hand_over
from relay.outbox.ports import LANES, DatabaseFailure

logger = logging.getLogger("relay.outbox")

CALL_TIME = 5.0
"""Seconds within which all calls of a step begin, and for which each of them waits at most."""

MARGIN = 1.0
"""Seconds beyond twice `CALL_TIME` for which a lane is held: for clocks that run at different speeds."""

ROWS_AT_ONCE = 500
BYTES_AT_ONCE = 1 << 20
"""The payloads that a step reads, but for a larger first one."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class MoverCounts:
    """What the movers of a process have done since it started."""

    def __init__(self) -> None:
        self.taken = self.refused = self.held = 0


class OutboxMover:  # see 0125
    """One mover: it has a connection of its own to the database at `url`, and one step under way.

    `poll` is the number of seconds after which it looks again though nobody has notified it. `woken` is set
    when somebody has. Raises `UnsupportedDatabase` and `InvalidArgument`.
    """

    def __init__(
        self,
        url: str,
        client: RelayClient,
        *,
        poll: float = 1.0,
        rows: int = ROWS_AT_ONCE,
        call_time: float = CALL_TIME,
        counts: MoverCounts | None = None,
    ) -> None:
        self.woken = asyncio.Event()
        self.counts = counts or MoverCounts()
        self.database = database_at(url)
        self._client = client
        self._poll = poll
        self._rows = rows
        self._call_time = call_time
        self._lease = timedelta(seconds=2 * call_time + MARGIN)
        self._stopping = asyncio.Event()
        self._in_trouble = False

    def stop(self) -> None:
        """End `run` after the step that is under way."""
        self._stopping.set()
        self.woken.set()

    async def run(self) -> None:
        """Move rows until `stop`. It survives whatever a step meets, and says so once."""
        pause = _FIRST_PAUSE
        try:
            while not self._stopping.is_set():
                self.woken.clear()
                try:
                    busy = await self.step()
                except DatabaseFailure as failure:
                    await self.database.close()
                    self._trouble("the database", failure)
                else:
                    if busy.failure is None:
                        self._well()
                        pause = _FIRST_PAUSE
                        if not busy.taken and not busy.not_taken:
                            await _wait(self.woken, self._poll)
                        continue
                    self._trouble("the relay", busy.failure)
                await _wait(self._stopping, pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            await self.database.close()

    async def move_all(self) -> int:
        """Move what waits, in the place of `run`, and return the number of rows that the relay has taken: for
        tests of an application, with a relay in memory or a real one.

        Rows that are refused or held back stay. Raises `CallError` if the relay does not answer, and
        `DatabaseFailure`.

        >>> await OutboxMover(database, client).move_all()
        """
        taken = 0
        try:
            while True:
                done = await self.step()
                taken += len(done.taken)
                if done.failure is not None:
                    raise done.failure
                if not done.taken and not done.not_taken:
                    return taken
        finally:
            await self.database.close()

    async def step(self) -> HandedOver:
        """Take lanes, hand over their oldest rows, and give the lanes back."""
        deadline = monotonic() + self._call_time  # counted from before the lanes are held
        holder = uuid4()
        lanes = await self.database.take(holder=holder, lease=self._lease, most=LANES // 4)
        if not lanes:
            return HandedOver([], [])
        rows = await self.database.read(lanes, rows=self._rows, size=BYTES_AT_ONCE)
        done = await self.hand_over(rows, deadline)
        await self.database.settle(done, holder=holder, lanes=[] if done.is_open else lanes)
        for each in done.not_taken:
            if each.pause is None:
                logger.warning("row %d of the outbox is refused: %s", each.id, each.reason)
        self.counts.taken += len(done.taken)
        self.counts.refused += sum(each.pause is None for each in done.not_taken)
        self.counts.held += sum(each.pause is not None for each in done.not_taken)
        return done

    async def hand_over(self, rows: Sequence[OutboxRow], deadline: float) -> HandedOver:
        """Call the relay."""
        return await hand_over(self._client, rows, deadline)

    def _trouble(self, where: str, failure: Exception) -> None:
        if not self._in_trouble:
            why = (str(failure).splitlines() or [type(failure).__name__])[0]
            logger.warning("%s can't be reached, or refuses; trying again: %s", where, why)
        self._in_trouble = True

    def _well(self) -> None:
        if self._in_trouble:
            logger.info("rows are moved again")
        self._in_trouble = False


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
