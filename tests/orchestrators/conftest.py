"""These run in .venv-pipeline, which has `relay pipeline`; what reads its events has a venv of its own."""

from __future__ import annotations

import importlib.util

from tests.worlds.relay.processes import ROOT

ORCHESTRATORS = ROOT / ".venv-orchestrators" / "bin" / "python"

if importlib.util.find_spec("pyspark") is None or not ORCHESTRATORS.exists():
    collect_ignore_glob = ["test_*.py"]  # `make test-orchestrators` runs them
