"""`manage.py handle_timers`."""

from __future__ import annotations

import asyncio
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from relay.client import RelayClient
from relay.frameworks.django.apps import handlers
from relay.frameworks.django.connections import keep_fresh


class Command(BaseCommand):
    """Runs handlers in a process of its own."""

    help = "Run the handlers of timers of the client that RELAY_CLIENT names, until SIGTERM or SIGINT."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the one option."""
        parser.add_argument(
            "--listen", help="Where PushHandlers listen: host:port, or unix:/path. Others take no address."
        )

    def handle(self, *_: Any, listen: str | None = None, **__: Any) -> None:
        """Run until a signal. Raises `CommandError` for what does not go together."""
        client = handlers()
        if not client.registrations:
            raise CommandError("no handler is registered: put handlers into the module `timers` of an app")
        keep_fresh(client)
        if isinstance(client, RelayClient):
            if listen:
                raise CommandError("--listen is for PushHandlers; RELAY_CLIENT is a RelayClient, which dials")
            asyncio.run(client.run())
        elif listen:
            asyncio.run(client.run(listen))
        else:
            raise CommandError("PushHandlers need an address: --listen 127.0.0.1:7460")
