"""Many commands in one session on a cluster, each as the main file runs it: a session takes seconds to start.

Arguments: the master, and a file of steps in JSON. A step has `argv`, and may have `redis` (a URL) and, for
the workers, `python` (an interpreter) and `path` (a PYTHONPATH). Each step is answered by a line of JSON.
"""

from __future__ import annotations

import io
import json
import os
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from relay.pipeline.spark.session import session
from tests.pipeline.standalone import CONF, DRIVER

MAIN_FILE = Path(__file__).parents[2] / "deploy" / "spark" / "relay-pipeline.py"


def run(step: dict[str, Any], context: SparkContext) -> dict[str, Any]:
    """One step: its exit code, and what it printed."""
    if "redis" in step:
        os.environ["RELAY_REDIS__URL"] = step["redis"]
    # Spark takes both with each job, from here.
    context.pythonExec = step.get("python", sys.executable)
    context.environment["PYTHONPATH"] = step.get("path", "")
    sys.argv = [str(MAIN_FILE), *step["argv"]]
    code: object = 0
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(out), redirect_stderr(io.StringIO()) as err:
        try:
            runpy.run_path(str(MAIN_FILE), run_name="__main__")
        except SystemExit as ended:
            code = ended.code
    out.seek(0)
    return {"code": code, "out": out.read(), "err": err.getvalue()}


if __name__ == "__main__":
    spark = session("tests", master=sys.argv[1], conf={**CONF, **DRIVER})
    steps = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    for each in steps:
        print(json.dumps(run(each, spark.sparkContext)), flush=True)
    spark.stop()
