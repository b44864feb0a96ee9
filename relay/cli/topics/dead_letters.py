"""`dead list` and `dead get`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from relay.cli.terminal import known_topics, output, tables
from relay.cli.terminal.exits import NOT_FOUND, fail
from relay.cli.terminal.relay_connection import RelayConnection
from relay.cli.topics.dead_letter_selection import PAGE, LetterOptions
from relay.cli.topics.topic_calls import show_topics
from relay.client.calls.topics import ALL_DEAD, DeadLetterInfo, Topics

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_PAGES = 20
"""Pages that `dead list` looks through with a filter but without --all."""

ERROR_WIDTH = 60
"""Characters of an error in a table; `dead get` and --json show all."""

HEADER_WIDTH = 200
"""Characters of a header's value that are shown to people."""

TITLES = ("dead id", "timer id", "reason", "attempts>", "died", "error")


def list_(
    connection: RelayConnection,
    topic: str,
    asked: LetterOptions,
    limit: int,
    everything: bool,
    every: str | None,
    as_json: bool,
) -> None:
    """Show up to `limit` dead letters that match, once or at an interval; JSON lines are printed as they
    come."""
    wanted = asked.filter()
    is_filtered = wanted != ALL_DEAD
    page_size = PAGE if is_filtered else min(limit + 1, PAGE)

    async def listed(topics: Topics, found: _Found) -> str:
        token = ""
        for page in itertools.count(1):
            letters, token = await topics.dead_page(topic, wanted, page_size=page_size, token=token)
            if found.add(letters):
                return f"there are more: these are the first {limit} (--limit)"
            if not token:
                if not found.letters:
                    await known_topics.require(topics, topic)
                return ""
            if page == MOST_PAGES and is_filtered and not everything:
                return (
                    f"stopped after {page} pages of at most {page_size} dead letters; --all looks through all"
                )
        raise AssertionError("unreachable")

    async def look(topics: Topics) -> _Found:
        found = _Found(limit, as_json)
        if note := await listed(topics, found):
            tables.remark(note)
        return found

    async def render(topics: Topics) -> RenderableType:
        return _rendered(topic, (await look(topics)).letters, is_filtered=is_filtered)

    show_topics(connection, every, look if as_json else None, render)


class _Found:
    """Collects as many dead letters as are wanted, or prints them as JSON as they come."""

    def __init__(self, limit: int, as_json: bool) -> None:
        self.letters: list[DeadLetterInfo] = []
        self._limit = limit
        self._as_json = as_json

    def add(self, letters: Sequence[DeadLetterInfo]) -> bool:
        """Take as many as there is room for; return whether there were more."""
        room = self._limit - len(self.letters)
        self.letters.extend(letters[:room])
        for letter in letters[:room] if self._as_json else ():
            output.document(document(letter))
        return len(letters) > room


def _rendered(topic: str, found: Sequence[DeadLetterInfo], *, is_filtered: bool) -> RenderableType:
    if found:
        return tables.table(TITLES, [_row(letter) for letter in found])
    match = " that match" if is_filtered else ""
    tables.remark(f"no dead letters in {output.safe(topic)}{match}")
    return ""


def get(connection: RelayConnection, topic: str, dead_id: str, most: int, as_json: bool) -> None:
    """Show a dead letter with at most `most` bytes of its payload; --json shows the whole payload."""
    letter = connection.call(lambda topics: topics.dead_letter(topic, dead_id))
    if letter is None:
        fail(f"there is no dead letter {output.name(topic, dead_id)}", NOT_FOUND)
    if as_json:
        output.document({**document(letter), **output.content(letter)})
        return
    rows = [
        *((label.replace("_", " "), str(value)) for label, value in document(letter).items()),
        *output.content_rows(letter, HEADER_WIDTH),
        ("payload", shown(letter.payload, most)),
    ]
    typer.echo(output.block(rows))


def document(letter: DeadLetterInfo) -> dict[str, Any]:
    """Return the fields that every answer about a dead letter has."""
    return {
        "topic": letter.topic,
        "dead_id": letter.dead_id,
        "timer_id": letter.timer_id,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "last_error": letter.last_error,
        "due_time": output.iso(letter.due_time),
        "death_time": output.iso(letter.death_time),
        "occurrence_id": letter.occurrence_id,
    }


def shown(payload: bytes, most: int) -> str:
    """Return the beginning of a payload as text, or as hexadecimal digits if it is not text, and its size."""
    part, is_cut = payload[:most], len(payload) > most
    # The last character of a cut text may be incomplete: it has up to four bytes.
    ends = range(min(4, len(part)) if is_cut and part else 1)
    texts = (output.decoded(part[: len(part) - n]) for n in ends)
    text = next((text for text in texts if text is not None), None)
    words = part.hex(" ") if text is None else text
    if is_cut:
        return f"{words} … (the first {most} of {len(payload)} bytes; --json has all)"
    return words if text is not None else f"{words} ({len(payload)} bytes, not text)"


def _row(letter: DeadLetterInfo) -> tuple[str, ...]:
    return (
        letter.dead_id,
        letter.timer_id,
        letter.reason,
        str(letter.attempts),
        output.iso(letter.death_time),
        output.cut(letter.last_error, ERROR_WIDTH),
    )
