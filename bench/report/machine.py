"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from relay import __version__

PACKAGES = ("grpcio", "protobuf", "redis", "hiredis")


def conditions(server: str, form: str, runs: int) -> dict[str, str]:
    """For the page, in words."""
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    memory = psutil.virtual_memory().total / (1 << 30)
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GiB, {platform.system()}",
        "load before": ", ".join(f"{load:.1f}" for load in os.getloadavg()),
        "server": server,
        "versions": f"relay {__version__}, Python {platform.python_version()}, {packages}",
        "form": f"{form}, {runs} runs",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
