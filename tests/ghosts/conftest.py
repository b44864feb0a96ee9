"""The scene of the ghosts: started once, and used by every test of the folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ghosts.scene import Scene
from tests.one_worker import one_worker
from tests.worlds.relay.stage import staged


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker of a parallel run takes the whole folder, so that there is one scene."""
    one_worker(items, Path(__file__).parent)


@pytest.fixture(scope="package")
def scene() -> Iterator[Scene]:
    with staged(Scene) as scene:
        yield scene
