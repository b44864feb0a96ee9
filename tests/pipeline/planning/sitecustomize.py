"""How the Python processes of the suite's session begin: Python imports this module first, by its name.

Spark plans a query over a data source in forks of `pyspark.daemon`, whatever `spark.python.daemon.module` is,
and each fork would import Spark's and Relay's modules for itself. Here the daemon imports them before it
forks. They come from site-packages, where they are compiled, and not from Spark's `pyspark.zip`.
"""

from __future__ import annotations

import importlib
import sys

SOURCES = ["relay.pipeline.journal_source", "relay.pipeline.rows.writing", "relay.pipeline.timers_source"]

sys.path[:] = [place for place in sys.path if not place.endswith("pyspark.zip")]

if "pyspark.daemon" in sys.orig_argv:  # sys.argv is made later
    planner = sys.orig_argv[-1]  # such as pyspark.sql.worker.create_data_source
    for module in [planner] if planner.endswith("lookup_data_sources") else [planner, *SOURCES]:
        importlib.import_module(module)
