"""Many commands in one application on a cluster, each as the main file runs it: spark-submit takes seconds.

Arguments: a file of steps in JSON, and one for the answers. A step has `argv`, and may have `redis` (a URL).
Its workers run PYSPARK_PYTHON with what `--py-files` brought; or, without that, `python` (an interpreter)
with `path` (a PYTHONPATH). Each step is answered by a line of JSON.
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

from relay.pipeline.jobs import cluster
from relay.pipeline.spark.session import session
from tests.worlds.waiting import PATIENCE

MAIN_FILE = Path(__file__).parents[2] / "deploy" / "spark" / "relay-pipeline.py"


def run(step: dict[str, Any], context: SparkContext, brought: list[str]) -> dict[str, Any]:
    """One step: its exit code, and what it printed."""
    cluster.PATIENCE = PATIENCE  # on a busy machine an executor may be at the step before for long
    if "redis" in step:
        os.environ["RELAY_REDIS__URL"] = step["redis"]
    # Spark takes all of these with each job, from here. A worker that once had what was brought would have it
    # still: one of another environment is another process.
    context.pythonExec = step.get("python", os.environ["PYSPARK_PYTHON"])
    context.environment["PYTHONPATH"] = step.get("path", "")
    context.environment["BROUGHT"] = str("python" not in step)
    context._python_includes = [] if "python" in step else brought
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
    spark = session("tests")
    brought = list(spark.sparkContext._python_includes or ())
    steps = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with Path(sys.argv[2]).open("w", encoding="utf-8") as answers:
        for each in steps:
            print(json.dumps(run(each, spark.sparkContext, brought)), file=answers, flush=True)
    spark.stop()
