"""What a machine may lack: the one way to skip a test. The run ends with the commands that bring it.

CI sets RELAY_REQUIRE_ALL=1, which turns every skip into a failure (tests/conftest.py).
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

import pytest

DEBIAN = {
    "cc": "gcc libc6-dev",
    "chromium": "chromium",
    "curl": "curl",
    "faketime": "faketime",
    "go": "golang-go",
    "java": "default-jdk-headless maven",
    "node": "nodejs npm",
    "openssl": "openssl",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "redis-cli": "redis-tools",
    "redis-server": "redis-server",
}
"""The Debian packages that bring a program."""


def need(program: str) -> str:
    """The program's path. Skips the test where it is not on PATH."""
    path = shutil.which(program)
    if path is None:
        skip(program, f"apt-get install {DEBIAN[program]}")
    return path


def skip(what: str, command: str | None = None) -> NoReturn:
    """Skip the test for want of something. `command` brings it, or a phrase with the command in backticks
    says when it does; None: no command can."""
    if command is None:
        pytest.skip(f"no {what} here")
    pytest.skip(f"no {what} here: {command if '`' in command else f'`{command}`'} brings it")


def advice(reasons: Iterable[str]) -> str:
    """One line: how many tests were skipped, and which commands would let them run."""
    commands = Counter(
        found[1] if (found := re.search("`(.+)`.* brings it", reason)) else "" for reason in reasons
    )
    others = commands.pop("", 0)
    parts = [f"`{command}` brings what {count} need" for command, count in commands.most_common()]
    parts += [f"{others} give another reason above"] if others else []
    return f"{commands.total() + others} skipped: {'; '.join(parts)}."
