"""What docs/http.md tells people to type works, and answers what the page says."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from tests.docs import pages
from tests.e2e.conftest import Stage
from tests.missing import need

pytestmark = pytest.mark.checkout

PAGE = "docs/http.md"
AT_HOME = "127.0.0.1:7453"
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def steps() -> list[tuple[str, str]]:
    """Each command of the page with the answer that stands below it."""
    found: list[tuple[str, str]] = []
    for block in pages.blocks("console"):
        if block.page == PAGE:
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, _, answer = part.partition("\n")
                found.append((command, answer.strip()))
    return found


def told(value: Any, name: str = "") -> Any:
    """The value without what differs from day to day."""
    if isinstance(value, dict):
        return {key: told(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [told(inner) for inner in value]
    if isinstance(value, str) and (
        INSTANT.fullmatch(value) or name in ("next_page_token", "token", "occurrence_id")
    ):
        return bool(value)
    return value


def test_the_page_tells_the_truth(stage: Stage) -> None:
    need("curl")
    relay = stage.relay()
    assert len(steps()) > 10
    for command, answer in steps():
        ran = subprocess.run(
            ["sh", "-c", command.replace(AT_HOME, relay.api).replace("/tmp", str(stage.directory))],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        wanted, got = told(json.loads(answer)), told(json.loads(ran.stdout))
        made = re.compile("[0-9a-f]{32}")
        if made.fullmatch(str(got.get("timer", {}).get("timer_id", ""))):
            got["timer"]["timer_id"] = wanted["timer"]["timer_id"]
        assert got == wanted, command
    stage.client.flushall()
