"""`relay app check`."""

from __future__ import annotations

from typing import Any

import typer

from relay.cli.app.blocking_calls import blocking_calls
from relay.cli.terminal import output
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, fail
from relay.client import AckPolicy
from relay.client.handling.handlers import Registration
from relay.worker.loading import NoApplication, load


def check(application: str, as_json: bool) -> None:
    """Show all handlers and recurrences, and exit with 1 if there are warnings."""
    try:
        client = load(application)
    except NoApplication as error:
        fail(str(error), BAD_INPUT)
    handlers = [_described(each) for _, each in sorted(client.registrations.items())]
    recurrences = [
        {"topic": topic, "recurrence_id": name} for topic, name in sorted(getattr(client, "declarations", {}))
    ]
    if as_json:
        output.document({"handlers": handlers, "recurrences": recurrences})
    else:
        typer.echo("\n\n".join(_shown(each) for each in handlers))
        for each in recurrences:
            typer.echo(f"\nrecurrence {output.name(each['topic'], each['recurrence_id'])}")
    warnings = [(each["handler"], said) for each in handlers for said in each["warnings"]]
    for handler, said in warnings:
        typer.echo(f"relay: {handler}: {said}", err=True)
    if warnings:
        raise typer.Exit(FAILURE)


def _described(registration: Registration) -> dict[str, Any]:
    handler = registration.handler
    backoff = registration.backoff
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    warnings = []
    if registration.is_async:
        warnings = [
            f"line {line}: {call} blocks the event loop, and with it all handlers of the process; make the "
            "handler plain, or call it by asyncio.to_thread"
            for line, call in blocking_calls(handler)
        ]
    return {
        "topic": registration.topic,
        "handler": f"{getattr(handler, '__module__', '')}.{name}",
        "runs": "on the event loop" if registration.is_async else "in a thread",
        "payload": _payload(registration),
        "concurrency": registration.places,
        "ack_policy": registration.ack_policy.value,
        "max_attempts": registration.max_attempts,
        "backoff": None
        if backoff is None
        else {"initial": backoff.initial, "multiplier": backoff.multiplier, "max": backoff.max},
        "timeout": registration.seconds,
        "reject": [each.__name__ for each in registration.rejecting],
        "warnings": warnings,
    }


def _payload(registration: Registration) -> dict[str, Any] | None:
    schema = registration.payload
    if schema is None:
        return None
    try:
        found = schema.json_schema()
    except Exception:  # noqa: BLE001 (a type may have no schema, for any reason)
        found = {}
    return {"type": schema.name, "version": schema.version, "schema": found}


def _shown(handler: dict[str, Any]) -> str:
    payload = handler["payload"]
    rows = [("topic", handler["topic"]), ("handler", f"{handler['handler']}, {handler['runs']}")]
    if payload is None:
        rows.append(("payload", "bytes, as the delivery has them"))
    else:
        fields = ", ".join(payload["schema"].get("properties", ()))
        rows.append(("payload", f"{payload['type']}, version {payload['version']}"))
        rows += [("fields", fields)] if fields else []
    rows.append(("concurrency", str(handler["concurrency"])))
    if handler["ack_policy"] != AckPolicy.NACK_ON_ERROR.value:
        rows.append(("ack_policy", handler["ack_policy"]))
    if handler["max_attempts"] is not None:
        rows.append(("max_attempts", str(handler["max_attempts"])))
    if (backoff := handler["backoff"]) is not None:
        rows.append(
            ("backoff", f"{backoff['initial']:g} s × {backoff['multiplier']:g}, at most {backoff['max']:g} s")
        )
    if handler["timeout"] is not None:
        rows.append(("timeout", f"{handler['timeout']:g} s"))
    if handler["reject"]:
        rows.append(("reject", ", ".join(handler["reject"])))
    return output.block(rows)
