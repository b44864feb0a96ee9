"""The policy and the commands of docs/how-to/policy.md."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relay.cli.commands import app
from relay.trust.policy_file import read_policy
from tests.docs import pages

BROKEN = """rules:
  - principals: ["spiffe://example.org*"]
    topics: [orders]
    verbs: [read]
  - principals: ["token:ops"]
    topics: [orders]
    verbs: [Read]
"""

pytestmark = pytest.mark.checkout


def test_the_commands_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    policy, *consoles = pages.run_by(__file__)
    Path("policy.yaml").write_text(policy.text)
    Path("broken.yaml").write_text(BROKEN)
    assert read_policy(Path("policy.yaml")).rules
    for block in consoles:
        for step in block.text.split("$ ")[1:]:
            typed, _, shown = step.partition("\n")
            result = CliRunner().invoke(app, shlex.split(typed)[1:], prog_name="relay")
            assert result.output == shown, typed
            denied, wrong = shown.startswith("denied"), "broken" in typed
            assert result.exit_code == (2 if wrong else 1 if denied else 0), typed
