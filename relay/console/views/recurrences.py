"""Recurrences: which there are, what comes of them, and what people do to them."""

from __future__ import annotations

from datetime import UTC, datetime

from google.protobuf.duration_pb2 import Duration

from relay.console import shown
from relay.console.requests import Desk, PageAnswer, PageCall, Shown
from relay.console.views.calendar import WEEKS, days_of, line_of
from relay.console.views.topics import of_topic
from relay.core.errors import InvalidField, ServiceError
from relay.core.instants import SECOND
from relay.core.trust.verbs import AccessVerb
from relay.v1 import recurrence_service_pb2 as pb

PAGE = 50
"""The recurrences of one page."""

COMING, PAST = 12, 16
"""The instants that a page shows."""

CALENDAR = 200
"""The instants to come that a calendar counts, at most."""

CALENDAR_AHEAD = (WEEKS * 7 + 1) * 86_400 * SECOND
"""Microseconds until behind the end of a calendar, in whatever zone: what comes later is computed only for
the list of instants. 200 instants of a rule that fires once in years would take seconds."""


def rule_of(rule: pb.RecurrenceRule) -> str:
    """When a recurrence fires, in one line."""
    said = rule.cron or " ".join(rule.rrule.split())
    if rule.HasField("every"):
        said = f"every {shown.length(rule.every)}"
    return shown.visible(f"{said} {rule.zone}".strip())


OUTCOMES = {
    pb.OCCURRENCE_OUTCOME_UNSPECIFIED: "",
    pb.OCCURRENCE_OUTCOME_WAITING: "waiting",
    pb.OCCURRENCE_OUTCOME_LEASED: "being delivered",
    pb.OCCURRENCE_OUTCOME_ACKED: "done",
    pb.OCCURRENCE_OUTCOME_DEAD: "dead",
    pb.OCCURRENCE_OUTCOME_EXPIRED: "expired",
    pb.OCCURRENCE_OUTCOME_CANCELLED: "cancelled",
    pb.OCCURRENCE_OUTCOME_PROMOTED: "promoted",
    pb.OCCURRENCE_OUTCOME_REMOVED: "removed",
    pb.OCCURRENCE_OUTCOME_UNKNOWN: "not known",
}


async def recurrences(desk: Desk, call: PageCall) -> PageAnswer:
    """List those of a topic. One read of each partition."""
    name = call.need("topic")
    request = pb.ListRecurrencesRequest(
        topic=name, prefix=call.text("prefix"), page_size=PAGE, page_token=call.text("cursor")
    )
    answer = await desk.recurrences.list(request)
    following = shown.address(
        "/console/recurrences", topic=name, prefix=call.text("prefix"), cursor=answer.next_page_token
    )
    about = {
        **of_topic(desk, name),
        "rows": [(each, rule_of(each.spec.rule)) for each in answer.recurrences],
        "prefix": call.text("prefix"),
        "next": following if answer.next_page_token else "",
    }
    return Shown("recurrences.html", about)


async def recurrence(desk: Desk, call: PageCall) -> PageAnswer:
    """Show one, with its next instants and what came of the latest."""
    name, recurrence_id = call.need("topic"), call.need("id")
    named = {"topic": name, "recurrence_id": recurrence_id}
    found = (await desk.recurrences.get(pb.GetRecurrenceRequest(**named))).recurrence
    history = await desk.recurrences.history(pb.GetRecurrenceHistoryRequest(**named, limit=PAST))
    coming, trouble, now = pb.PreviewRecurrenceResponse(), "", datetime.now(UTC)
    try:
        coming = await desk.recurrences.coming(
            name, found.spec.rule, CALENDAR, ahead=CALENDAR_AHEAD, at_least=COMING
        )
    except ServiceError as failure:  # such as a rule that has fired for the last time
        trouble = str(failure)
    about = {
        **of_topic(desk, name),
        "found": found,
        "rule": rule_of(found.spec.rule),
        "coming": coming.instants[:COMING],
        "weeks": days_of(
            found.spec.rule.zone,
            coming.instants,
            history.instants,
            now,
            ends=len(coming.instants) < CALENDAR,
        ),
        "line": line_of(coming.instants[:COMING], history.instants, now),
        "trouble": trouble,
        "past": [(each, OUTCOMES[each.outcome]) for each in history.instants],
        "outcomes_missing": history.outcomes_missing,
        "overlap": _word(pb.OverlapPolicy.Name(found.spec.overlap)),
        "catch_up": _word(pb.CatchUpPolicy.Name(found.spec.catch_up)),
    }
    return Shown("recurrence.html", about)


def _word(constant: str) -> str:
    return constant.rpartition("_")[2].lower()


async def preview(desk: Desk, call: PageCall) -> PageAnswer:
    """The next instants of a rule while it is typed: a part of a page."""
    topic, said = call.need("topic"), call.text("rule").strip()
    desk.access.require(AccessVerb.READ, topic)
    rule = pb.RecurrenceRule(zone=call.text("zone").strip())
    about: dict[str, object] = {"coming": [], "trouble": "", "said": said}
    if said:
        try:
            _read_rule(rule, said)
            asked = pb.PreviewRecurrenceRequest(topic=topic, rule=rule, count=COMING)
            about["coming"] = (await desk.recurrences.preview(asked)).instants
        except InvalidField as failure:
            about["trouble"] = f"{failure.field}: {failure.problem}"
    return Shown("part_instants.html", about)


def _read_rule(rule: pb.RecurrenceRule, said: str) -> None:
    """Fill in cron, an RRULE, or `every` and seconds. Raises `InvalidField`."""
    kind, _, rest = said.partition(" ")
    if kind.lower() == "every":
        if not rest.strip().isascii() or not rest.strip().isdigit() or len(rest) > 12:
            raise InvalidField("rule.every", "is not a whole number of seconds, as in: every 900")
        rule.every.CopyFrom(Duration(seconds=int(rest)))
    elif "FREQ=" in said.upper():
        rule.rrule = said
    else:
        rule.cron = said
