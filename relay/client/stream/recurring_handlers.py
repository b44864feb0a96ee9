"""Handlers of what recurs: the recurrence stands above its handler, and is declared as deliveries begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, Unpack

from relay.client import errors
from relay.client.arguments import Seconds
from relay.client.calls.recurrence_values import RecurOptions, to_spec
from relay.client.handling.handlers import Handler, Handlers
from relay.v1 import recurrence_service_pb2 as pb

_H = TypeVar("_H", bound=Handler)


class RecurringHandlers(Handlers):
    """Handlers of an application that can make calls, too."""

    def __init__(self) -> None:
        super().__init__()
        self.declarations: dict[tuple[str, str], pb.RecurrenceSpec] = {}
        """The recurrences by topic and recurrence_id; `every` and `cron` add to them."""

    def every(
        self,
        length: Seconds | str,
        *,
        topic: str | None = None,
        recurrence_id: str | None = None,
        **options: Unpack[RecurOptions],
    ) -> Callable[[_H], _H]:
        """Let a handler run again and again: every `length` of time (seconds, a timedelta, or a text such as
        `10 minutes`), counted from 1970 unless `anchor_time` is given. This is a decorator, which returns the
        handler unchanged.

        The recurrence has the handler's name, unless `recurrence_id` is given. Its topic is the one that the
        handler is registered for; a handler without one is registered for a topic with its name, or for
        `topic`, as `on` does. To give `on` other arguments, put it below this. Several of these may stand
        above one handler, each with its own `recurrence_id`. The other arguments are those of
        `RelayClient.recur`.

        The recurrence is put when the client opens, by each replica, which changes nothing where it is like
        this already; it stays when the client closes. If the relay refuses it, the client ends as it does
        when a stream is refused.

        >>> @client.every("10 minutes")
        ... @client.on("sweep", concurrency=1)
        ... async def sweep(delivery):
        ...     print(delivery.headers["relay-nominal-time"])
        """
        return self._recurring(topic, recurrence_id, {"every": length, **options})

    def cron(
        self,
        expression: str,
        *,
        topic: str | None = None,
        recurrence_id: str | None = None,
        **options: Unpack[RecurOptions],
    ) -> Callable[[_H], _H]:
        """Let a handler run at the times of a cron expression, by the clocks of `zone`; see `every`.

        >>> @client.cron("0 3 * * MON-FRI", zone="Europe/Berlin")
        ... async def nightly(delivery):
        ...     ...
        """
        return self._recurring(topic, recurrence_id, {"cron": expression, **options})

    def _recurring(
        self, topic: str | None, recurrence_id: str | None, options: RecurOptions
    ) -> Callable[[_H], _H]:
        def register(handler: _H) -> _H:
            own: str = getattr(handler, "__name__", "")
            name = own if recurrence_id is None else recurrence_id
            where = (self._topic_of(handler) or own) if topic is None else topic
            spec = to_spec(where, name, options)
            if (where, name) in self.declarations:
                raise errors.UsageError(
                    f"topic {where!r} has a recurrence {name!r} already; give each a recurrence_id"
                )
            known = self.registrations.get(where)
            if known is None or known.handler is not handler:
                self.on(where)(handler)
            elif self.begun:
                raise errors.UsageError("declare recurrences before deliveries begin")
            self.declarations[where, name] = spec
            return handler

        return register

    def _topic_of(self, handler: Handler) -> str:
        """The topic that a handler is registered for; empty if there is none, or more than one."""
        topics = [topic for topic, known in self.registrations.items() if known.handler is handler]
        return topics[0] if len(topics) == 1 else ""
