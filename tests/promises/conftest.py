"""The world of the promises: started once, used by every test of the folder, and judged at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.one_worker import one_worker
from tests.promises.world import World
from tests.worlds.relay.stage import staged


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker of a parallel run takes the whole folder, so that there is one world."""
    one_worker(items, Path(__file__).parent)


@pytest.fixture(scope="package")
def world() -> Iterator[World]:
    with staged(World) as world:
        yield world
