"""What the examples run in: files of rows, a Redis, and the command of .venv-pipeline on a small Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.missing import skip
from tests.pipeline.small_jvm import QUICK, SMALL, STORED
from tests.pipeline.unhurried import UNHURRIED
from tests.servers import free_port
from tests.worlds.relay.processes import ROOT, environment

RELAY = Path(sys.executable).with_name("relay")
DUE = "2090-01-01T00:00:00Z"
JAVA = QUICK.replace("-XX:+UseSerialGC ", "")
"""A job chooses its garbage collector."""
DEFAULTS = "".join(f"{name} {value}\n" for name, value in {**SMALL, "spark.master": "local[2]"}.items())

GOOD, BAD, DOWN, ABSENT = "2026-01-02", "2026-01-03", "2026-01-04", "2026-01-05"
"""Days: one row of three is refused; two are; nobody answers as Redis; there is no file."""


def python() -> str:
    """The Python of .venv-orchestrators."""
    path = ROOT / ".venv-orchestrators" / "bin" / "python"
    return str(path) if path.exists() else skip("Airflow", "make .venv-orchestrators/stamp")


def run(program: str, folder: Path, redis: str, days: Sequence[str]) -> dict[str, Any]:
    """Have a program of this folder run the example for some of these days; return what it tells of each."""
    exports = folder / "exports"
    exports.mkdir()
    rows = {"a": DUE, "b": DUE, "c": "soon", "d": "later"}
    for day, ids in {GOOD: "abc", BAD: "acd", DOWN: "a"}.items():
        lines = [f"{timer_id},{rows[timer_id]}" for timer_id in ids]
        (exports / f"{day}.csv").write_text("\n".join(("timer_id,due_time", *lines)) + "\n")
    away = f"redis://127.0.0.1:{free_port()}/0"
    asked = [f"{day}={away if day == DOWN else redis}" for day in days]
    return execute(program, asked, folder, {**variables(folder), "EXPORTS": str(exports)})


def execute(program: str, arguments: Sequence[str], folder: Path, env: Mapping[str, str]) -> dict[str, Any]:
    """Have a program of this folder, in .venv-orchestrators, print what it has to tell, and return that."""
    done = subprocess.run(
        [python(), str(Path(__file__).with_name(program)), *arguments],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line[4:]) for line in done.stdout.splitlines() if line.startswith("RUN ")]
    return {name: told for each in found for name, told in each.items()}


def variables(folder: Path) -> dict[str, str]:
    """Of the process that runs an example. Its jobs start a Spark of their own."""
    (folder / "spark").mkdir()
    (folder / "spark" / "spark-defaults.conf").write_text(DEFAULTS)
    return environment(
        {
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "examples" / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "DAGSTER_HOME": "",
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "PYTHONPATH": str(ROOT / "examples" / "dagster"),
            "RELAY_COMMAND": str(RELAY),
            "RETRY_SECONDS": "0",
            **UNHURRIED,
            "SPARK_CONF_DIR": str(folder / "spark"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **({"JAVA_TOOL_OPTIONS": JAVA} if STORED else {}),
            "PATH": f"{RELAY.parent}{os.pathsep}{os.environ['PATH']}",
        }
    )
