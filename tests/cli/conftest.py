"""Commands run in this process, against a double of the relay, with a clean environment."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from relay.cli.commands import app
from relay.cli.daemon import doctor_findings
from tests.cli.doctored import Seen
from tests.cli.double import Double, running_double
from tests.servers import RunningServer

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RELAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERMINAL_WIDTH", "120")
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 120)  # it has read the variable, or not yet


@pytest.fixture
def double() -> Iterator[Double]:
    with running_double() as double:
        yield double


@pytest.fixture
def run(double: Double, monkeypatch: pytest.MonkeyPatch, one_try: None) -> Run:
    """Run a command against the double, which does again what it is asked again."""
    monkeypatch.setenv("RELAY_TARGET", double.target)

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        return CliRunner().invoke(app, list(arguments), input=stdin, prog_name="relay")

    return run


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor makes no note of a slow round trip: the machine may be busy."""
    monkeypatch.setattr(doctor_findings, "SLOW", 60.0)


@pytest.fixture
def doctor(tmp_path: Path, patient: None) -> Any:
    """Run it on a URL or a server, with more settings if need be."""

    def doctor(where: RunningServer | str, **settings: Any) -> Seen:
        url = where if isinstance(where, str) else where.url
        redis = {"url": url, "start_timeout": 60.0, **settings.pop("redis", {})}
        file = tmp_path / "relay.yaml"
        file.write_text(json.dumps({"redis": redis, **settings}))
        return Seen(CliRunner().invoke(app, ["doctor", "-c", str(file), "--json"]))

    return doctor
