"""Effects of a handler that happen once, whatever is redelivered.

>>> @client.on("reminders")
... async def remind(delivery: Delivery) -> None:
...     async with AsyncSession(engine) as session, session.begin():
...         if await inbox.is_first(session, delivery):
...             session.add(Reminder(order=delivery.timer_id))

The `occurrence_id` of a delivery is the same on each redelivery. It is a row of the handler's own
transaction, under a unique key: it is committed with the effects, or neither is. It needs the extra `outbox`,
and the table that `relay outbox migrate` creates.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta
from typing import cast, overload

from relay.client import Delivery
from relay.outbox.databases import spelling_of
from relay.outbox.where import Async, Blocking, execute


@overload
def is_first(where: Async, delivery: Delivery) -> Awaitable[bool]: ...
@overload
def is_first(where: Blocking, delivery: Delivery) -> bool: ...


def is_first(where: Async | Blocking, delivery: Delivery) -> Awaitable[bool] | bool:
    """Whether no delivery of this occurrence has been handled; from now on this one has, if the transaction
    commits.

    `where` is a session or connection as in `relay.outbox.schedule`, with a transaction open, and the effects
    belong into the same one. If another delivery of the occurrence is being handled, this waits for the end
    of its transaction: false if it commits. In SQLite a transaction that has read before it writes begins
    with BEGIN IMMEDIATE, or it is refused instead of waiting. Raises `UnsupportedDatabase` and what the
    database raises.
    """
    # The race: two deliveries of one occurrence, of which the first was taken for lost. The unique key has
    # the second wait for the first one's end; a SELECT before the effects would see nothing of it.
    changed = execute(where, spelling_of(where).is_first, [{"it": delivery.occurrence_id}])
    return changed == 1 if isinstance(changed, int) else _is_first(changed)


async def _is_first(changed: Awaitable[int]) -> bool:
    return await changed == 1


def prune(connection: Blocking, age: timedelta) -> int:
    """Forget occurrences that were handled longer ago than `age`; returns how many.

    `connection` is a blocking one of psycopg or of sqlite3, in autocommit. What is forgotten would be handled
    again if it came again: give more than the time for which dead letters of the topic are kept and redriven.
    Raises what the database raises.
    """
    spelling = spelling_of(connection)
    pruned = 0
    while removed := cast("int", execute(connection, spelling.prune, [spelling.older(age)])):
        pruned += removed
    return pruned
