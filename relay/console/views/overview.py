"""The first page: is it healthy, what is late, what comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relay.console import shown
from relay.console.live import LiveLook, TopicLook
from relay.console.requests import Desk, PageAnswer, PageCall, Shown
from relay.core.trust.access import EVERY_TOPIC
from relay.core.trust.verbs import AccessVerb
from relay.engine.topic_watch import MOST

MOST_SHOWN = 100
"""The topics of one page."""

LATE = 5.0
"""Seconds for which a timer may be due before the page says so."""


@dataclass(frozen=True, slots=True)
class Concern:
    """Something that somebody should look at: what it is about, and what is wrong there. `grave` if timers
    are not delivered because of it."""

    about: str
    said: str
    address: str = ""
    grave: bool = False
    alert: str = ""
    """The rule of deploy/prometheus that it is, if it is one."""

    def row(self) -> list[object]:
        """The same for a page that is open."""
        return [self.about, self.said, self.address, self.grave, self.alert]


def page_of(desk: Desk, look: LiveLook, after: str) -> tuple[Sequence[TopicLook], str]:
    """The topics of a page that the caller may read, in the order of their names, and where the next page
    begins."""
    names = sorted(name for name in look.topics if name > after and desk.access.allows(AccessVerb.READ, name))
    more = names[MOST_SHOWN - 1] if len(names) > MOST_SHOWN else ""
    return [look.topics[name] for name in names[:MOST_SHOWN]], more


def relay_numbers(look: LiveLook) -> dict[str, object]:
    """What changes of this relay."""
    relay = look.relay
    return {
        "streams": sum(relay.consumers.values()),
        "in_flight": sum(relay.in_flight.values()),
        "capacity": relay.capacity,
        "free": relay.free,
        "unwritten": relay.unwritten,
        "away": sum(not there for there in relay.connected.values()),
        "last_answer": round(max(relay.last_answers.values(), default=0.0), 3),
    }


def concerns(look: LiveLook, topics: Sequence[TopicLook]) -> list[Concern]:
    """What needs attention, the gravest first."""
    found = [
        Concern("This relay", f"is not well: {shown.visible(each)}", grave=True) for each in look.trouble
    ]
    for place, there in look.relay.connected.items():
        if not there and place and place not in look.silent:
            found.append(Concern(place, "does not answer", grave=True))
    for place in look.silent:
        said = "has not answered in time: its topics are missing here"
        found.append(Concern(place or "Redis", said, grave=True))
    for each in topics:
        stats = each.stats
        if stats.paused_until is not None:
            found.append(_of_topic(stats.topic, "is paused"))
        elif each.overdue > LATE:
            late = f"has timers that have been due for more than {shown.seconds(LATE)}"
            found.append(_of_topic(stats.topic, late, grave=True))
        if stats.dead:
            many = "1 dead letter" if stats.dead == 1 else f"{shown.count(stats.dead)} dead letters"
            found.append(_of_topic(stats.topic, f"has {many}", "/console/dead"))
    return sorted(found, key=lambda each: not each.grave)


def _of_topic(topic: str, said: str, page: str = "/console/topic", *, grave: bool = False) -> Concern:
    return Concern(shown.visible(topic), said, shown.address(page, topic=topic), grave)


def alerting(desk: Desk, topics: Sequence[TopicLook]) -> list[Concern]:
    """What alerts, of these topics and of this relay."""
    shown_here = {each.stats.topic for each in topics}
    return [
        Concern(
            shown.visible(each.about) if each.is_topic else each.about or "This relay",
            each.rule.said,
            shown.address("/console/topic", topic=each.about) if each.is_topic else "",
            each.rule.grave,
            each.rule.name,
        )
        for each in desk.alerts.firing()
        if not each.is_topic or each.about in shown_here
    ]


def holders(desk: Desk, look: LiveLook) -> list[tuple[str, int, int]]:
    """The topics with a stream or a push target here that the caller may read, `MOST_SHOWN` at most: the name
    of each, how many streams and targets it has, and how many deliveries they hold."""
    relay = look.relay
    names = sorted(name for name in relay.consumers if desk.access.allows(AccessVerb.READ, name))
    return [(name, relay.consumers[name], relay.leased.get(name, 0)) for name in names[:MOST_SHOWN]]


async def overview(desk: Desk, call: PageCall) -> PageAnswer:
    """Show all topics, this relay, and Redis. One pipelined read of the topics, once a second for
    everybody."""
    look = await desk.live.look()
    topics, more = page_of(desk, look, call.text("after"))
    about = {
        "look": look,
        "topics": topics,
        "more": more,
        "most": MOST,
        "after": call.text("after"),
        "concerns": [*alerting(desk, topics), *concerns(look, topics)],
        "holders": holders(desk, look),
        "relays": look.relays if desk.access.allows(AccessVerb.READ, EVERY_TOPIC) else (),
        "instance": desk.instance,
        "most_relays": MOST_SHOWN,
        "relay": relay_numbers(look),
        "relay_name": desk.relay_name,
        "uptime": desk.live.uptime(),
    }
    return Shown("overview.html", about)
