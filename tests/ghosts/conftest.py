"""The scene of the ghosts: started once, and used by every test of the folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ghosts.scene import Scene
from tests.worlds.relay.stage import staged

FOLDER = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in its own, which comes before a conftest's
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker of a parallel run takes the whole folder, so that there is one scene."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("ghosts"))


@pytest.fixture(scope="session")
def scene() -> Iterator[Scene]:
    with staged(Scene) as scene:
        yield scene
