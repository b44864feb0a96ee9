"""`relay seal …` and its options."""

from __future__ import annotations

import typer

from relay.cli.terminal.options import TOPICS, Config, Json, TopicName

app = typer.Typer(no_args_is_help=True)
group = typer.Typer()
group.add_typer(
    app, name="seal", help="Sealed topics: which keys are in use, and new keys.", rich_help_panel=TOPICS
)


@app.command()
def status(topic: TopicName, config: Config = None, as_json: Json = False) -> None:
    """Count a topic's contents by the key that they are sealed with: timers, recurrences, dead letters.

    All contents are read from Redis itself, which RELAY_REDIS__URL or --config names. No key is needed.
    """
    from relay.cli.sealing import rotating

    rotating.status(config, topic, as_json)


@app.command()
def rotate(topic: TopicName, config: Config = None, as_json: Json = False) -> None:
    """Seal all that waits of a topic, and its recurrences and dead letters, with the key that seals now.

    That is the key `write` of the settings' keyring; every relay should seal with it already. Relays go on
    beside this. It may be cut off anywhere, and run again; exit 1 if something does not open.
    """
    from relay.cli.sealing import rotating

    rotating.rotate(config, topic, as_json)
