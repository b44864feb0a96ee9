"""`seal forget`: a subject's key is removed, through a relay."""

from __future__ import annotations

import typer

from relay.cli.terminal import output
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, fail
from relay.cli.terminal.relay_connection import RelayConnection
from relay.cli.topics.redrive_and_purge import can_ask


def forget(
    connection: RelayConnection,
    topic: str,
    subject: str,
    yes: bool,
    note: str,
    durability: str,
    as_json: bool,
) -> None:
    """Forget a subject for good, after a confirmation."""
    if not yes:
        _ask(topic)
    since = connection.call(
        lambda topics: topics.forget_subject(topic, subject, note=note, durability=durability)
    )
    if as_json:
        output.document({"topic": topic, "forget_time": output.iso(since)})
    else:
        typer.echo(f"forgotten since {output.iso(since)}; relays that know the key use it for 5 seconds more")


def _ask(topic: str) -> None:
    if not can_ask():
        fail("--yes: is needed without a terminal, since nothing brings the key back", BAD_INPUT)
    what = f"Make all that this subject has in {output.safe(topic)} unreadable for good?"
    if not typer.confirm(what, err=True):
        fail("nothing was forgotten", FAILURE)
