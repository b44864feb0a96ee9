"""Folders whose tests share what is started once: one worker of a parallel run takes the whole folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest


def one_worker(items: Iterable[pytest.Item], folder: Path) -> None:
    """Mark the tests below a folder for one worker. To be called by a hook with `tryfirst=True`: xdist reads
    the marks in its own, which comes before a conftest's."""
    group = pytest.mark.xdist_group(folder.name)
    for item in items:
        if folder in item.path.parents:
            item.add_marker(group)
