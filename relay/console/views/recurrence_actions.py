"""What people do to a recurrence: pause, resume, trigger and backfill it."""

from __future__ import annotations

from collections.abc import Sequence

from relay.api.times import timestamp
from relay.console import shown
from relay.console.acting import NOTE, ActionDone, Asking, Fact, FormField
from relay.console.requests import Desk, PageAnswer, PageCall
from relay.console.views.recurrences import rule_of
from relay.core.errors import InvalidField
from relay.core.trust.verbs import AccessVerb
from relay.v1 import recurrence_service_pb2 as pb


def _back(topic: str, recurrence_id: str) -> str:
    return shown.address("/console/recurrence", topic=topic, id=recurrence_id)


def _standing(found: pb.Recurrence) -> list[Fact]:
    return [
        ("Recurrence", shown.name(found.spec.recurrence_id)),
        ("Rule", rule_of(found.spec.rule)),
        ("Next", shown.when(found.next_time)),
        ("Paused", shown.when(found.pause_time, otherwise="no")),
    ]


async def _ask(
    desk: Desk, call: PageCall, verb: str, explanation: str, fields: Sequence[FormField] = (NOTE,)
) -> PageAnswer:
    name, recurrence_id = call.need("topic"), call.need("id")
    desk.access.require(AccessVerb.OPERATE, name)
    request = pb.GetRecurrenceRequest(topic=name, recurrence_id=recurrence_id)
    found = (await desk.recurrences.get(request)).recurrence
    return Asking(
        title=f"{verb} the recurrence",
        path=f"/console/recurrence/{verb.lower()}",
        button=verb,
        hidden={"topic": name, "id": recurrence_id},
        facts=_standing(found),
        back=_back(name, recurrence_id),
        topic=name,
        fields=fields,
        explanation=explanation,
    ).page()


async def ask_pause(desk: Desk, call: PageCall) -> PageAnswer:
    """Ask before a pause."""
    return await _ask(
        desk, call, "Pause", "It makes no timers until somebody resumes it. Those that wait stay."
    )


async def ask_resume(desk: Desk, call: PageCall) -> PageAnswer:
    """Ask before a pause ends."""
    return await _ask(desk, call, "Resume", "It goes on with the first instant that is to come.")


async def ask_backfill(desk: Desk, call: PageCall) -> PageAnswer:
    """Ask before instants that have passed are made good."""
    return await _ask(
        desk,
        call,
        "Backfill",
        "It makes an occurrence for each instant that has passed between the two, 500 at most. They come one "
        "after another, or all at once if that is the recurrence's own policy.",
        fields=(
            FormField("since", "From", "As 2026-11-24T08:00:00Z.", required=True),
            FormField("until", "Before", "An instant that has passed.", required=True),
            FormField("apart", "Seconds between two", "Empty: none.", kind="number"),
            NOTE,
        ),
    )


async def backfill(desk: Desk, call: PageCall) -> PageAnswer:
    """Make occurrences for instants that have passed. Raises `InvalidField`."""
    name, recurrence_id = call.need("topic"), call.need("id")
    since, until = call.need_instant("since"), call.need_instant("until")
    request = pb.BackfillRecurrenceRequest(
        topic=name,
        recurrence_id=recurrence_id,
        start_time=timestamp(since),
        end_time=timestamp(until),
        note=call.text("note"),
    )
    if said := call.text("apart").strip():
        if not said.isascii() or not said.isdigit() or len(said) > 9:
            raise InvalidField("apart", "is not a whole number of seconds")
        request.interval.seconds = int(said)
    done = await desk.recurrences.backfill(request)
    facts: list[Fact] = [
        ("Occurrences", shown.count(done.occurrences)),
        ("Waiting for their turn", shown.count(done.waiting)),
        ("First", shown.when(done.first_time, otherwise="none")),
        ("Last", shown.when(done.last_time, otherwise="none")),
    ]
    return ActionDone("Backfill: done", facts, _back(name, recurrence_id), name).page()


async def ask_trigger(desk: Desk, call: PageCall) -> PageAnswer:
    """Ask before a further run."""
    return await _ask(desk, call, "Trigger", "It makes one timer that is due now, beside those of its rule.")


async def pause(desk: Desk, call: PageCall) -> PageAnswer:
    """Pause a recurrence."""
    name, recurrence_id = call.need("topic"), call.need("id")
    request = pb.PauseRecurrenceRequest(topic=name, recurrence_id=recurrence_id, note=call.text("note"))
    found = (await desk.recurrences.pause(request)).recurrence
    return ActionDone("The recurrence is paused", _standing(found), _back(name, recurrence_id), name).page()


async def resume(desk: Desk, call: PageCall) -> PageAnswer:
    """End a pause."""
    name, recurrence_id = call.need("topic"), call.need("id")
    request = pb.ResumeRecurrenceRequest(topic=name, recurrence_id=recurrence_id, note=call.text("note"))
    found = (await desk.recurrences.resume(request)).recurrence
    return ActionDone("The recurrence goes on", _standing(found), _back(name, recurrence_id), name).page()


async def trigger(desk: Desk, call: PageCall) -> PageAnswer:
    """Make an occurrence now."""
    name, recurrence_id = call.need("topic"), call.need("id")
    request = pb.TriggerRecurrenceRequest(topic=name, recurrence_id=recurrence_id, note=call.text("note"))
    timer_id = (await desk.recurrences.trigger(request)).timer_id
    made: Fact = ("Timer", shown.name(timer_id) if timer_id else "none: the occurrence before is in its way")
    return ActionDone("The recurrence was triggered", [made], _back(name, recurrence_id), name).page()
