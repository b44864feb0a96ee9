"""`seal forget`: a subject's key is removed, through a relay."""

from __future__ import annotations

import typer

from relay.cli.terminal import output
from relay.cli.terminal.confirming import confirm
from relay.cli.terminal.relay_connection import RelayConnection


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
        confirm(
            lambda: f"Make all that this subject has in {output.safe(topic)} unreadable for good?",
            reason="nothing brings the key back",
            refused="nothing was forgotten",
        )
    since = connection.call(
        lambda topics: topics.forget_subject(topic, subject, note=note, durability=durability)
    )
    if as_json:
        output.document({"topic": topic, "forget_time": output.iso(since)})
    else:
        typer.echo(f"forgotten since {output.iso(since)}; relays that know the key use it for 5 seconds more")
