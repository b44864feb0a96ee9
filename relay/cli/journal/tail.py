"""`relay journal tail`: reads a topic's journal from Redis and prints a line for each record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import typer

from relay.cli.terminal import output, parse
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, NOT_FOUND, UNAVAILABLE, fail
from relay.cli.terminal.redis_connection import advice, load_settings
from relay.core import validate
from relay.core.errors import InvalidField, StoreError, StoreUnavailable, UnfitServer
from relay.core.instants import SECOND
from relay.core.journal import JournalBatch, JournalRecord
from relay.settings.keys import key_names
from relay.store.journal.entries import MAX_BATCHES, checked, decode
from relay.store.partitions.entry_ids import EntryId
from relay.store.partitions.journals import TopicJournal
from relay.store.server.explain import explained
from relay.store.server.server import Server

INSTANTS = ("due", "score", "expires", "previous_due")
NONCES = ("nonce", "occurrence")
WORDS = {"score": "until", "previous_due": "was_due", "dead_id": "letter"}
"""The names of fields in a line, where they differ from the record's."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def tail(
    config: Path | None, topic: str, after: str | None, limit: int, interval: str | None, as_json: bool
) -> None:
    """Print the records. `interval` is the number of seconds between two looks for more; None means one
    look."""
    pause = parse.length(interval, "--interval").total_seconds() if interval is not None else None

    async def read(server: Server) -> None:
        await _tail(server, topic, after, limit, pause, as_json)

    read_redis(config, topic, read)


def read_redis(config: Path | None, topic: str, read: Callable[[Server], Awaitable[None]]) -> None:
    """Read the Redis that the settings name, until the end or Ctrl-C. A failure ends the command."""
    settings = load_settings(config)
    url, timeout = settings.redis.location, settings.redis.start_timeout

    async def run() -> None:
        async with (
            Server(url, key_names(settings.redis), connections=1, timeout=timeout) as server,
            explained(),
        ):
            await read(server)

    try:
        validate.topic("topic", topic)
        anyio.run(run)
    except InvalidField as error:
        fail(f"{'--' if error.field == 'from' else ''}{error}", BAD_INPUT)
    except StoreUnavailable as failure:
        fail(f"{settings.redis.url} can't be used: {failure}{advice(settings)}", UNAVAILABLE)
    except (StoreError, UnfitServer) as failure:
        fail(str(failure), FAILURE)
    except KeyboardInterrupt:
        raise typer.Exit from None


async def _tail(
    server: Server, topic: str, after: str | None, limit: int, pause: float | None, as_json: bool
) -> None:
    lines = TailLines(as_json)
    journal = TopicJournal(server, topic)
    await journal.look()
    if after:
        journal.begin_behind(_places(journal, after))
    if after is None:
        for raw in await journal.newest(min(limit, MAX_BATCHES)):
            lines.add(decode(raw.id, raw.batch))
        lines.end(limit)
    else:
        async for raw in journal.behind():
            lines.add(decode(raw.id, raw.batch))
            if lines.count >= limit:
                break
        lines.end()
    if not lines.count and pause is None:
        words = f"nothing behind {after}" if after else "empty, or the topic has no journal"
        fail(f"the journal of {output.safe(topic)} is {words}", NOT_FOUND)
    while pause is not None:
        await journal.look()
        async for raw in journal.behind():
            lines.add(decode(raw.id, raw.batch))
            lines.end()
        await until_next(pause)


async def until_next(pause: float) -> None:
    """Wait before the next look. Ctrl-C ends it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        # Ctrl-C cancels this task; redis-py waits by `wait_for`, which in Python 3.11 may swallow that.
        raise asyncio.CancelledError
    await anyio.sleep(pause)


def _places(journal: TopicJournal, after: str) -> dict[int, str]:
    """Where reading begins in each partition. An id without a partition's number stands for its instant.
    Raises `InvalidField`."""
    numbers = range(journal.count)
    if not journal.layout.epoch or "#" not in after:
        return dict.fromkeys(numbers, checked("from", after))
    where = EntryId.parse("from", after, journal.count)
    return {number: where.before(number) for number in numbers}


class TailLines:
    """Makes the lines: one for each record, and one wherever records are missing."""

    def __init__(self, as_json: bool) -> None:
        self.count = 0
        self._last: dict[int, JournalBatch] = {}
        """The last one of each partition."""
        self._as_json = as_json
        self._waiting: list[dict[str, Any]] = []

    def add(self, batch: JournalBatch) -> None:
        """Add one batch, which follows the one before of its partition."""
        partition, _ = batch.place
        last = self._last.get(partition)
        if last is not None and (missing := batch.lost_since(last.last)):
            self._waiting.append({"missing": missing})
        self._last[partition] = batch
        self.count += len(batch.records)
        for number, record in enumerate(batch.records, batch.first):
            place = {"entry": batch.entry, "number": number, "time": _iso(batch.time)}
            relay = {"relay": batch.relay} if batch.relay else {}
            self._waiting.append({**place, **fields(record), **relay})

    def end(self, limit: int = 0) -> None:
        """Print the lines that were added, or only the last `most` of them."""
        chosen, self._waiting = self._waiting[-limit:], []
        for line in chosen:
            if self._as_json:
                output.document(line)
            else:
                typer.echo(_text(line))


def fields(record: JournalRecord) -> dict[str, Any]:
    """Return a record's fields under the names of docs/reference/journal.md, instants in ISO 8601 and nonces
    in hex."""
    found: dict[str, Any] = {"kind": record.kind.name}
    for name in JournalRecord._fields[1:]:
        value = getattr(record, name)
        if name in INSTANTS and value:
            found[name] = _iso(value)
        elif name in NONCES and value:
            found[name] = value.hex()
        elif name in ("refused", "adopted") and value is not None:
            found[name] = value.name
        elif value:
            found[name] = value
    return found


def _text(line: dict[str, Any]) -> str:
    if "missing" in line:
        missing = line["missing"]
        went = f"{missing} records are missing" if missing > 0 else "the journal starts over"
        return f"-- {went} --"
    rest = dict(line)
    head = f"{rest.pop('time')}  {rest.pop('kind'):11}  {output.safe(rest.pop('timer_id', ''))}"
    del rest["entry"], rest["number"]
    words = (f"{WORDS.get(name, name)}={output.safe(str(value))}" for name, value in rest.items())
    return f"{head}  {' '.join(words).replace('=True', '')}".rstrip()


def _iso(instant: int) -> str:
    return output.iso(EPOCH + timedelta(seconds=instant // SECOND, microseconds=instant % SECOND))
