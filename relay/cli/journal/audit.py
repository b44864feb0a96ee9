"""`relay audit` and `relay journal export`: judge a journal from Redis and from files, or keep it in one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import anyio
import typer

from relay.cli.journal import audit_report
from relay.cli.terminal import output
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, NOT_FOUND, OK, UNAVAILABLE, fail
from relay.cli.terminal.redis_connection import advice, load_settings
from relay.core import validate
from relay.core.audit import Audit, PromiseVerdict, Report
from relay.core.errors import InvalidField, StoreError, StoreRefused, StoreUnavailable, UnfitServer
from relay.core.journal import JournalBatch, place_of
from relay.core.trust.access import EVERY_TOPIC
from relay.core.trust.actions import Action, joined
from relay.settings.keys import key_names
from relay.store.journal import files as journal_file
from relay.store.journal.entries import decode
from relay.store.partitions.journals import TopicJournal
from relay.store.partitions.present import present
from relay.store.server.explain import explained
from relay.store.server.server import Server
from relay.store.timeline.actions import RedisActions

CODES = {PromiseVerdict.PROVED: OK, PromiseVerdict.REFUTED: FAILURE, PromiseVerdict.UNSAID: BAD_INPUT}

CATCHING_UP = 10
"""Looks at the end of a topic's journals, while timers are on their way between them."""

Work = Callable[[Server], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What to judge: the files in their order, then the stream in Redis if `redis` is set."""

    topic: str
    files: Sequence[Path]
    redis: bool
    at_rest: bool
    exclusive: bool
    examples: int


def audit(config: Path | None, asked: AuditRequest, as_json: bool) -> None:
    """Print the report, and exit with the code of its verdict."""
    _check_topic(asked.topic)
    judge = Audit(exclusive=asked.exclusive, examples=asked.examples)
    for file in asked.files:
        for batch in _read(file, asked.topic):
            judge.add(batch)
    if asked.redis:
        _with_redis(config, lambda server: replay(server, asked.topic, judge))
    report = judge.report(at_rest=asked.at_rest, reconciled=asked.redis)
    did = _people(config, asked.topic, report) if asked.redis else None
    if as_json:
        output.document(audit_report.document(asked.topic, report, did))
    else:
        audit_report.show(asked.topic, report, did)
    raise typer.Exit(CODES[report.verdict])


def _people(config: Path | None, topic: str, report: Report) -> list[Action] | None:
    """What people did to the topic, and to all of them, in the time of the journal; None where this user of
    Redis may not read that."""
    found: list[Action] | None = None

    async def read(server: Server) -> None:
        nonlocal found
        try:
            first = f"{max(report.first_time // 1000 - 1, 0)}-0"
            entries = [each async for each in RedisActions(server).behind(first)]
        except StoreRefused as refused:
            typer.echo(f"relay: what people did can't be read: {refused}", err=True)
            return
        meant = joined(each for each in entries if each.topic in (topic, EVERY_TOPIC))
        found = [each for each in meant if report.first_time <= each.time and each.since <= report.last_time]

    if report.batches:
        _with_redis(config, read)
    return found


async def replay(server: Server, topic: str, judge: Audit) -> None:
    """Add the stream from where the files end, ask Redis which timers exist, and add what was written
    meanwhile.

    The end of a timer and its record are one step. So a timer that did not exist when Redis was asked, and
    whose end is not in what was written meanwhile, is gone without a record. A timer that has arrived in a
    partition left another before: what was not read of that yet is there now.
    """
    journal = TopicJournal(server, topic, judge.places)
    await _catch_up(journal, judge)
    found = await present(server, journal.layout, list(judge.unreconciled()))
    judge.reconcile(list(found), list(found.values()))
    for _ in range(CATCHING_UP):
        await _catch_up(journal, judge)
        if not judge.waits:
            break


async def _catch_up(journal: TopicJournal, judge: Audit) -> None:
    """Read to what is the end at this moment: relays may write faster than we read."""
    await journal.look()
    ends = await journal.unread()
    if not ends:
        return
    async for raw in journal.behind():
        judge.add(decode(raw.id, raw.batch))
        ends.discard(raw.id)
        if not ends:
            return


def export(config: Path | None, topic: str, path: Path) -> None:
    """Write the stream to a file. If the file exists, go on behind its last entry."""
    _check_topic(topic)
    after, end = _read_already(path, topic)
    count = 0

    async def copy(server: Server) -> None:
        nonlocal count
        with ExitStack() as stack:
            file: BinaryIO | None = None
            journal = TopicJournal(server, topic, after)
            await journal.look()
            async for raw in journal.behind():
                if file is None:  # late, so that no file is made if Redis has nothing, or is away
                    file = stack.enter_context(path.open("r+b" if end else "wb"))
                    file.seek(end)
                    file.truncate()  # a run that was killed may have written a part of an entry
                file.write(journal_file.delimited(raw if end or count else raw.named(topic)))
                count += 1

    try:
        _with_redis(config, copy)
    except OSError as failure:
        fail(f"{path} can't be written: {failure.strerror}", FAILURE)
    if not (count or end):
        fail(f"the journal of {output.safe(topic)} is empty, or the topic has none", NOT_FOUND)
    typer.echo(f"{count} entries written to {path}", err=True)


def _read_already(path: Path, topic: str) -> tuple[dict[int, str], int]:
    """Return the id of each partition's last whole entry in a file, and where the last of them ends; nothing
    and 0 if no entry is whole."""
    after: dict[int, str] = {}
    end = 0
    try:
        with path.open("rb") as file:
            for raw in journal_file.entries(file, str(path)):
                if not end and raw.topic != topic:
                    fail(
                        f"{path} is of the topic {raw.topic!r}, not of {topic!r}: name another file",
                        BAD_INPUT,
                    )
                number, entry = place_of(raw.id)
                after[number], end = entry, raw.end
    except (FileNotFoundError, journal_file.CutShort):
        pass  # the whole entries count
    except InvalidField as error:
        fail(f"{error.problem}; name another file", BAD_INPUT)
    except OSError as failure:
        fail(f"{path} can't be read: {failure.strerror}", BAD_INPUT)
    return after, end


def _read(path: Path, topic: str) -> Iterator[JournalBatch]:
    """Yield a file's batches. A mistake in the file ends the command."""
    try:
        yield from journal_file.batches(path, topic)
    except InvalidField as error:
        fail(f"--{error}", BAD_INPUT)
    except OSError as failure:
        fail(f"--file: {path} can't be read: {failure.strerror}", BAD_INPUT)


def _check_topic(topic: str) -> None:
    try:
        validate.topic("topic", topic)
    except InvalidField as error:
        fail(str(error), BAD_INPUT)


def _with_redis(config: Path | None, work: Work) -> None:
    """Do something with the Redis that the settings name. A failure of Redis ends the command."""
    settings = load_settings(config)
    url, timeout = settings.redis.location, settings.redis.start_timeout

    async def run() -> None:
        keys = key_names(settings.redis)
        async with Server(url, keys, connections=1, timeout=timeout) as server, explained():
            await work(server)

    try:
        anyio.run(run)
    except StoreUnavailable as failure:
        fail(f"{settings.redis.url} can't be used: {failure}{advice(settings)}", UNAVAILABLE)
    except (StoreError, UnfitServer, ValueError) as failure:
        fail(str(failure), FAILURE)
    except KeyboardInterrupt:
        raise typer.Exit(FAILURE) from None
