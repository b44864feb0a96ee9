"""Finds an application's client by its name, `module:client`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from relay.client import PushHandlers, RelayClient


class NoApplication(Exception):
    """There is no client under this name; the message says what to do."""


def load(name: str) -> RelayClient | PushHandlers:
    """Import the module, from the working directory before all else, and return its client.

    A name without a client's, such as `shop.timers`, means `client` in it. Raises `NoApplication`; what the
    module itself raises goes through.
    """
    module_name, _, path = name.partition(":")
    if not module_name or module_name.endswith(".py") or "/" in module_name:
        raise NoApplication(f"{name!r} names no module: give it as module:client, such as shop.timers:client")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # something that the module imports
        raise NoApplication(
            f"there is no module {module_name!r} in {here} or among what is installed"
        ) from None
    for part in (path or "client").split("."):
        if not hasattr(found, part):
            raise NoApplication(f"module {module_name!r} has no {path or 'client'!r}; name its RelayClient")
        found = getattr(found, part)
    if not isinstance(found, RelayClient | PushHandlers):
        raise NoApplication(f"{name!r} is a {type(found).__name__}; name a RelayClient")
    return found
