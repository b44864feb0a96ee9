"""Flask: a blocking client for views, and a command that runs handlers within the application's context.

>>> app = Flask(__name__)
>>> timers = SyncRelayClient(timeout=3)
>>> client = RelayClient()    # has the handlers
>>> mount(app, timers, client)

`flask --app shop handle-timers` then runs the handlers, in a process of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from flask import Flask, current_app
from flask.typing import ResponseReturnValue

from relay.client import (
    DeadlineExceeded,
    RelayClient,
    ResourceExhausted,
    SyncRelayClient,
    Unavailable,
    UsageError,
)
from relay.frameworks.around import put_around

EXTENSION = "relay"
"""The name in `app.extensions`."""


def mount(app: Flask, timers: SyncRelayClient, handlers: RelayClient | None = None) -> None:
    """Give an application its client: views get it by `relay_client()`, also where the application comes from
    a factory.

    A call that ends as `Unavailable`, `DeadlineExceeded` or `ResourceExhausted` answers the request with 503,
    unless the view or another error handler takes care of it. With `handlers`, the command
    `flask handle-timers` runs those of that client, each delivery within an application context: extensions
    tear down after each, as after a request.
    """
    app.extensions[EXTENSION] = timers
    for error in (Unavailable, DeadlineExceeded, ResourceExhausted):
        app.register_error_handler(error, _unavailable)
    if handlers is not None:

        @app.cli.command("handle-timers")
        def handle_timers() -> None:
            """Run the handlers of timers until SIGTERM or SIGINT."""
            put_around(handlers, app.app_context, lambda: _on_loop(app))
            asyncio.run(handlers.run())


def relay_client() -> SyncRelayClient:
    """Return the client of the current application. Raises `UsageError` if none is mounted."""
    client = current_app.extensions.get(EXTENSION)
    if not isinstance(client, SyncRelayClient):
        raise UsageError("the application has no client: call relay.frameworks.flask.mount(app, timers)")
    return client


def _unavailable(error: Exception) -> ResponseReturnValue:
    wait = getattr(error, "retry_after", None)
    headers = {} if wait is None else {"Retry-After": str(max(1, round(wait)))}
    return "timers can't be scheduled at the moment", 503, headers


@asynccontextmanager
async def _on_loop(app: Flask) -> AsyncIterator[None]:
    with app.app_context():
        yield
