"""`relay journal tail --people`: reads the action log and prints a line for each action."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import typer

from relay.cli.journal.tail import read_redis, until_next
from relay.cli.terminal import output, parse
from relay.cli.terminal.exits import NOT_FOUND, fail
from relay.core.trust.access import EVERY_TOPIC
from relay.core.trust.actions import Action, joined
from relay.core.trust.globs import Glob
from relay.store.journal.entries import checked
from relay.store.server.server import Server
from relay.store.timeline.actions import RedisActions

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

OPEN = "open"
"""What stands in the place of an outcome that is not known."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which actions: those on a topic, of principals that a pattern matches."""

    topic: str | None
    principal: str

    def matches(self, action: Action) -> bool:
        """Whether an action is one of them."""
        return self.topic in (None, action.topic) and Glob(self.principal).matches(action.principal)


def tail(
    config: Path | None, wanted: Wanted, after: str | None, limit: int, interval: str | None, as_json: bool
) -> None:
    """Print the actions. `interval` is the time between two looks for more; None means one look."""
    pause = parse.length(interval, "--interval").total_seconds() if interval is not None else None

    async def read(server: Server) -> None:
        await _tail(RedisActions(server), wanted, after, limit, pause, as_json)

    read_redis(config, wanted.topic or EVERY_TOPIC, read)


async def _tail(
    store: RedisActions, wanted: Wanted, after: str | None, limit: int, pause: float | None, as_json: bool
) -> None:
    last, found = await _first(store, wanted, after, limit)
    _print(found, as_json)
    if not found and pause is None:
        fail(f"nobody did anything{f' behind {after}' if after else ''}, as far as is recorded", NOT_FOUND)
    waiting: list[Action] = []
    while pause is not None:
        await until_next(pause)
        new = [each async for each in store.behind(last)]
        last = new[-1].entry if new else last
        # One that has begun is printed at the next look, unless it has ended by then.
        entries = joined([*waiting, *filter(wanted.matches, new)])
        ripe = {each.entry for each in waiting}
        waiting = [each for each in entries if each.is_open and each.entry not in ripe]
        _print([each for each in entries if each not in waiting], as_json)


async def _first(
    store: RedisActions, wanted: Wanted, after: str | None, limit: int
) -> tuple[str, list[Action]]:
    """The id of the last entry that was looked at, and what is printed first."""
    entries: list[Action] = []
    last = "0-0"
    if after is not None:
        last = checked("from", after)
        async for each in store.behind(last):
            if wanted.matches(each):
                if len(joined([*entries, each])) > limit:  # not sooner: the end of the last one may follow
                    break
                entries.append(each)
            last = each.entry
        return last, joined(entries)
    newest = ""
    async for each in store.backwards():
        newest = newest or each.entry
        if wanted.matches(each):
            entries.append(each)
            if len(entries) > 2 * limit:  # each has two at most
                break
    return newest or last, joined(reversed(entries))[-limit:]


def fields(action: Action) -> dict[str, Any]:
    """An action under the names of docs/how-to/what-people-did.md, its instant in ISO 8601."""
    return {
        "entry": action.entry,
        "time": moment(action),
        "principal": action.principal,
        "kind": action.kind,
        "verb": action.verb,
        "method": action.method,
        "topic": action.topic,
        "thing": action.thing,
        "note": action.note,
        "before": action.before,
        "after": action.after,
        "outcome": action.outcome or OPEN,
        "relay": action.relay,
        "began": action.began,
    }


def line(action: Action) -> str:
    """An action in one line."""
    what = f"{action.topic}/{action.thing}" if action.thing else action.topic
    head = f"{moment(action)}  {action.principal}  {action.method}  {what}  {action.outcome or OPEN}"
    said = {"before": action.before, "after": action.after, "note": action.note}
    words = (f'{name}="{text}"' for name, text in said.items() if text)
    return output.safe("  ".join((head, *words)))


def moment(action: Action) -> str:
    """When it was written."""
    return output.iso(EPOCH + timedelta(microseconds=action.time))


def _print(actions: Iterable[Action], as_json: bool) -> None:
    for each in actions:
        if as_json:
            output.document(fields(each))
        else:
            typer.echo(line(each))
