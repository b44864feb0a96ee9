"""The world of the promises: started once, used by every test of the folder, and judged at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises.world import World
from tests.worlds.relay.stage import staged

FOLDER = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in its own, which comes before a conftest's
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker of a parallel run takes the whole folder, so that there is one world."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("promises"))


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    with staged(World) as world:
        yield world
