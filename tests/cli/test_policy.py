"""`relay policy`: what it says beside the examples of docs/how-to/policy.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

QUESTION = ("policy", "test", "--as", "token:ops", "--verb", "read", "--topic", "orders")
RULES = "rules: [{name: ops, principals: ['token:ops'], topics: ['orders'], verbs: [read]}]"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(RULES)
    return file


def test_the_policy_of_the_settings_is_asked(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By --config, or by a variable; without one everything is allowed, and that is said."""
    assert run(*QUESTION).stdout == "allowed by no policy, which allows everything\n"
    config = file.with_name("relay.yaml")
    config.write_text(f"policy_file: {file}")
    assert run(*QUESTION, "--config", str(config)).stdout == "allowed by ops\n"
    monkeypatch.setenv("RELAY_POLICY_FILE", str(file))
    assert json.loads(run(*QUESTION, "--json").stdout) == {"allowed": True, "rule": "ops"}
    denied = run(*QUESTION[:-1], "bills", "--json")
    assert (json.loads(denied.stdout), denied.exit_code) == ({"allowed": False, "rule": ""}, 1)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--as", "ops", "--as: 'ops' is not a principal; begin it with spiffe://"),
        ("--verb", "READ", "--verb: 'READ' is not a verb; give one of schedule, read"),
        ("--topic", "a#1", "--topic: contains a #"),
        ("--topic", "", "--topic: "),
        ("--file", "nowhere.yaml", "policy_file: nowhere.yaml can't be read: No such file"),
    ],
)
def test_a_wrong_question_names_the_option(run: Run, option: str, value: str, said: str) -> None:
    result = run(*QUESTION, option, value)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"relay: {said}")
