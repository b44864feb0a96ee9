"""What was done by whom."""

from __future__ import annotations

from relay.console import shown
from relay.console.requests import Desk, PageAnswer, PageCall, Shown


async def people(desk: Desk, call: PageCall) -> PageAnswer:
    """Show a page of the action log, the newest first. One XREVRANGE of 200 entries."""
    topic, principal = call.text("topic"), call.text("principal")
    found = await desk.people.page(topic=topic, principal=principal, before=call.text("before"))
    following = shown.address("/console/people", topic=topic, principal=principal, before=found.before)
    about = {
        "actions": found.actions,
        "topic": topic,
        "chosen": principal,
        "next": following if found.before else "",
    }
    return Shown("people.html", about)
