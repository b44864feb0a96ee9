"""These run in .venv-pipeline, which has `relay pipeline`; what starts its jobs has a venv of its own."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]  # `make test-pipeline` runs them
