"""The workers of the suite's session: Relay's own, at the niceness of the tests.

Relay's workers leave the cores to whatever else wants them. Beside a busy machine the suite would wait for
them for an hour. And what they send may take longer.
"""

from __future__ import annotations

from pyspark import daemon

import relay.pipeline.workers  # noqa: F401 (for the forks)
from relay.store.server import line
from tests.pipeline.unhurried import WRITE_TTL

if __name__ == "__main__":
    line.WRITE_TTL = WRITE_TTL
    daemon.manager()
