"""One relay for the folder, which real applications dial."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.one_worker import one_worker
from tests.worlds.relay.processes import Relay
from tests.worlds.relay.stage import one_relay


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker of a parallel run takes the whole folder."""
    one_worker(items, Path(__file__).parent)


@pytest.fixture(scope="package")
def daemon() -> Iterator[Relay]:
    with one_relay() as relay:
        yield relay
