"""One timer's life, by its topic's journal."""

from __future__ import annotations

from collections.abc import Sequence

from relay.console import shown
from relay.console.acting import Fact
from relay.console.requests import Desk, PageAnswer, PageCall, Shown
from relay.console.views.topics import of_topic
from relay.v1 import timer_history_pb2 as history
from relay.v1 import timer_service_pb2 as pb

EVENTS = 50
"""The events of one page."""

GRAVE, GOOD = {"dead", "expired", "orphaned", "forgotten"}, {"acked"}
"""Kinds of events that people look for."""


async def life(desk: Desk, call: PageCall) -> PageAnswer:
    """Show a page of what happened, the latest at its end. It reads 10,000 entries of the journal at most,
    for a second at most."""
    topic, timer_id = call.need("topic"), call.need("id")
    request = pb.GetTimerHistoryRequest(
        topic=topic, timer_id=timer_id, page_size=EVENTS, page_token=call.text("cursor")
    )
    found = await desk.history.get(request)
    earlier = {"topic": topic, "id": timer_id, "cursor": found.next_page_token}
    about = {
        **of_topic(desk, topic),
        "timer_id": timer_id,
        "events": [(each, _grade(each), facts_of(each)) for each in reversed(found.events)],
        "events_missing": found.events_missing,
        "letters": found.dead_letters,
        "earlier": shown.address("/console/timer/life", **earlier) if found.next_page_token else "",
    }
    return Shown("part_life.html" if call.text("part") else "life.html", about)


def _grade(event: history.TimerEvent) -> str:
    return "bad" if event.kind in GRAVE else "ok" if event.kind in GOOD else ""


def facts_of(event: history.TimerEvent) -> Sequence[Fact]:
    """What an event says beside its kind and its time."""
    said: list[Fact] = []
    if event.relay:
        said.append(("relay", shown.visible(event.relay)))
    if event.principal:
        said.append(("by", shown.visible(event.principal)))
    for label, moment in (
        ("due", event.due_time),
        ("was due", event.previous_due_time),
        ("next claim", event.next_claim_time),
        ("expires", event.expire_time),
    ):
        if moment.ByteSize():
            said.append((label, shown.when(moment)))
    for label, number in (("attempts", event.attempts), ("claims", event.claims)):
        if number:
            said.append((label, shown.count(number)))
    for label, text in (
        ("reason", event.reason),
        ("error", event.error),
        ("refused", event.refused),
        ("adopted", event.adopted),
        ("recurrence", event.recurrence_id),
    ):
        if text:
            said.append((label, shown.visible(text)))
    if event.HasField("other_partition"):
        said.append(("partition", f"{event.partition}, other {event.other_partition}"))
    return said
