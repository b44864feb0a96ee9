"""`seal status` and `seal rotate`: the keys of a topic's contents, in Redis itself."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import typer

from relay.cli.terminal import output
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, UNAVAILABLE, fail
from relay.cli.terminal.redis_connection import advice, load_settings
from relay.core import validate
from relay.core.errors import InvalidField, StoreError, StoreUnavailable
from relay.core.trust.sealing import SUBJECT
from relay.settings import Settings
from relay.settings.keys import key_names
from relay.store.bulk.resealing import FORGOTTEN, PLAIN, Resealing, Rotated, Sealed
from relay.store.bulk.store import BulkStore
from relay.store.codec.contents import Contents
from relay.store.server.blocking import TIMEOUT, BlockingServer
from relay.trust.files import BadFile
from relay.trust.keyring import FileKeyring

NOT_SEALED = (
    "{topic!r} is not sealed by the settings; set sealing for it, or name the relays' settings by --config"
)
NO_KEYRING = "sealing.keyring: names no file; name the keyring, whose `write` is the key to seal with"


def status(config: Path | None, topic: str, as_json: bool) -> None:
    """Print how many contents are sealed with which key."""
    settings = load_settings(config)
    with _store(settings, topic) as store:
        found = Resealing(store).count(topic)
    if as_json:
        output.document(
            {
                "topic": topic,
                "keys": {
                    kind.replace(" ", "_"): [
                        {"key": key_id or None, "count": count}
                        for key_id, count in sorted(keys.items())
                        if key_id != FORGOTTEN
                    ]
                    for kind, keys in found.items()
                },
                "forgotten_subjects": found[Sealed.SUBJECTS][FORGOTTEN],
            }
        )
        return
    for kind, keys in found.items():
        each = ", ".join(f"{count:,} {_named(key_id)}" for key_id, count in sorted(keys.items()))
        typer.echo(f"{kind}: {each or 'none'}")


def rotate(config: Path | None, topic: str, as_json: bool) -> None:
    """Seal all with the key that seals now."""
    settings = load_settings(config)
    if not settings.sealing.keyring:
        fail(NO_KEYRING, BAD_INPUT)
    if not settings.policies().seals(topic):
        fail(NOT_SEALED.format(topic=topic), BAD_INPUT)
    try:
        keyring = FileKeyring(Path(settings.sealing.keyring))
    except BadFile as wrong:
        fail(str(wrong), BAD_INPUT)
    with _store(settings, topic) as store:
        done = Resealing(store).rotate(topic, Contents(keyring), keyring.writes)
    _show(topic, keyring.writes, done, as_json)
    raise typer.Exit(FAILURE if done.closed else 0)


def _show(topic: str, writes: str, done: Rotated, as_json: bool) -> None:
    if as_json:
        changed = {kind.replace(" ", "_"): count for kind, count in sorted(done.changed.items())}
        output.document({"topic": topic, "key": writes, "sealed": changed, "closed": dict(done.closed)})
        return
    each = ", ".join(f"{count:,} {kind}" for kind, count in done.changed.items() if count)
    typer.echo(f"sealed with key {writes!r} now: {each or 'nothing, all were'}")
    for why, count in done.closed.items():
        typer.echo(f"relay: {count:,} left as they are: {output.safe(why)}", err=True)


def _named(key_id: str) -> str:
    others = {PLAIN: "in the clear", FORGOTTEN: "forgotten", SUBJECT: "with subjects' keys"}
    return others.get(key_id) or f"with key {key_id!r}"


@contextmanager
def _store(settings: Settings, topic: str) -> Generator[BulkStore, None, None]:
    """The way to Redis; what fails within ends the command with a sentence and a code."""
    try:
        validate.topic("topic", topic)
        policies, redis = settings.policies(), settings.redis
        server = BlockingServer(
            redis.location,
            key_names(redis),
            timeout=max(redis.command_timeout, TIMEOUT),
            durability=lambda name: policies(name).durability,
        )
        with BulkStore(server) as store:
            yield store
    except InvalidField as wrong:
        fail(str(wrong), BAD_INPUT)
    except StoreUnavailable as failure:
        fail(f"Redis can't be reached: {failure}{advice(settings)}", UNAVAILABLE)
    except StoreError as failure:
        fail(str(failure), FAILURE)
