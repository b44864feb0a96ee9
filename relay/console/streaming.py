"""What an open page hears, once a second: server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

import anyio
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from relay.console.live import EVERY, LiveLook
from relay.console.requests import Desk
from relay.console.views.overview import alerting, concerns, page_of, relay_numbers
from relay.core.trust.usage import Usage
from relay.core.trust.verbs import AccessVerb

RETRY = 2_000
"""Milliseconds after which a browser opens a stream again that has ended."""


class EventStream(StreamingResponse):
    """Tells events for as long as somebody listens, and then closes `usage`, which was opened for it: also
    where the browser has gone before the first event."""

    def __init__(self, events: AsyncGenerator[str, None], usage: Usage) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._events = events
        self._usage = usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._usage.close()
            with anyio.CancelScope(shield=True):
                await self._events.aclose()


async def events(
    desk: Desk, parameters: Mapping[str, str], principal: str, usage: Usage
) -> AsyncGenerator[str, None]:
    """How things stand, for as long as the page is open and the relay runs: of one topic, or of those that a
    page of the overview shows. What the caller may not read is not in it, by the policy of that moment."""
    live = desk.live
    live.watched += 1
    try:
        yield f"retry: {RETRY}\n\n"
        while not live.ended.is_set():
            look = await live.look()
            key = "\n".join((parameters.get("topic", ""), parameters.get("after", "")))
            text = live.text(principal, key, lambda: _numbers(desk, look, parameters))  # noqa: B023 (called at once)
            usage.moved(len(text))
            yield f"data: {text}\n\n"
            with anyio.move_on_after(EVERY):
                await live.ended.wait()
    finally:
        live.watched -= 1


def _numbers(desk: Desk, look: LiveLook, parameters: Mapping[str, str]) -> object:
    one, after = parameters.get("topic", ""), parameters.get("after", "")
    at = round(look.at * 1000)
    if one:
        seen = one in look.topics and desk.access.allows(AccessVerb.READ, one)
        if not seen:
            return {"at": at, "topics": {}}
        trend = desk.trends.of(one).latest()
        return {"at": at, "topics": {one: look.topics[one].numbers()}, "trend": trend}
    topics, _ = page_of(desk, look, after)
    return {
        "at": at,
        "topics": {each.stats.topic: each.numbers() for each in topics},
        "relay": relay_numbers(look),
        "concerns": [each.row() for each in (*alerting(desk, topics), *concerns(look, topics))],
    }
