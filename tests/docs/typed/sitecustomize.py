"""Python imports this by itself wherever PYTHONPATH names its folder: in each program that a page tells its
reader to type. What the program prints does not depend then on how busy the machine is."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

PATIENT: Mapping[str, Mapping[str, float]] = {
    # Each call is made once. A busy relay may act by a first try and answer the second one otherwise.
    "relay.client.calls.timer_calls": {"TRY_TIMEOUT": 120.0},
    # The doctor makes no note of a slow round trip.
    "relay.cli.daemon.doctor_findings": {"SLOW": 60.0},
}
"""What is set in which modules, in seconds."""


class Patient(MetaPathFinder):
    """Changes these modules as they are imported: a program that needs none of them does not pay for them."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in PATIENT:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                vars(module).update(PATIENT[name])

            loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Patient())
