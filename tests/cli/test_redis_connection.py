"""Commands that read Redis itself: what they say to somebody who has only named a relay."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from relay.cli.commands import app
from relay.settings import RedisUrl, Settings, load
from tests.servers import start_server

FILE = "FILE"
"""Stands for a file to write."""

COMMANDS = [("journal", "tail", "t"), ("journal", "export", "t", FILE), ("audit", "t"), ("doctor",)]
ADVICE = (
    "; that is only the default, and this command reads Redis itself, not through a relay: name the relay's "
    "Redis by --config or RELAY_REDIS__URL (relay dev prints the line: export RELAY_REDIS__URL=…)"
)


def run(arguments: tuple[str, ...], tmp_path: Path) -> Result:
    words = [str(tmp_path / "t.journal") if word == FILE else word for word in arguments]
    return CliRunner().invoke(app, words)


@pytest.fixture
def _no_default_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default URL leads to a port where surely nobody listens, and still counts as not set."""

    def elsewhere(config: Path | None) -> Settings:
        settings = load(config)
        if "url" in settings.redis.model_fields_set:
            return settings
        redis = settings.redis.model_copy(update={"url": RedisUrl("redis://127.0.0.1:1/0")})
        redis.model_fields_set.discard("url")
        return settings.model_copy(update={"redis": redis})

    monkeypatch.setattr("relay.cli.terminal.redis_connection.load", elsewhere)
    monkeypatch.setattr("relay.cli.daemon.doctor.load", elsewhere)


@pytest.mark.usefixtures("_no_default_server")
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_relay_is_named_and_its_redis_is_not(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 4: the variable that is needed, and who prints its value; RELAY_TARGET is said to be of no use."""
    monkeypatch.setenv("RELAY_TARGET", "127.0.0.1:7451")
    result = run(arguments, tmp_path)
    assert result.exit_code == 4
    assert "redis://127.0.0.1:1/0 can't be used: " in result.output
    assert ADVICE in result.output
    assert "RELAY_TARGET has no effect on this command" in result.output


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_redis_that_was_named_gets_no_such_advice(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAY_TARGET", "127.0.0.1:7451")
    monkeypatch.setenv("RELAY_REDIS__URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("RELAY_LEASE_TTL", "5")
    result = run(arguments, tmp_path)
    assert result.exit_code == 4
    assert "default" not in result.output.replace("defaults", "")
    assert "RELAY_TARGET" not in result.output
    assert "did you mean RELAY_DEFAULTS__LEASE_TTL?" in result.output


@pytest.mark.parametrize("arguments", COMMANDS[:3], ids=" ".join)
def test_a_password_beside_the_url_is_used(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They log in as a relay does."""
    with start_server("valkey", config={"requirepass": "right-secret"}) as server:
        monkeypatch.setenv("RELAY_REDIS__URL", server.url)
        monkeypatch.setenv("RELAY_REDIS__PASSWORD", "right-secret")
        monkeypatch.setenv("RELAY_REDIS__START_TIMEOUT", "60")
        result = run(arguments, tmp_path)
    assert result.exit_code in (2, 3), result.output
    assert "can't be used" not in result.output
