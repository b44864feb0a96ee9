"""What handlers are given beside the delivery, and which delivery is the current one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest

from relay.client import Delivery, Depends, InvalidArgument, RelayClient, current_delivery
from relay.client.testing import InMemoryRelay, Outcome, SyncInMemoryRelay

steps: list[str] = []


@pytest.fixture(autouse=True)
def no_steps() -> None:
    steps.clear()


class Session:
    """Notes that it was made; `name` says for which timer."""

    def __init__(self, name: str) -> None:
        self.name = name
        steps.append(f"made for {name}")


async def get_session(delivery: Delivery) -> AsyncIterator[Session]:
    try:
        yield Session(delivery.timer_id)
    except OSError:
        steps.append("rolled back")
        raise
    else:
        steps.append("committed")
    finally:
        steps.append("closed")


Opened = Annotated[Session, Depends(get_session)]


async def get_orders(session: Opened) -> str:
    return f"orders of {session.name}"


def get_plain(delivery: Delivery) -> Iterator[Session]:
    yield Session(delivery.timer_id)
    steps.append("closed")


class Orders:
    """Made by its class; what its objects do when they are called is nobody's business."""

    def __init__(self, session: Opened) -> None:
        self.name = session.name

    async def __call__(self) -> None: ...


async def run_one(relay: InMemoryRelay, payload: bytes = b"{}") -> Any:
    await relay.client.schedule("t", payload, delay=0, timer_id="a")
    (delivered,) = await relay.run_due()
    return delivered


async def test_a_handler_gets_the_value_the_delivery_and_what_it_depends_on() -> None:
    """In the order of its parameters, and one session for all that ask for it."""
    async with InMemoryRelay() as relay:

        @relay.client.on("t")
        async def handler(
            orders: Annotated[str, Depends(get_orders)],
            value: dict[str, int],
            session: Opened,
            delivery: Delivery,
        ) -> None:
            steps.append(f"{orders}, {value}, {session.name}, {delivery.timer_id}")

        assert (await run_one(relay, b'{"n": 1}')).outcome is Outcome.ACK
    assert steps == ["made for a", "orders of a, {'n': 1}, a, a", "committed", "closed"]


async def test_a_class_makes_what_it_is() -> None:
    async with InMemoryRelay() as relay:

        @relay.client.on("t")
        async def handler(orders: Annotated[Orders, Depends(Orders)]) -> None:
            steps.append(orders.name)

        assert (await run_one(relay)).outcome is Outcome.ACK
    assert steps == ["made for a", "a", "committed", "closed"]


async def test_a_handler_that_fails_tells_its_dependencies() -> None:
    async with InMemoryRelay() as relay:

        @relay.client.on("t")
        async def handler(_: Opened) -> None:
            raise OSError

        assert (await run_one(relay)).outcome is Outcome.NACK
    assert steps == ["made for a", "rolled back", "closed"]


def swallows() -> Iterator[None]:
    try:
        yield
    except OSError:
        steps.append("swallowed")


def fails_at_its_end() -> Iterator[None]:
    yield
    raise OSError


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_dependency_can_t_make_a_failure_a_success(is_async: bool) -> None:
    def plain(_: Annotated[None, Depends(swallows)]) -> None:
        raise OSError

    async def handler(_: Annotated[None, Depends(swallows)]) -> None:
        raise OSError

    async with InMemoryRelay() as relay:
        relay.client.on("t")(handler if is_async else plain)
        delivered = await run_one(relay)
    assert (delivered.outcome, delivered.reason, steps) == (Outcome.NACK, "OSError", ["swallowed"])


async def opens_never(_: Annotated[None, Depends(swallows)]) -> AsyncIterator[None]:
    raise OSError
    yield


async def commits_never(_: Annotated[None, Depends(swallows)]) -> AsyncIterator[None]:
    yield
    raise OSError


def opens_never_here(_: Annotated[None, Depends(swallows)]) -> Iterator[None]:
    raise OSError
    yield


def commits_never_here(_: Annotated[None, Depends(swallows)]) -> Iterator[None]:
    yield
    raise OSError


