"""An operator that runs a job of `relay pipeline`. Copy this file into your DAGs' folder."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

SUMMARY = "summary"
"""The XCom that has the job's figures, also if the task failed."""

NEVER_AGAIN = (2, 5, 6)
"""Wrong input, too many rejects, a figure that is not as expected: the same command ends the same way."""


class RelayPipelineOperator(BaseOperator):
    """Run a job of `relay pipeline` to its end, and return its summary, which becomes the task's XCom.

    `job` is the job with its arguments, such as `["schedule", "orders.csv", "--topic", "orders"]`. `expect`
    has thresholds such as `rejected<=10`. `relay` is the command's path: Relay and Spark may have a virtual
    environment of their own. `env` is added to the task's environment. It is not a template, since Airflow
    shows rendered templates to all who may see the task.

    Raises `AirflowFailException`, which is not retried, for `NEVER_AGAIN` and for the verdict of an audit.
    All else raises `AirflowException`, which is retried: a load that runs again inserts nothing twice.
    """

    template_fields: Sequence[str] = ("job", "expect")

    def __init__(
        self,
        *,
        job: Sequence[str],
        expect: Sequence[str] = (),
        relay: str = "relay",
        env: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.expect = expect
        self.relay = relay
        self.env = env
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        code, summary, said = self.run_job()
        if summary:
            context["ti"].xcom_push(key=SUMMARY, value=summary)
        if code == 0:
            return summary
        failed = f"relay pipeline {self.job[0]} exited with {code}: {said}"
        if code in NEVER_AGAIN or "verdict" in summary:
            raise AirflowFailException(failed)
        raise AirflowException(failed)

    def on_kill(self) -> None:
        """End the job with the task."""
        if self._process is not None:
            self._process.terminate()

    def run_job(self) -> tuple[int, dict[str, Any], str]:
        """Return the exit code, the summary (empty if the job had none), and what went wrong."""
        expected = [word for each in self.expect for word in ("--expect", each)]
        command = [self.relay, "pipeline", *expected, *self.job, "--json"]
        env = {**os.environ, **(self.env or {})}
        summary, said = "{}", ""
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
        ) as self._process:
            try:
                for line in self._process.stdout or ():
                    self.log.info("%s", line.rstrip())
                    if line.startswith("{"):
                        summary = line
                    elif line.startswith("relay: "):
                        said = line.removeprefix("relay: ").rstrip()
            except BaseException:  # such as `execution_timeout`: Popen would wait for the job's own end
                self._process.terminate()
                raise
        document = json.loads(summary)
        problems = [f"verdict: {document['verdict']}"] if "verdict" in document else []
        problems += document.get("problems", [])
        return self._process.returncode, document, "; ".join(problems) or said
