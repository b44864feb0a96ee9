"""Exit codes, and the one way in which commands fail."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

import typer

OK = 0
FAILURE = 1
BAD_INPUT = 2
NOT_FOUND = 3
UNAVAILABLE = 4
TOO_MANY_REJECTS = 5

EPILOG = (
    "Exit codes: 0 done; 1 it failed; 2 wrong usage or input, and the message names the field; "
    "3 there is no such timer or dead letter; 4 the relay or its Redis can't be reached: try again; "
    "5 more rows were refused than --max-rejects allows, and nothing was written."
)


def fail(message: str, code: int) -> NoReturn:
    """Say why on standard error, and exit."""
    for line in message.splitlines():
        typer.echo(f"relay: {line}", err=True)
    raise typer.Exit(code)


@contextmanager
def settings_errors() -> Generator[None, None, None]:
    """Wrong settings end the command with one line for each problem."""
    from relay.settings import SettingsError

    try:
        yield
    except SettingsError as error:
        fail(str(error), BAD_INPUT)


@contextmanager
def client_errors(target: str) -> Generator[None, None, None]:
    """What the client raises ends the command with a sentence and a code."""
    from relay.client import errors

    try:
        yield
    except errors.InvalidArgument as error:
        fail(error.message, BAD_INPUT)
    except errors.NotFound as error:
        fail(error.message, NOT_FOUND)
    except errors.Unavailable as error:
        fail(f"the relay at {target} is not available: {error.message}", UNAVAILABLE)
    except errors.DeadlineExceeded:
        fail(f"the relay at {target} did not answer in time; the call may have taken effect", UNAVAILABLE)
    except errors.CallError as error:
        fail(error.message, FAILURE)
    except errors.RelayError as error:
        fail(str(error), FAILURE)
