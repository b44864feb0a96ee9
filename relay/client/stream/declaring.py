"""Declares an application's recurrences as its client opens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from relay.client.calls import recurrence_calls, timer_calls
from relay.client.calls.backoff import RetryBackoff
from relay.client.calls.channel import Wire
from relay.client.errors import CallError
from relay.client.stream.subscription import FATAL
from relay.v1 import recurrence_service_pb2 as pb

_log = logging.getLogger("relay.client")
_TIMEOUT = 10.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


async def declare(wire: Wire, specs: Iterable[pb.RecurrenceSpec]) -> None:
    """Put recurrences, and try again for as long as it takes. Raises the `CallError` by which the relay
    refuses one for good.

    Any number of replicas do so at the same time: one that is like this already stays as it is, whoever puts
    it.
    """
    for spec in specs:
        backoff = RetryBackoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                done = await timer_calls.run(wire, recurrence_calls.put_spec(spec, None, _TIMEOUT))
            except CallError as error:
                if error.code in FATAL:
                    error.add_note(f"(recurrence {spec.recurrence_id!r} of topic {spec.topic!r})")
                    raise
                pause = backoff.next()
                _log.warning(
                    "recurrence is not declared yet: topic=%s recurrence=%s: %s; trying again in %.2f s",
                    spec.topic,
                    spec.recurrence_id,
                    error.message,
                    pause,
                )
                await asyncio.sleep(pause)
            else:
                _log.info(
                    "recurrence is declared: topic=%s recurrence=%s %s, version %d",
                    spec.topic,
                    spec.recurrence_id,
                    done.result.value,
                    done.version,
                )
                break
