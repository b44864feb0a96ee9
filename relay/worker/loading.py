"""Finds an application's client by its name, `module:client`."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from relay.client import PushHandlers, RelayClient


class NoApplication(Exception):
    """There is no client under this name; the message says what to do."""


def load(name: str) -> RelayClient | PushHandlers:
    """Import the module, from the working directory before all else, and return its client.

    A name without a client's, such as `shop.timers`, means `client` in it. What the module raises is printed
    to standard error. Raises `NoApplication`, also for a client without handlers.
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
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise NoApplication(
                f"there is no module {module_name!r} in {here} or among what is installed"
            ) from None
        raise _broken(name) from None  # something that the module imports
    except Exception:  # noqa: BLE001 (the application's module may raise anything)
        raise _broken(name) from None
    for part in (path or "client").split("."):
        if not hasattr(found, part):
            raise NoApplication(f"module {module_name!r} has no {path or 'client'!r}; name its RelayClient")
        found = getattr(found, part)
    if not isinstance(found, RelayClient | PushHandlers):
        raise NoApplication(f"{name!r} is a {type(found).__name__}; name a RelayClient")
    if not found.registrations:
        raise NoApplication(f"{name} has no handler; register one by @client.on")
    return found


def _broken(name: str) -> NoApplication:
    traceback.print_exc()
    return NoApplication(f"{name} can't be imported, see above")
