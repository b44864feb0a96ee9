"""Exit codes, and the one way in which commands fail."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

import typer

OK = 0
FAILURE = 1
BAD_INPUT = 2
NOT_FOUND = 3
UNAVAILABLE = 4
HELD_BACK = 5
UNMET = 6

TOO_LARGE = re.compile(r"message larger than max \((\d+) vs\. (\d+)\)")
"""How gRPC refuses a message, with its size and the limit."""

EPILOG = (
    "Exit codes: 0 done; 1 it failed; 2 wrong usage or input, and the message names the field; "
    "3 there is no such timer, recurrence, dead letter, topic or journal; "
    "4 the relay or its Redis can't be reached: try again; "
    "5 more rows were refused than --max-rejects allows, or there are fewer than --min-rows, and nothing was "
    "written; 6 a figure is not as --expect says, and what was done stands."
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
    """Within the block an error of the client ends the command, with one sentence and a code."""
    from relay.client import errors

    try:
        yield
    except errors.InvalidArgument as error:
        fail(error.message, BAD_INPUT)
    except errors.ResourceExhausted as error:
        size = TOO_LARGE.search(error.message)
        if size is None:
            fail(error.message, FAILURE)
        limit = f"the relay takes messages of at most {size[2]} bytes (grpc.max_message_bytes)"
        fail(f"payload: {limit}, and with this one the message has {size[1]}", BAD_INPUT)
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
