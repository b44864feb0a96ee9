"""What people do to one timer: run it now, move it, cancel it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from relay.api.people import brief
from relay.console import contents, shown
from relay.console.acting import NOTE, ActionDone, Asking, Fact, FormField
from relay.console.requests import Desk, PageAnswer, PageCall
from relay.console.views.timers import STATE_NAMES
from relay.core.errors import ContentSealed, InvalidField
from relay.core.instants import SECOND
from relay.core.recurring.nominal import write_instant
from relay.core.timers import Change, Condition, StoredTimer, TimerState
from relay.core.trust.verbs import AccessVerb
from relay.v1 import timer_pb2 as timer_messages
from relay.v1 import timer_service_pb2 as pb

RESULTS = {
    timer_messages.CHANGE_RESULT_IN_FLIGHT: "left as it is, since it is being delivered",
    timer_messages.CHANGE_RESULT_CANCELLED: "cancelled",
    timer_messages.CHANGE_RESULT_NOT_FOUND: "not there any more",
    timer_messages.CHANGE_RESULT_RUN: "due now",
}

MOVED = {
    Change.REPLACED: "moved",
    Change.UNCHANGED: "left as it is, since it has changed meanwhile",
    Change.IN_FLIGHT: "left as it is, since it is being delivered",
}


def _names(call: PageCall) -> tuple[str, str]:
    return call.need("topic"), call.need("id")


def _page_of(topic: str, timer_id: str) -> str:
    return shown.address("/console/timer", topic=topic, id=timer_id)


def _facts(found: timer_messages.Timer) -> list[Fact]:
    return [
        ("Topic", shown.name(found.topic)),
        ("Timer", shown.name(found.timer_id)),
        ("Due", shown.when(found.due_time)),
        ("State", STATE_NAMES[found.state]),
        ("Attempts so far", str(found.attempts)),
    ]


async def _read_facts(desk: Desk, topic: str, timer_id: str) -> list[Fact]:
    try:
        return _facts((await desk.timers.get(pb.GetTimerRequest(topic=topic, timer_id=timer_id))).timer)
    except ContentSealed:
        return [
            ("Topic", shown.name(topic)),
            ("Timer", shown.name(timer_id)),
            ("Content", brief.SEALED),
        ]


def _asking(
    topic: str,
    timer_id: str,
    facts: Sequence[Fact],
    *,
    title: str,
    action: str,
    button: str,
    explanation: str,
    fields: Sequence[FormField] = (NOTE,),
    hidden: Mapping[str, str] = MappingProxyType({}),
    final: bool = False,
) -> PageAnswer:
    """The page before an action on a timer."""
    return Asking(
        title=title,
        path=f"/console/timer/{action}",
        button=button,
        hidden={"topic": topic, "id": timer_id, **hidden},
        facts=facts,
        back=_page_of(topic, timer_id),
        topic=topic,
        fields=fields,
        explanation=explanation,
        final=final,
    ).page()


async def ask_run(desk: Desk, call: PageCall) -> PageAnswer:
    """Ask before a timer is made due now."""
    topic, timer_id = _names(call)
    desk.access.require(AccessVerb.OPERATE, topic)
    return _asking(
        topic,
        timer_id,
        await _read_facts(desk, topic, timer_id),
        title="Run the timer now",
        action="run",
        button="Run now",
        explanation="The timer is due at once, with the attempts that it had.",
    )


async def run(desk: Desk, call: PageCall) -> PageAnswer:
    """Make a timer due now."""
    topic, timer_id = _names(call)
    answer = await desk.timers.run_timer(
        pb.RunTimerRequest(topic=topic, timer_id=timer_id, note=call.text("note"))
    )
    said = "being delivered already" if answer.delivery_under_way else RESULTS[answer.result]
    facts: list[Fact] = [("Timer", shown.name(timer_id)), ("Now", said)]
    return ActionDone("The timer runs", facts, _page_of(topic, timer_id), topic).page()


async def ask_cancel(desk: Desk, call: PageCall) -> PageAnswer:
    """Ask before a timer is cancelled."""
    topic, timer_id = _names(call)
    desk.access.require(AccessVerb.SCHEDULE, topic)
    return _asking(
        topic,
        timer_id,
        await _read_facts(desk, topic, timer_id),
        title="Cancel the timer",
        action="cancel",
        button="Cancel the timer",
        explanation="The timer is removed with its payload. A delivery that is under way may end, and "
        "changes nothing.",
        final=True,
    )


async def cancel(desk: Desk, call: PageCall) -> PageAnswer:
    """Cancel a timer, and record who did."""
    topic, timer_id = _names(call)
    desk.access.require(AccessVerb.SCHEDULE, topic)
    record = desk.access.actions.record(AccessVerb.SCHEDULE, "Cancel", topic, timer_id, call.text("note"))
    async with record as action:
        await action.begin(brief.UNKNOWN)
        answer = await desk.timers.cancel(pb.CancelRequest(topic=topic, timer_id=timer_id))
        action.after = RESULTS[answer.result]
    facts: list[Fact] = [("Timer", shown.name(timer_id)), ("Now", RESULTS[answer.result])]
    if answer.delivery_under_way:
        facts.append(("Beside that", "a delivery was under way; its handler may still be at work"))
    back = shown.address("/console/timers", topic=topic)
    return ActionDone("The timer is cancelled", facts, back, topic).page()


async def ask_move(desk: Desk, call: PageCall) -> PageAnswer:
    """Ask before a timer is moved."""
    topic, timer_id = _names(call)
    found = await _movable(desk, topic, timer_id)
    due = shown.utc(found.due)
    state = "being delivered" if found.state is TimerState.LEASED else "waiting"
    text = contents.editable(found.payload)
    payload = () if text is None else (FormField("payload", "Payload", value=text, kind="lines"),)
    return _asking(
        topic,
        timer_id,
        [
            ("Topic", shown.name(topic)),
            ("Timer", shown.name(timer_id)),
            ("Due", shown.when(found.due)),
            ("State", state),
            ("Attempts so far", str(found.attempts)),
        ],
        title="Move or edit the timer",
        action="move",
        button="Move",
        explanation="The timer keeps its id, headers and content type, its payload unless you edit it here, "
        "and begins with attempt 1. An expiry is not "
        "kept: give it again. A timer that is being delivered, or has changed meanwhile, is left as it is.",
        fields=(
            FormField("due", "New due time", "As 2026-11-24T08:00:00Z.", value=due, required=True),
            *payload,
            FormField(
                "expires", "Expires after", "Seconds behind the due time; empty: never.", kind="number"
            ),
            NOTE,
        ),
        hidden={"was": due, "content": found.digest},
    )


async def _movable(desk: Desk, topic: str, timer_id: str) -> StoredTimer:
    """Read a timer with what it carries. Raises `Denied`, and `InvalidField` where its content may have been
    sealed: whether it was, and for which subject, can't be read, so it would be written again in the clear,
    or for nobody."""
    if desk.opens_sealed:
        desk.access.require(AccessVerb.SCHEDULE, topic)
        problem = "may hold sealed timers, which a page does not move; let their producer do it"
        raise InvalidField("topic", problem)
    return await desk.moves.read(topic, timer_id)


async def move(desk: Desk, call: PageCall) -> PageAnswer:
    """Give a timer another due time, and the payload of the form if it has one, unless the timer has changed
    since the page was made, and record who did. Raises `InvalidField`."""
    topic, timer_id = _names(call)
    due, was = call.need_instant("due"), call.need_instant("was")
    seen = Condition(only_pending=True, due=was, content=call.need("content"))
    found = await _movable(desk, topic, timer_id)
    said = call.text("expires").strip()
    expires = _microseconds("expires", said) if said else None
    payload = None
    if "payload" in call.given:
        text = call.text("payload", 2 * contents.MOST_EDITED)
        payload = contents.edited(text, found.payload, found.content_type)
    record = desk.access.actions.record(AccessVerb.SCHEDULE, "Schedule", topic, timer_id, call.text("note"))
    async with record as action:
        await action.begin(f"due {write_instant(was)}")
        result = await desk.moves.move(topic, timer_id, seen, due, payload=payload, expires_after=expires)
        moved = result.change is Change.REPLACED
        other = ", another payload" if payload not in (None, found.payload) else ""
        action.after = f"due {write_instant(due)}{other}" if moved else MOVED[result.change]
    facts: list[Fact] = [
        ("Timer", shown.name(timer_id)),
        ("Now", MOVED[result.change]),
        ("Due", shown.when(found.due if result.due is None else result.due)),
    ]
    title = "The timer is moved" if moved else "Nothing was moved"
    return ActionDone(title, facts, _page_of(topic, timer_id), topic).page()


def _microseconds(field: str, said: str) -> int:
    try:
        microseconds = round(float(said) * SECOND)
    except (ValueError, OverflowError):
        microseconds = 0
    if not 0 < microseconds < 10**18:
        raise InvalidField(field, "is not a number of seconds above 0")
    return microseconds
