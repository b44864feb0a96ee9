"""Where Spark forks its Python workers from: a process that has imported what they use.

Spark starts one daemon of its own and forks each worker from that. Every one would import pyarrow,
pandas and redis for itself, a second of processor time before its first row; a fork of this one has
them. `spark.python.daemon.module` names it, and `pyspark.daemon` in its place is Spark's own.

Spark's imports nothing, so that no thread is there when it forks. Here the threads of numpy's and Arrow's
libraries are, which look after forks by themselves; none of them runs a thing until it is asked to.

Workers are nicer than others. Where they share a machine with Redis, it would wait for a core a sixth of the
time while they pack what it is to get next; so would a relay that claims beside them.
"""

from __future__ import annotations

import os

import pandas  # noqa: F401, ICN001 (pyarrow makes an array of a list by it)
import pyspark.worker  # noqa: F401
from pyspark import daemon

import relay.pipeline.cold.guarded_load
import relay.pipeline.cold.staging
import relay.pipeline.rows.writing
import relay.pipeline.timers_source  # noqa: F401 (for the forks, with those above)

NICENESS = 10
"""How much nicer: a tenth of a core that Redis asks for as well is theirs, and all of one that is idle."""

if __name__ == "__main__":
    os.nice(NICENESS)  # see 0068
    daemon.manager()
