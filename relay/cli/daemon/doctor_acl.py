"""`relay doctor --acl`: the rights that each kind of work needs in Redis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import typer

from relay.cli.terminal.exits import settings_errors
from relay.core.durability import Durability
from relay.core.endpoints.redis_url import parse
from relay.settings import Settings, load
from relay.settings.keys import key_names
from relay.store.server.probing.acl import AclJob, rights

PURPOSES = {
    AclJob.DAEMON: "a relay",
    AclJob.PRODUCER: "a relay whose applications schedule and take no deliveries",
    AclJob.PIPELINE: "the jobs of relay pipeline",
    AclJob.SEALING: "relay seal status and relay seal rotate",
}
PASSWORD = "a-long-password"
CLUSTER = ("+cluster|slots", "+asking", "+spublish", "+ssubscribe", "+sunsubscribe")


def print_rights(config: Path | None) -> None:
    """Print a line for each kind of work, for the topics and the key prefixes of the settings."""
    with settings_errors():
        settings = load(config)
    for job, purpose in PURPOSES.items():
        typer.echo(f"# {purpose}")
        typer.echo(" ".join(("ACL SETUSER", f"relay-{job}", *rules(settings, job))))


def rules(settings: Settings, job: AclJob) -> list[str]:
    """All rules of a user for one kind of work."""
    policies = settings.policies()
    names = key_names(settings.redis)
    dispatches = {policy.dispatch for policy in (policies.default, *policies.own.values())}
    return [
        *("on", f">{PASSWORD}", "resetchannels"),
        *rights(job, names, dispatches),
        *_besides(settings, policies.durabilities().values()),
    ]


def _besides(settings: Settings, levels: Iterable[Durability]) -> Iterator[str]:
    """What the way to Redis and the durability of topics need besides."""
    location = parse(settings.redis.location)
    if location.cluster:
        yield from CLUSTER
    if location.db:
        yield "+select"
    if any(level.replicas and not level.fsync for level in levels):
        yield "+wait"
    if any(level.fsync for level in levels):
        yield "+waitaof"
