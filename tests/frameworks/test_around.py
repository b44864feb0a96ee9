"""What a framework puts around handlers is around their dependencies, too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import pytest

from relay.client import Delivery, Depends
from relay.client.testing import InMemoryRelay, Outcome
from relay.frameworks.around import put_around

steps: list[str] = []


@contextmanager
def context() -> Iterator[None]:
    steps.append("context")
    yield
    steps.append("context ends")


@asynccontextmanager
async def context_on_loop() -> AsyncIterator[None]:
    with context():
        yield


def get_session() -> Iterator[str]:
    steps.append("session")
    yield "session"
    steps.append("commit")


Session = Annotated[str, Depends(get_session)]


def plain(session: Session, delivery: Delivery) -> None:
    steps.append(f"handler has {session} for {delivery.timer_id}")


async def on_loop(session: Session, delivery: Delivery) -> None:
    plain(session, delivery)


@pytest.mark.parametrize("handler", [plain, on_loop])
async def test_a_session_opens_and_commits_within_the_context(handler: Callable[..., Any]) -> None:
    """As with Flask-SQLAlchemy, whose session ends with the application's context: a commit behind that
    would write nothing."""
    steps.clear()
    async with InMemoryRelay() as relay:
        relay.client.on("t", concurrency=3)(handler)
        put_around(relay.client, context, context_on_loop)
        known = relay.client.registrations["t"]
        assert (known.handler, known.concurrency) == (handler, 3)
        await relay.client.schedule("t", b"", delay=0, timer_id="a")
        (delivered,) = await relay.run_due()
    assert delivered.outcome is Outcome.ACK
    assert steps == ["context", "session", "handler has session for a", "commit", "context ends"]