@pytest.mark.parametrize("function", [opens_never, commits_never, opens_never_here, commits_never_here])
async def test_nor_the_failure_of_another_dependency(function: Callable[..., Any]) -> None:
    """The one around it sees the failure, and swallows it."""

    def plain(_: Any) -> None: ...

    async def handler(_: Any) -> None: ...

    chosen = plain if function.__name__.endswith("here") else handler
    chosen.__annotations__["_"] = Annotated[None, Depends(function)]
    async with InMemoryRelay() as relay:
        relay.client.on("t")(chosen)
        delivered = await run_one(relay)
    assert (delivered.outcome, delivered.reason, steps) == (Outcome.NACK, "OSError", ["swallowed"])


async def test_a_commit_that_fails_is_a_failure_of_the_handler() -> None:
    """Dependencies close before the outcome is sent."""
    async with InMemoryRelay() as relay:

        @relay.client.on("t")
        async def handler(_: Annotated[None, Depends(fails_at_its_end)]) -> None:
            steps.append("done")

        assert (await run_one(relay)).outcome is Outcome.NACK
    assert steps == ["done"]


def test_a_plain_handler_has_plain_ones_where_it_runs() -> None:
    with SyncInMemoryRelay() as relay:
        client = RelayClient()
        with SyncInMemoryRelay(client, relay.client) as joined:

            @client.on("t")
            def handler(session: Annotated[Session, Depends(get_plain)]) -> None:
                with pytest.raises(RuntimeError):
                    asyncio.get_running_loop()
                steps.append(session.name)

            joined.client.schedule("t", b"", delay=0, timer_id="a")
            (delivered,) = joined.run_due()
    assert delivered.outcome is Outcome.ACK
    assert steps == ["made for a", "a", "closed"]


async def test_the_current_delivery_is_known_wherever_its_handler_reaches() -> None:
    """In middleware, dependencies, tasks and threads; and nowhere else."""
    seen: list[str] = []

    def note() -> None:
        delivery = current_delivery()
        seen.append("" if delivery is None else delivery.timer_id)

    async with InMemoryRelay() as relay:

        @relay.client.use
        async def middleware(delivery: Delivery, call_next: Callable[[Delivery], Any]) -> None:
            note()
            await call_next(delivery)

        @relay.client.on("t")
        async def handler(_: Delivery) -> None:
            await asyncio.create_task(asyncio.to_thread(note))

        @relay.client.on("plain")
        def plain(_: Delivery) -> None:
            note()

        await relay.client.schedule("t", b"", delay=0, timer_id="a")
        await relay.client.schedule("plain", b"", delay=1, timer_id="b")
        await relay.advance(seconds=1)
        note()
    assert seen == ["a", "a", "b", "b", ""]


# ---------------------------------------------------------------------------- mistakes


def circle(_: Annotated[None, Depends(lambda: None)]) -> None: ...


circle.__annotations__["_"] = Annotated[None, Depends(circle)]


def wants_a_value(order: dict[str, int]) -> None: ...


def async_for_plain(session: Opened) -> None: ...


async def in_a_circle(_: Annotated[None, Depends(circle)]) -> None: ...


async def of_a_value(_: Annotated[None, Depends(wants_a_value)]) -> None: ...


async def with_a_default(session: Opened = None) -> None: ...  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (async_for_plain, "dependency get_session is async, and the handler is not"),
        (in_a_circle, "dependency circle needs itself"),
        (of_a_value, "dependency wants_a_value, parameter order: annotate it with Delivery or"),
        (with_a_default, "parameter session is a dependency; leave its default out"),
    ],
)
def test_a_mistake_is_named_as_the_handler_is_registered(handler: Callable[..., object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as caught:
        RelayClient().on("t")(handler)
    assert caught.value.message.startswith(f"handler {handler.__name__}, ")


def test_what_can_t_be_called_is_no_dependency() -> None:
    with pytest.raises(InvalidArgument, match="callable"):
        Depends(3)  # type: ignore[arg-type]
