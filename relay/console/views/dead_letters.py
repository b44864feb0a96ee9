"""Dead letters: by reason and by the shape of their error, and one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from relay.api.looking.searching import PATIENCE, LookingTime
from relay.console import contents, shown
from relay.console.requests import Desk, PageAnswer, PageCall, Shown
from relay.console.shapes import shape
from relay.console.views.topics import of_topic
from relay.core.ports import MAX_PER_CALL
from relay.core.trust.verbs import AccessVerb
from relay.v1 import topic_service_pb2 as pb

MOST_LOOKED_AT = 2_000
"""The dead letters that one page looks at."""

AT_A_TIME = 100
"""The dead letters that a page reads in one call, so that it holds up Redis for 2 ms and not for 10."""

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
    desk: Desk, topic: str, cursor: str, most: int, *, timer_id: str = "", size: int = MAX_PER_CALL
) -> AsyncIterator[tuple[Sequence[pb.DeadLetter], str]]:
    """Dead letters, the oldest death first, and after each page where the next one begins. At most `most` are
    looked at, and `size` in one call."""
    for start in range(0, most, size):
        request = pb.ListDeadLettersRequest(topic=topic, page_size=min(size, most - start), page_token=cursor)
        request.filter.timer_id = timer_id
        answer = await desk.topics.list_dead(request)
        cursor = answer.next_page_token
        yield answer.dead_letters, cursor
        if not cursor:
            return


async def looked_at(
    desk: Desk, topic: str, cursor: str, most: int, *, timer_id: str = ""
) -> AsyncIterator[tuple[Sequence[pb.DeadLetter], str]]:
    """Read as `pages` does for a person who waits: `AT_A_TIME` letters a call, for at most `PATIENCE` seconds
    (see 0134)."""
    looking = LookingTime(PATIENCE)
    async for page in pages(desk, topic, cursor, most, timer_id=timer_id, size=AT_A_TIME):
        yield page
        if looking.is_over():
            return


async def dead_letters(desk: Desk, call: PageCall) -> PageAnswer:
    """Show groups. A script call for each 100 letters that are looked at, and partition; 2,000 letters at
    most, and for `PATIENCE` at most."""
    name, timer_id = call.need("topic"), call.text("id")
    groups: dict[tuple[str, str], LetterGroup] = {}
    cursor, looked = call.text("cursor"), 0
    async for letters, following in looked_at(desk, name, cursor, MOST_LOOKED_AT, timer_id=timer_id):
        cursor, looked = following, looked + (AT_A_TIME if timer_id else len(letters))
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
        "looked_at": looked,
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
