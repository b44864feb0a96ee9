"""Timers: a search among them, and one of them."""

from __future__ import annotations

from relay.api.looking.searching import MOST_LOOKED_AT, TimerSearch
from relay.console import contents, shown
from relay.console.requests import Desk, Download, PageAnswer, PageCall, Shown
from relay.console.views.topics import of_topic
from relay.core.errors import ContentSealed, InvalidField, TimerNotFound
from relay.core.timers import TimerState
from relay.core.trust.verbs import AccessVerb
from relay.v1 import timer_pb2 as timer_messages
from relay.v1 import timer_service_pb2 as pb

PAGE = 50
"""The timers of one page."""

STATES = {"": None, "pending": TimerState.PENDING, "leased": TimerState.LEASED}
STATE_NAMES = {
    timer_messages.TIMER_STATE_PENDING: "waiting",
    timer_messages.TIMER_STATE_LEASED: "being delivered",
}


async def timers(desk: Desk, call: PageCall) -> PageAnswer:
    """Search. A script call for each 500 timers that are looked at, and partition; 10,000 timers at most.
    Raises `InvalidField`."""
    name, state = call.need("topic"), call.text("state")
    if state not in STATES:
        raise InvalidField("state", f"is {state}; give pending, leased, or nothing")
    search = TimerSearch(
        name,
        call.text("prefix"),
        STATES[state],
        call.instant("since"),
        call.instant("before"),
        call.text("header").strip(),
    )
    found = await desk.searches.find(search, limit=PAGE, cursor=call.text("cursor"))
    said = {key: call.text(key) for key in ("topic", "prefix", "state", "since", "before", "header")}
    about = {
        **of_topic(desk, name),
        "said": said,
        "found": found,
        "most": MOST_LOOKED_AT,
        "may_see": desk.access.allows(AccessVerb.PAYLOAD, name),
        "next": shown.address("/console/timers", **said, cursor=found.cursor) if found.cursor else "",
    }
    return Shown("part_timers.html" if call.text("part") else "timers.html", about)


async def timer(desk: Desk, call: PageCall) -> PageAnswer:
    """Show one timer, or a page that says it is not there. Reads the timer once, and the newest page of the
    action log."""
    name, timer_id = call.need("topic"), call.need("id")
    found, sealed, status = None, "", 200
    try:
        found = (await desk.timers.get(pb.GetTimerRequest(topic=name, timer_id=timer_id))).timer
    except ContentSealed as failure:
        sealed = str(failure)
    except TimerNotFound:
        status = 404
    about: dict[str, object] = {
        **of_topic(desk, name),
        "timer_id": timer_id,
        "found": found,
        "sealed": sealed,
        "state": "" if found is None else STATE_NAMES[found.state],
        "may_see": desk.access.allows(AccessVerb.PAYLOAD, name),
        "may_move": not desk.opens_sealed,
        "content": None,
        "headers": {},
        "trace": "",
        "done": await _done_to(desk, name, timer_id),
    }
    if found is not None and not found.content_withheld:
        headers = dict(found.headers)
        trace = contents.trace_id(headers)
        about |= {
            "content": contents.shown(found.payload, found.content_type),
            "headers": headers,
            "trace": desk.trace_url.replace("{trace_id}", trace) if trace else "",
        }
    return Shown("timer.html", about, status)


async def _done_to(desk: Desk, topic: str, timer_id: str) -> list[object]:
    """What people did to a timer, as far as the newest page of the action log says."""
    found = await desk.people.page(topic=topic)
    return [each for each in found.actions if each.thing == timer_id]


async def payload(desk: Desk, call: PageCall) -> PageAnswer:
    """Give the payload as it is, for a browser to save. Raises `Denied` without the verb for that."""
    name, timer_id = call.need("topic"), call.need("id")
    desk.access.require(AccessVerb.PAYLOAD, name)
    found = (await desk.timers.get(pb.GetTimerRequest(topic=name, timer_id=timer_id))).timer
    return Download(found.payload, "payload.bin")
