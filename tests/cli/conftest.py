"""Commands run in this process, against a double of the relay, with a clean environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner, Result

from relay.cli.commands import app
from tests.cli.double import Double, running_double

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RELAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERMINAL_WIDTH", "120")


@pytest.fixture
def double() -> Iterator[Double]:
    with running_double() as double:
        yield double


@pytest.fixture
def run(double: Double, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command against the double."""
    monkeypatch.setenv("RELAY_TARGET", double.target)

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        return CliRunner().invoke(app, list(arguments), input=stdin, prog_name="relay")

    return run
