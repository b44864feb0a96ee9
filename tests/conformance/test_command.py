"""`relay conformance`: verdicts for people and for programs, and its page."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest

from relay.conformance.scenes import SCENES
from tests.docs import pages
from tests.docs.pages import ROOT

pytestmark = pytest.mark.checkout

RAW = f"{shlex.quote(sys.executable)} -m tests.conformance.raw_client"
PYTHON = f"{shlex.quote(sys.executable)} -m examples.conformance"


def conformance(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "relay.cli", "conformance", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.slow
def test_the_python_client_passes() -> None:
    """All of it, by the command that its page shows."""
    done = conformance("--client", PYTHON, "--patience", "60", "--json")
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["found"] for each in verdicts if each["verdict"] != "passed"] == []
    assert (done.returncode, [each["scene"] for each in verdicts]) == (0, [each.name for each in SCENES])


@pytest.mark.slow
def test_a_broken_rule_is_told_with_its_section() -> None:
    done = conformance(
        "--client", f"{RAW} no-reason", "--scene", "ack", "--scene", "reject", "--patience", "60"
    )
    assert done.returncode == 1
    told = re.sub(r" +[\d.]+ s\n", "\n", done.stdout).splitlines()
    assert told == [
        "passed    ack",
        "failed    reject",
        "          the rule: A REJECT carries its reason.",
        "          found: reason: '' came, and 'größer' was asked for",
        "          see docs/reference/protocol.md#outcomes",
        "2 scenes: 1 passed, 1 failed, 0 left out",
    ]


def test_json_has_a_document_for_each_scene() -> None:
    done = conformance("--client", f"{RAW} honest", "--scene", "columns", "--json")
    (verdict,) = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 0
    assert verdict.pop("seconds") > 0
    assert verdict == {
        "scene": "columns",
        "verdict": "left out",
        "rule": "A client that asks for columns settles each delivery of them.",
        "section": "docs/reference/protocol.md#deliveries-by-columns",
        "found": "",
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--client", "x", "--scene", "opera"),
            "--scene: there is no scene 'opera'; they are opening, receipts, ",
        ),
        (("--client", " "), "--client: is empty; give the command that starts the client"),
        (("--client", "'x"), "--client: No closing quotation"),
    ],
)
def test_wrong_options_are_named(options: tuple[str, ...], said: str) -> None:
    done = conformance(*options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"relay: {said}")


@pytest.mark.slow
def test_a_command_that_is_not_there_is_said() -> None:
    done = conformance("--client", "/nowhere/client", "--scene", "ack")
    assert done.returncode == 1
    assert "found: the command can't be started: [Errno 2]" in done.stdout


def test_its_page_has_all_scenes() -> None:
    page = pages.text("docs/reference/conformance.md")
    rows = re.findall(r"^\| \[([\w-]+)\]\(protocol\.md#([\w-]+)\) \| (.*) \|$", page, re.MULTILINE)
    assert rows == [(each.name, each.section, each.rule) for each in SCENES]


@pytest.mark.slow
def test_its_page_shows_what_it_prints() -> None:
    (block,) = pages.run_by(__file__)
    typed, *shown = block.text.splitlines()
    words = shlex.split(typed.removeprefix("$ relay conformance "))
    words[words.index("--client") + 1] = PYTHON
    done = conformance(*words, "--patience", "60")
    no_times = [re.sub(r"[\d.]+ s$", "", line) for line in shown]
    assert [re.sub(r"[\d.]+ s$", "", line) for line in done.stdout.splitlines()] == no_times
