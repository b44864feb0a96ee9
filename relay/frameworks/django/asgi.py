"""Handlers in the process that serves Django by ASGI.

>>> application = with_handlers(get_asgi_application())    # in asgi.py
"""

from __future__ import annotations

from relay.client import RelayClient, UsageError
from relay.frameworks.asgi import Application, served
from relay.frameworks.django.apps import handlers
from relay.frameworks.django.connections import keep_fresh


def with_handlers(application: Application) -> Application:
    """Return Django's application with the life of the client that `RELAY_CLIENT` names.

    Call it once in a process. Raises `ImproperlyConfigured`, and `UsageError` for `PushHandlers`, which
    listen by themselves: run those with `manage.py handle_timers`.
    """
    client = handlers()
    if not isinstance(client, RelayClient):
        raise UsageError("PushHandlers listen by themselves: run them with manage.py handle_timers --listen")
    keep_fresh(client)
    return served(application, client)
