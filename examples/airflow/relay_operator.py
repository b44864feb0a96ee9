"""An operator of Airflow that runs a job of `relay pipeline`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.exceptions import AirflowException, AirflowFailException
from airflow.sdk import BaseOperator

PASSING = (1, 4)
"""The exit codes after which another try may help: a job that failed, and a Redis that can't be reached."""


class RelayPipelineOperator(BaseOperator):
    """Runs `relay pipeline`, and returns its summary, which Airflow puts into XCom.

    `variables` are those of `--vars`, and are Airflow's templates: `{"day": "{{ ds }}"}`. `arguments` are
    passed as they are, so that `{{ day }}` in them is Relay's. A failure that no retry mends (wrong input, a
    threshold) ends the task at once.
    """

    template_fields = ("variables", "expect")

    def __init__(
        self,
        *,
        arguments: Sequence[str],
        variables: Mapping[str, str] | None = None,
        expect: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.arguments = list(arguments)
        self.variables = dict(variables or {})
        self.expect = list(expect)
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        """Run the job. Its errors are in the task's log."""
        named = ["--vars", json.dumps(self.variables)] if self.variables else []
        options = [word for each in self.expect for word in ("--expect", each)]
        command = ["relay", "pipeline", *named, *options, *self.arguments, "--json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        out, _ = self._process.communicate()
        code = self._process.returncode
        if code:
            error = AirflowException if code in PASSING else AirflowFailException
            raise error(f"relay pipeline {self.arguments[0]} ended with {code}")
        summary: dict[str, Any] = json.loads(out)
        return summary

    def on_kill(self) -> None:
        """End the job with its task."""
        if self._process is not None:
            self._process.terminate()
