"""The process from which Spark forks its Python workers, with everything imported that they use.

Spark starts a daemon and forks each worker from it. With Spark's own daemon, `pyspark.daemon`, every worker
would import pyarrow, pandas and redis for itself: 1 s of processor time before its first row. A fork of this
process has them. `spark.python.daemon.module` names it.

Spark's daemon imports nothing, so that it has no threads when it forks. This one has the threads of numpy's
and Arrow's libraries, which handle forks by themselves; none of them runs anything until it is used.

Workers have a higher niceness. On a shared machine Redis would otherwise wait for a core a sixth of the time
while they pack its next batch, and so would a relay that claims beside them.
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
"""The niceness that is added: workers get a tenth of a core that Redis wants as well, and all of an idle
one."""

if __name__ == "__main__":
    os.nice(NICENESS)  # see 0068
    daemon.manager()
