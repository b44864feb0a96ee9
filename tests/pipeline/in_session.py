"""A page's terminal whose jobs run in the suite's Spark session."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relay.cli.commands import app
from tests.docs.console import Terminal

PATHS = ("schedule", "--rejects", "--lake", "--out")
"""Options whose value is a path."""


class InSession(Terminal):
    """A terminal whose `relay pipeline` runs in this process, where its jobs find the session that is there;
    a job with a `--master` of its own is a process. What is exported stays so.

    Relative paths are made absolute: Java's directory is another. `--every` is left out, since it goes on
    until Ctrl-C; test_journal_command.py has it.
    """

    patience = 600.0

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        instead: Mapping[str, str],
        patch: pytest.MonkeyPatch,
    ) -> None:
        super().__init__(directory, settings, instead)
        self._patch = patch

    def _type(self, command: str, output: str) -> str:
        words = shlex.split(self.real(command.replace("--every 30s", "")), comments=True)
        if words[0] == "export":
            for each in words[1:]:
                name, value = each.replace("$PWD", str(self.directory)).split("=", 1)
                self._patch.setenv(name, value)
                self.environ[name] = value
            return ""
        if words[:2] != ["relay", "pipeline"] or "--master" in words:
            return super()._type(command, output)
        for place, (before, word) in enumerate(pairwise(words), 1):
            if (before in PATHS and "/" not in word) or (self.directory / word).exists():
                words[place] = str(self.directory / word)
        ran = CliRunner().invoke(app, words[1:], prog_name="relay")
        assert ran.exit_code == 0, f"$ {command}\n{ran.output}"
        return self.told(ran.output)
