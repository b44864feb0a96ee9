"""`relay seal …` and its options."""

from __future__ import annotations

from typing import Annotated

import typer

from relay.cli.terminal.options import (
    DEFAULT_TARGET,
    TOPICS,
    Config,
    Durability,
    Json,
    Note,
    Target,
    Timeout,
    TopicName,
)

app = typer.Typer(no_args_is_help=True)
group = typer.Typer()
group.add_typer(
    app,
    name="seal",
    help="Sealed topics: which keys are in use, new keys, forgotten subjects.",
    rich_help_panel=TOPICS,
)


@app.command()
def status(topic: TopicName, config: Config = None, as_json: Json = False) -> None:
    """Count by the key that they are sealed with: timers, recurrences, dead letters, the keys of subjects.

    All contents are read from Redis itself, which RELAY_REDIS__URL or --config names. No key is needed.
    """
    from relay.cli.sealing import rotating

    rotating.status(config, topic, as_json)


@app.command()
def rotate(topic: TopicName, config: Config = None, as_json: Json = False) -> None:
    """Seal all that waits of a topic, and its recurrences, dead letters and subjects' keys, with the new key.

    That is the key `write` of the settings' keyring; every relay should seal with it already. Relays go on
    beside this. It may be cut off anywhere, and run again; exit 1 if something does not open.
    """
    from relay.cli.sealing import rotating

    rotating.rotate(config, topic, as_json)


@app.command()
def forget(
    topic: TopicName,
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help="The subject, as seal_with names it in timers.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    note: Note = "",
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Remove the key of a subject for good: what was sealed with it never opens again, wherever it lies.

    Its timers die when they are due, as forgotten, and its name is refused from then on. Exit 3 if no timer
    of the topic ever named it.
    """
    from relay.cli.sealing import forgetting
    from relay.cli.terminal.relay_connection import RelayConnection

    forgetting.forget(RelayConnection(target, timeout), topic, subject, yes, note, durability, as_json)
