"""One event loop for all tests of a package, for those that run grpc.aio in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest


@pytest.fixture(scope="package", autouse=True)
async def one_loop() -> AsyncIterator[None]:
    """Keep one event loop for all tests here.

    grpc.aio has one completion queue for the process: an event that arrives late, after its loop
    was closed, would fail whichever test runs by then ("Event loop is closed").
    """
    yield  # noqa: PT022 (the loop lives as long as this does)
