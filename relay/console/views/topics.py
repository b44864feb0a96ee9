"""One topic: how it stands, what falls due, its settings, its pause."""

from __future__ import annotations

import json
from collections.abc import Sequence

from google.protobuf.duration_pb2 import Duration

from relay.console import shown
from relay.console.acting import NOTE, ActionDone, Asking, Fact, FormField
from relay.console.requests import Desk, PageAnswer, PageCall, Shown, whole
from relay.core.errors import InvalidField, ServiceError
from relay.core.trust.verbs import AccessVerb
from relay.v1 import topic_service_pb2 as pb

HORIZONS = {
    "hour": ("hour", 3_600, 60),
    "day": ("day", 86_400, 900),
    "week": ("week", 604_800, 7_200),
    "month": ("30 days", 2_592_000, 21_600),
}
"""What a forecast may look ahead to: in words, in seconds, and the seconds of an interval."""

COUNTED = 0.04
"""Seconds for which a page counts occurrences. The rest of its 100 ms is for what it reads and says."""

MOST_MINUTES = 525_600


def of_topic(desk: Desk, topic: str) -> dict[str, object]:
    """What all pages of a topic show."""
    return {
        "topic": topic,
        "may_operate": desk.access.allows(AccessVerb.OPERATE, topic),
        "may_schedule": desk.access.allows(AccessVerb.SCHEDULE, topic),
    }


async def topic(desk: Desk, call: PageCall) -> PageAnswer:
    """Show a topic. A read of each partition, one of its forecast, and what is read for all pages once a
    second; of a topic with more than `FEW` partitions only the last, and what is asked for. Raises
    `InvalidField`."""
    name, chosen = call.need("topic"), call.text("ahead")
    if chosen not in ("", *HORIZONS):
        raise InvalidField("ahead", f"is {chosen}; give one of {', '.join(HORIZONS)}")
    looked = (await desk.live.look()).topics.get(name)
    if looked is not None and looked.stats.partitions > FEW:
        found = desk.topics.told(looked.stats)
    else:
        found = (await desk.topics.get(pb.GetTopicRequest(topic=name))).topic
    if found.partitions <= FEW:
        chosen = chosen or "hour"
    about = {
        **of_topic(desk, name),
        "found": found,
        "looked": looked,
        "ahead": chosen,
        "horizons": HORIZONS,
        **_trend(desk, name),
        **await _parts(desk, call, found),
        "settings": desk.settings_of(name),
        **(await _forecast(desk, name, chosen) if chosen else UNASKED),
    }
    return Shown("topic.html", about)


FEW = 16
"""The partitions up to which a page reads all of them unasked: each costs a call, and another one for the
forecast."""

PARTS = 64
"""The partitions of one page."""

UNASKED: dict[str, object] = {"forecast": None, "forecast_missing": "", "plot": ""}
"""No forecast."""


async def _parts(desk: Desk, call: PageCall, found: pb.Topic) -> dict[str, object]:
    """A page of partitions, if there are several and few, or if it is asked for."""
    said, many = call.text("parts"), found.partitions
    if many <= 1 or (many > FEW and not said):
        return {"parts": (), "first": 0, "per_page": PARTS}
    if said and not (said.isascii() and said.isdigit() and int(said) < many):
        raise InvalidField("parts", f"is not the number of a partition; give 0 to {many - 1}")
    first = int(said or 0)
    parts = await desk.partitions.parts(found.topic, first=first, most=PARTS)
    return {"parts": parts, "first": first, "per_page": PARTS}


ROWS = 20
"""The table shows each 20th sample: one in five minutes."""


def _trend(desk: Desk, topic: str) -> dict[str, object]:
    """The last hour: as plots, and a row each five minutes."""
    columns = desk.trends.of(topic).columns()
    rows = list(zip(*columns, strict=True))[::-1][::ROWS]
    return {"trend": json.dumps(columns, separators=(",", ":")), "trend_rows": rows}


async def _forecast(desk: Desk, topic: str, ahead: str) -> dict[str, object]:
    _, horizon, interval = HORIZONS[ahead]
    request = pb.ForecastRequest(
        topic=topic, horizon=Duration(seconds=horizon), resolution=Duration(seconds=interval)
    )
    try:
        found = await desk.topics.forecast(request, within=COUNTED)
    except ServiceError as failure:  # the rest of the page is good without it
        return {"forecast": None, "forecast_missing": str(failure), "plot": ""}
    starts = [each.start_time.seconds for each in found.intervals]
    plot = [
        starts,
        *([getattr(each, name) for each in found.intervals] for name in ("timers", "occurrences", "cold")),
    ]
    return {"forecast": found, "forecast_missing": "", "plot": json.dumps(plot, separators=(",", ":"))}


def standing(found: pb.Topic) -> list[Fact]:
    """How a topic stands, in words."""
    paused = "no"
    if found.paused:
        until = shown.when(found.paused_until, otherwise="until somebody resumes it")
        paused = until if not found.HasField("paused_until") else "until " + until
    return [
        ("Timers", shown.count(found.timers)),
        ("Due now", shown.count(found.due)),
        ("Dead letters", shown.count(found.dead)),
        ("Paused", paused),
    ]


async def _asking(
    desk: Desk,
    call: PageCall,
    *,
    title: str,
    action: str,
    button: str,
    explanation: str,
    fields: Sequence[FormField] = (NOTE,),
) -> PageAnswer:
    """The page before an action on a topic."""
    name = call.need("topic")
    desk.access.require(AccessVerb.OPERATE, name)
    found = (await desk.topics.get(pb.GetTopicRequest(topic=name))).topic
    return Asking(
        title=title,
        path=f"/console/topic/{action}",
        button=button,
        hidden={"topic": name},
        facts=standing(found),
        back=shown.address("/console/topic", topic=name),
        topic=name,
        fields=fields,
        explanation=explanation,
    ).page()


async def ask_pause(desk: Desk, call: PageCall) -> PageAnswer:
    """Ask before a pause."""
    return await _asking(
        desk,
        call,
        title="Pause the topic",
        action="pause",
        button="Pause",
        explanation="No relay claims a timer of this topic any more. What is being delivered goes on, "
        "and timers "
        "that fall due wait.",
        fields=(
            FormField("minutes", "For how many minutes", "Empty: until somebody resumes it.", kind="number"),
            NOTE,
        ),
    )


async def pause(desk: Desk, call: PageCall) -> PageAnswer:
    """Pause a topic. Raises `InvalidField`."""
    name = call.need("topic")
    request = pb.PauseTopicRequest(topic=name, note=call.text("note"))
    if said := call.text("minutes").strip():
        request.duration.seconds = whole("minutes", said, MOST_MINUTES) * 60
    answer = await desk.topics.pause(request)
    back = shown.address("/console/topic", topic=name)
    return ActionDone("The topic is paused", standing(answer.topic), back, name).page()


async def ask_resume(desk: Desk, call: PageCall) -> PageAnswer:
    """Ask before a pause is ended."""
    return await _asking(
        desk,
        call,
        title="Resume the topic",
        action="resume",
        button="Resume",
        explanation="Every relay takes up its work within a second. What has fallen due meanwhile is "
        "delivered at once.",
    )


async def resume(desk: Desk, call: PageCall) -> PageAnswer:
    """End a pause."""
    name = call.need("topic")
    answer = await desk.topics.resume(pb.ResumeTopicRequest(topic=name, note=call.text("note")))
    back = shown.address("/console/topic", topic=name)
    return ActionDone("The topic goes on", standing(answer.topic), back, name).page()
