"""Recurrences through every way in, against a real relay on a real Valkey."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worlds.relay.processes import Ran, Relay, command
from tests.worlds.relay.stage import one_relay


@pytest.fixture(scope="module")
def daemon() -> Iterator[Relay]:
    with one_relay() as relay:
        yield relay


def ask(relay: Relay, *arguments: str) -> Ran:
    return command("recur", *arguments, "--target", relay.target)


def test_from_the_command_line(daemon: Relay) -> None:
    """Put, get, list; to put the same again changes nothing."""
    nightly = ("reports", "nightly")
    rule = ("--cron", "0 3 * * *", "--zone", "Europe/Berlin")
    done = ask(daemon, "put", *nightly, *rule, "--payload", "hi", "--json")
    assert done.code == 0, done.err
    (made,) = done.documents
    assert (made["version"], made["result"], made["rule"]) == (
        1,
        "created",
        {"cron": "0 3 * * *", "zone": "Europe/Berlin"},
    )
    again = ask(daemon, "put", *nightly, *rule, "--payload", "hi")
    assert again.out.startswith("left reports/nightly as it is: version 1, next at 20"), again
    (got,) = ask(daemon, "get", *nightly, "--json").documents
    assert got == {name: value for name, value in made.items() if name != "result"}
    (listed,) = ask(daemon, "list", "reports", "--json").documents
    assert listed == {name: value for name, value in got.items() if name != "payload"}
