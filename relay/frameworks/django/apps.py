"""The Django application, and the client that its settings name."""

from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules, import_string

from relay.client import PushHandlers, RelayClient


class RelayConfig(AppConfig):
    """Brings the command `handle_timers`."""

    name = "relay.frameworks.django"
    label = "relay"
    verbose_name = "Relay"


def handlers() -> RelayClient | PushHandlers:
    """Return what `RELAY_CLIENT` names, with the handlers in the modules `timers` of installed applications.

    Raises `ImproperlyConfigured`.
    """
    path = getattr(settings, "RELAY_CLIENT", None)
    if not isinstance(path, str):
        raise ImproperlyConfigured(
            'RELAY_CLIENT must be the path of the client with your handlers, such as "shop.timers.client"'
        )
    autodiscover_modules("timers")
    try:
        client = import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(f"RELAY_CLIENT: {error}") from error
    if not isinstance(client, RelayClient | PushHandlers):
        raise ImproperlyConfigured(
            f"RELAY_CLIENT: {path} is a {type(client).__name__}; it must be a RelayClient or PushHandlers"
        )
    return client
