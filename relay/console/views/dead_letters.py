"""Dead letters: by reason and by the shape of their error, and one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from relay.console import contents, shown
from relay.console.requests import Desk, PageAnswer, PageCall, Shown
from relay.console.shapes import shape
from relay.console.views.topics import of_topic
from relay.core.ports import MAX_PER_CALL
from relay.core.trust.verbs import AccessVerb
from relay.v1 import topic_service_pb2 as pb

MOST_LOOKED_AT = 2_000
"""The dead letters that one page looks at."""

EXAMPLES = 5
"""The dead letters of a group that a page names."""


@dataclass(slots=True)
class LetterGroup:
    """Dead letters with one reason, and errors of one shape. `letters` are the first of them."""

    reason: str
    shape: str
    count: int = 0
    letters: list[pb.DeadLetter] = field(default_factory=list)
    first: int = 0
    last: int = 0

    def add(self, letter: pb.DeadLetter) -> None:
        """Take in one more, which did not die before the others."""
        died = shown.microseconds(letter.death_time) or 0
        self.first = self.first or died
        self.last = died
        self.count += 1
        if len(self.letters) < EXAMPLES:
            self.letters.append(letter)


async def pages(
    desk: Desk, topic: str, cursor: str, most: int, *, timer_id: str = "", reason: str = ""
) -> AsyncIterator[tuple[Sequence[pb.DeadLetter], str]]:
    """Dead letters, the oldest death first, and after each page where the next one begins. At most `most` are
    looked at."""
    for _ in range(0, most, MAX_PER_CALL):
        request = pb.ListDeadLettersRequest(topic=topic, page_size=MAX_PER_CALL, page_token=cursor)
        request.filter.timer_id, request.filter.reason = timer_id, reason
        answer = await desk.topics.list_dead(request)
        cursor = answer.next_page_token
        yield answer.dead_letters, cursor
        if not cursor:
            return


async def dead_letters(desk: Desk, call: PageCall) -> PageAnswer:
    """Show groups. A script call for each 500 letters that are looked at, and partition; 2,000 letters at
    most."""
    name, timer_id = call.need("topic"), call.text("id")
    groups: dict[tuple[str, str], LetterGroup] = {}
    cursor = call.text("cursor")
    async for letters, following in pages(desk, name, cursor, MOST_LOOKED_AT, timer_id=timer_id):
        cursor = following
        for letter in letters:
            key = letter.reason, shape(letter.last_error)
            groups.setdefault(key, LetterGroup(*key)).add(letter)
    found = (await desk.topics.get(pb.GetTopicRequest(topic=name))).topic
    about = {
        **of_topic(desk, name),
        "found": found,
        "timer_id": timer_id,
        "groups": sorted(groups.values(), key=lambda each: -each.count),
        "next": shown.address("/console/dead", topic=name, id=timer_id, cursor=cursor) if cursor else "",
        "from_start": not call.text("cursor"),
        "most": MOST_LOOKED_AT,
    }
    return Shown("dead.html", about)


async def dead_letter(desk: Desk, call: PageCall) -> PageAnswer:
    """Show one. One read."""
    name, dead_id = call.need("topic"), call.need("dead_id")
    request = pb.GetDeadLetterRequest(topic=name, dead_id=dead_id)
    letter = (await desk.topics.get_dead(request)).dead_letter
    headers = dict(letter.headers)
    trace = contents.trace_id(headers)
    about = {
        **of_topic(desk, name),
        "letter": letter,
        "may_see": desk.access.allows(AccessVerb.PAYLOAD, name),
        "content": None if letter.content_withheld else contents.shown(letter.payload, letter.content_type),
        "headers": headers,
        "trace": desk.trace_url.replace("{trace_id}", trace) if trace else "",
    }
    return Shown("letter.html", about)
