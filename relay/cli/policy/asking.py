"""`relay policy`: checks a policy, and asks it."""

from __future__ import annotations

from pathlib import Path

import typer

from relay.cli.terminal import output
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, OK, fail, settings_errors
from relay.core import validate
from relay.core.errors import InvalidField
from relay.core.trust.access import EVERY_TOPIC, AccessDecision, AccessPolicy
from relay.core.trust.globs import KINDS
from relay.core.trust.principals import ANONYMOUS
from relay.core.trust.verbs import AccessVerb
from relay.settings import load
from relay.trust.files import BadFile
from relay.trust.policy_file import read_policy

ALL = AccessDecision("no policy, which allows everything")


def check(file: Path) -> None:
    """Say that a policy is right, or what is wrong with it."""
    policy = _read(file)
    counts = [_counted(len(policy.rules), "rule")]
    if policy.bounds:
        counts.append(_counted(len(policy.bounds), "bound"))
    typer.echo(f"{output.safe(str(file))}: {', '.join(counts)}")


def _counted(count: int, what: str) -> str:
    return f"{count} {what if count == 1 else what + 's'}"


def ask(principal: str, verb: str, topic: str, file: Path | None, config: Path | None, as_json: bool) -> None:
    """Say whether something is allowed, and by which rule."""
    if principal != ANONYMOUS.name and not principal.startswith(KINDS):
        fail(
            f"--as: {principal!r} is not a principal; begin it with {', '.join(KINDS)}, or give anonymous",
            BAD_INPUT,
        )
    if verb not in set(AccessVerb):
        fail(f"--verb: {verb!r} is not a verb; give one of {', '.join(AccessVerb)}", BAD_INPUT)
    try:
        asked = topic if topic == EVERY_TOPIC else validate.topic("--topic", topic)
    except InvalidField as wrong:
        fail(str(wrong), BAD_INPUT)
    policy = _policy(file, config)
    decision = ALL if policy is None else policy.decide(principal, AccessVerb(verb), asked)
    if as_json:
        output.document({"allowed": decision.allowed, "rule": decision.rule})
    elif decision.allowed:
        typer.echo(f"allowed by {output.safe(decision.rule)}")
    else:
        typer.echo("denied: no rule allows it")
    raise typer.Exit(OK if decision.allowed else FAILURE)


def _policy(file: Path | None, config: Path | None) -> AccessPolicy | None:
    if file is None:
        with settings_errors():
            named = load(config).policy_file
        if not named:
            return None
        file = Path(named)
    return _read(file)


def _read(file: Path) -> AccessPolicy:
    try:
        return read_policy(file)
    except BadFile as wrong:
        fail(str(wrong), BAD_INPUT)
