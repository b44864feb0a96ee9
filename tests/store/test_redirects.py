"""Redirects and refusals of a Cluster's nodes. A fake node gives the answers that a test wants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.to_thread import run_sync
from redis.exceptions import TryAgainError

from relay.core.errors import GivenUp, StoreUnavailable
from relay.store.server.blocking import BlockingServer
from relay.store.server.cluster import redirects
from relay.store.server.cluster.blocking_nodes import BlockingNodes
from relay.store.server.cluster.slot_map import SlotMap
from relay.store.server.server import Server
from tests.store.fake import bulk, serving


class Fake:
    """A node that answers what a test wants: to CLUSTER SLOTS that it has all slots itself, and to each GET
    the next of `answers`. It repeats the last one."""

    def __init__(self, *answers: bytes, host: bytes = b"$9\r\n127.0.0.1\r\n") -> None:
        self.answers = list(answers)
        self.host = host
        self.port = 0
        self.looks = 0
        self.calls = 0

    def __call__(self, name: bytes) -> bytes | None:
        if name == b"cluster":
            self.looks += 1
            return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n" + self.host + b":%d\r\n" % self.port
        if name == b"info":
            return bulk("role:master")
        if name == b"spublish":
            return b"-ERR wrong number of arguments for 'spublish' command\r\n"
        if name in (b"ping", b"asking"):
            return b"+OK\r\n"
        self.calls += 1
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        return answer.replace(b"PORT", b"%d" % self.port)


@asynccontextmanager
async def serving_as_cluster(fake: Fake) -> AsyncIterator[str]:
    async with serving(fake) as url:
        fake.port = int(url.rpartition(":")[2].removesuffix("/0"))
        yield f"redis+cluster://127.0.0.1:{fake.port}"


@asynccontextmanager
async def faked(fake: Fake) -> AsyncIterator[Server]:
    async with serving_as_cluster(fake) as url, Server(url, timeout=60.0) as server:
        yield server


PASSING = [
    b"-LOADING Redis is loading the dataset in memory\r\n",
    b"-CLUSTERDOWN Hash slot not served\r\n",
    b"-CLUSTERDOWN The cluster is down\r\n",
    b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    b"-MASTERDOWN Link with MASTER is down\r\n",
    b"-MOVED 0 :PORT\r\n",
    b"-MOVED 0 ?:PORT\r\n",
    b"-MOVED 0 127.0.0.1:PORT\r\n",
    b"-ASK 0 :PORT\r\n",
]


@pytest.mark.parametrize("refusal", PASSING)
async def test_what_passes_is_waited_for(refusal: bytes) -> None:
    """A node that can't take the call now can take it later; and a redirect without a host means another port
    of the node that said so."""
    fake = Fake(*[refusal] * 8, b"$2\r\nhi\r\n")
    async with faked(fake) as server:
        assert await server.ask("GET", "k") == b"hi"
    assert fake.calls >= 9


@pytest.mark.parametrize("refusal", PASSING)
async def test_a_worker_of_spark_waits_for_it_too(refusal: bytes) -> None:
    """It asks once for each refusal, and for the answer."""
    fake = Fake(*[refusal] * 8, b"$2\r\nhi\r\n")
    async with serving_as_cluster(fake) as url:
        with BlockingServer(url, timeout=60.0) as server:
            assert await run_sync(server.ask, "GET", "k") == b"hi"
    assert fake.calls == 9


async def test_nodes_that_send_a_worker_to_and_fro() -> None:
    """It ends with the time that the worker has."""
    fake = Fake(b"-MOVED 0 127.0.0.1:PORT\r\n")
    async with serving_as_cluster(fake) as url:
        with BlockingServer(url, timeout=60.0) as server:
            assert isinstance(server._servers, BlockingNodes)
            server._servers._patience = 1.0  # which is not the time for an answer
            with pytest.raises(StoreUnavailable, match=r"could not take the call in time"):
                await run_sync(server.ask, "GET", "k")
    assert fake.calls < 30


@pytest.mark.parametrize("host", [b"$-1\r\n", b"$0\r\n\r\n", b"$1\r\n?\r\n"])
async def test_a_node_without_a_host(host: bytes) -> None:
    """What CLUSTER SLOTS tells without one is reached where it was asked."""
    async with faked(Fake(b"$2\r\nhi\r\n", host=host)) as server:
        assert await server.ask("GET", "k") == b"hi"


async def test_nodes_that_send_a_call_to_and_fro() -> None:
    """It ends with the call's time, and does not keep the loop from anything else meanwhile."""
    fake = Fake(b"-MOVED 0 127.0.0.1:PORT\r\n")
    async with faked(fake) as server:
        server._timeout = 1.0  # which is not the time for an answer
        with pytest.raises(StoreUnavailable, match=r"could not take the call in time"):
            await server.ask("GET", "k")
    assert fake.calls < 30


@pytest.mark.parametrize(("seconds", "least"), [(4.0, 0.5), (0.4, 0.1)])
def test_a_last_try_has_time_for_its_answer(
    monkeypatch: pytest.MonkeyPatch, seconds: float, least: float
) -> None:
    """A busy node, asked in the last instant, would be taken for one that is away."""
    now = 100.0
    monkeypatch.setattr(redirects, "monotonic", lambda: now)
    deadline, tries = now + seconds, []
    way = redirects.Way(SlotMap([], {}, lambda: None), [])
    way.sends_on(TryAgainError())

    def until_it_is_given_up() -> None:
        nonlocal now
        while True:
            now += way.wait(deadline)
            tries.append(deadline - now)

    with pytest.raises(GivenUp):
        until_it_is_given_up()
    assert len(tries) > 3
    assert least <= tries[-1] < least + redirects.LONGEST_WAIT


async def test_looks_are_few() -> None:
    """However many calls have a reason to doubt, one look is under way at a time, and ten a second begin."""
    fake = Fake(*[b"-CLUSTERDOWN The cluster is down\r\n"] * 400, b"$2\r\nhi\r\n")
    async with faked(fake) as server:
        await server.ping()
        began = anyio.current_time()
        async with anyio.create_task_group() as group:
            for n in range(50):
                group.start_soon(server.ask, "GET", f"k{n}")
        assert fake.looks <= 3 + 10 * (anyio.current_time() - began)
    assert fake.calls >= 400
