"""Script calls that count once their changes are as durable as was asked: many of them share one wait."""

from __future__ import annotations

import asyncio
import contextvars
import math
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from relay.core.durability import Durability
from relay.core.errors import DurabilityMissed, GivenUp, OpenOutcome, ReplicasAway, TooMany
from relay.store.server.durable.offer import (
    FSYNCS,
    HOW_SYNCED,
    NOT_SYNCED,
    PACE,
    SYNC_INTERVAL,
    Replicas,
    appendfsync,
    files_at_rest,
    look,
    missing,
    run_id,
    wait_command,
)
from relay.store.server.errors import CantGive, CantGiveNow, words
from relay.store.server.manifest import text_of
from relay.store.server.pool import ANSWERS, GRACE, NO_ANSWER, TOO_LATE, MasterPool, write
from relay.store.server.server_clock import ServerClock

GROUPS = 12
"""The groups of a level that may be under way at a place, each on a connection of its own, which it blocks
while it waits. With `appendfsync everysec` a wait takes a second: one group begins each tenth of it, and no
call waits for more than that until its group does."""

LONGEST_GATHER = 0.1
"""Seconds for which a group gathers at most: until then nobody reads what became of its calls."""

AT_FIRST = 1.0
"""How long a wait is taken to be, in seconds, before there was one."""

MOST_WAITING = 1_000
"""The script calls of a level that may be under way, or wait, at a place; one call writes up to 500
timers."""

MARGIN = 0.05
"""Seconds of a caller's time that are kept for telling him that the wait was in vain."""

LATE = 0.15
"""Seconds by which the server's answer may come late to a wait that is over: it looks ten times a second."""

BETWEEN = 0.8, 1.3
"""Seconds between two fsyncs under `everysec`, at least and at most."""

SECONDS_TO_LEARN = 3.0
"""Seconds for which such a look takes part of a connection's time at most."""

PROOFS = 3
"""How often a server has to wait for an fsync until it is known that it does."""

WRITTEN = text_of("lib/written")

Command = Callable[[Callable[[float], int]], Sequence[Any]]
"""Makes a script's command, given what tells the server's time at a monotonic instant; see
`Client.change`."""


OpenPool = Callable[[Callable[[AbstractConnection], Awaitable[None]]], MasterPool]
"""Makes a pool of at most `GROUPS` connections, given what looks at each new one."""


class _Asked:
    """A script call that is to be durable.

    `deadline` is when the script is given up, `end` when the wait behind it is, both monotonic seconds.
    """

    def __init__(self, command: Command, key: str, deadline: float, end: float) -> None:
        loop = asyncio.get_running_loop()
        self.command = command
        self.key = key
        self.deadline = deadline
        self.end = end
        self.clock: ServerClock | None = None
        """That of the connection by which it was sent; None until then."""
        self.sent = -math.inf
        self.reply: asyncio.Future[Any] = loop.create_future()
        """The script's reply or refusal, or what befell the connection."""
        self.durable: asyncio.Future[str] = loop.create_future()
        """Why the level was not reached; empty if it was."""

    def tell(self, reply: Any) -> None:
        """Set the reply, or the exception in its place."""
        if self.reply.done():  # its caller has gone
            return
        if isinstance(reply, BaseException):
            self.reply.set_exception(reply)
        else:
            self.reply.set_result(reply)

    def told_durable(self, problem: str) -> None:
        """Set how the wait has ended."""
        if not self.durable.done():
            self.durable.set_result(problem)


class GroupCommit:  # see 0096
    """The calls of one level at one place.

    A call is sent at once, over the connection of the group that gathers. When that group is closed,
    `lib/written.lua` and WAIT or WAITAOF follow on the same connection, which is blocked then until the level
    is reached for all of them, while the next group gathers on another connection. A connection that breaks
    in between has reached nothing.

    Some servers answer WAITAOF before the fsync (github.com/redis/redis/pull/13793: Redis 7.4 and Valkey,
    under `everysec`): while the last fsync began less than a second ago, they take all for synced. There the
    server's count of fsyncs under way is looked at as well, see `_until_synced`. A server is taken for such a
    one until it was seen to wait; where replicas have to have it on their disks, always: nobody can see how
    each of them waits.

    `appendfsync` is asked again behind each wait, since people change it while relays run.
    """

    def __init__(self, level: Durability, open_pool: OpenPool, replicas: Replicas) -> None:
        self._level = level
        self._replicas = replicas
        self._pool = open_pool(self._look)
        self._processes: weakref.WeakKeyDictionary[AbstractConnection, bytes] = weakref.WeakKeyDictionary()
        """The ids of servers, by connection: empty of one that syncs each change (`always`), as far as is
        known."""
        self._waited: dict[bytes, float] = {}
        """How often such a server was seen to wait for its fsync; less than 0 if it was seen not to."""
        self._waiting = 0
        self._queue: deque[_Asked] = deque()
        self._news = asyncio.Event()
        """Set when something was queued."""
        self._gathers = False
        self._groups: set[asyncio.Task[None]] = set()
        self._closed_at = -math.inf
        """When the last group was closed."""
        self._took = AT_FIRST
        """How long the last wait took, in seconds."""

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self._waiting > 0

    def renew(self) -> None:
        """See `MasterPool.renew`."""
        self._pool.renew()

    def forget_clocks(self) -> None:
        """See `MasterPool.forget_clocks`."""
        self._pool.forget_clocks()

    async def lacks(self) -> str:
        """Ask the server now why it can't give the level; empty if it can. Raises redis-py's errors."""
        try:
            connection = await self._pool.get_connection()
            try:
                await self._look(connection)
            finally:
                await self._pool.release(connection)
        except CantGive as lack:
            return str(lack)
        except CantGiveNow as lack:
            return self._out_of_reach(lack)
        return ""

    async def aclose(self) -> None:
        """End what is under way."""
        for task in self._groups:
            task.cancel()
        await asyncio.gather(*self._groups, return_exceptions=True)
        await self._pool.aclose()

    async def change(self, command: Command, key: str, deadline: float, end: float) -> tuple[Any, float]:
        """Send a script as `Client.change` does, until `deadline`, and wait until `end` for its durability
        (monotonic seconds). Return its reply, and when that came. `key` is the one that may be written
        behind it.

        Raises what `Client.change` raises; `DurabilityMissed` if the script was answered, and the level was
        not reached; `ReplicasAway` if it was not sent; `TooMany` if too many calls wait; `CantGive` if the
        server can't give the level.
        """
        if self._waiting >= MOST_WAITING:
            raise TooMany(
                f"{MOST_WAITING} calls wait already until Redis has them as {self._level}; try again later"
            )
        asked = _Asked(command, key, deadline, end)
        self._queue.append(asked)
        self._news.set()
        self._waiting += 1
        try:
            self._begin()
            reply = await self._answer(asked)
            answered = monotonic()
            await self._settled(asked)
        finally:
            self._waiting -= 1
        return reply, answered

    async def _answer(self, asked: _Asked) -> Any:
        """Wait for the script's reply."""
        try:
            async with asyncio.timeout(asked.deadline + GRACE - monotonic()):
                return await asked.reply
        except ANSWERS as refusal:
            if asked.clock is not None and str(refusal).startswith("GIVENUP"):
                asked.clock.forget()
            raise
        except (RedisError, OSError) as failure:
            lost = RedisTimeoutError(NO_ANSWER) if isinstance(failure, TimeoutError) else failure
            if asked.clock is None:
                if lost is failure:
                    raise
                raise GivenUp(TOO_LATE) from None
            since, until = asked.clock.at(asked.sent), asked.clock.at(asked.deadline)
        await asyncio.sleep(asked.deadline - monotonic())
        raise OpenOutcome(words(lost), since=since, until=until) from lost

    async def _settled(self, asked: _Asked) -> None:
        """Wait until what the script has written is durable."""
        try:
            async with asyncio.timeout(asked.end - monotonic()):
                problem = await asked.durable
        except TimeoutError:
            problem = "the caller's time was over before the server had said so"
        if problem:
            raise DurabilityMissed(
                f"durability: {self._level} was not reached: {problem}; the change stands, but may be "
                "lost with the server: repeat the call under the same id"
            )

    # ------------------------------------------------------------------ groups

    def _begin(self) -> None:
        """Let a group gather, if none does, and if there is a connection for one."""
        if self._queue and not self._gathers and len(self._groups) < GROUPS:
            self._gathers = True
            # Not in the context of a caller, whose deadline and trace are not those of the others.
            group = asyncio.get_running_loop().create_task(self._group(), context=contextvars.Context())
            self._groups.add(group)
            group.add_done_callback(self._ended)

    def _ended(self, group: asyncio.Task[None]) -> None:
        self._groups.discard(group)
        self._news.set()  # the next one may have to gather for less time
        self._begin()

    async def _group(self) -> None:
        """Gather calls, wait until they are durable, and tell each what has become of it."""
        connection = await self._open()
        if connection is None:
            return
        calls: list[_Asked] = []
        problem = "the relay has stopped"
        failure: RedisError | OSError = RedisConnectionError(problem)
        try:
            try:
                held = await self._gather(calls, connection)
            finally:
                self._gathers = False
            self._begin()
            problem = await self._wait_for(calls, held, connection) if calls else ""
            for asked in calls:
                asked.told_durable(problem)
            if calls and not problem:
                await self._learn(connection, calls[0].key)
        except (RedisError, OSError) as lost:
            problem, failure = f"the connection was lost: {words(lost)}", lost
        finally:
            if problem:  # a new connection looks first at what the server can give
                await connection.disconnect(nowait=True)
            await self._pool.release(connection)
            for asked in calls:
                asked.tell(failure)
                asked.told_durable(problem)

    async def _open(self) -> AbstractConnection | None:
        """Return a connection. Where none can be had, tell all who wait why, and return None."""
        try:
            return await self._pool.get_connection()
        except (RedisError, OSError) as failure:
            self._gathers = False
            told: Exception = failure
            if isinstance(failure, CantGiveNow):
                told = ReplicasAway(f"{self._out_of_reach(failure)}; nothing was changed: repeat the call")
            for asked in self._queue:
                asked.tell(told)
            self._queue.clear()
            return None
        except BaseException:
            self._gathers = False
            raise

    def _out_of_reach(self, lack: CantGiveNow) -> str:
        return f"durability: {self._level} can't be reached: {lack}"

    async def _gather(self, calls: list[_Asked], connection: AbstractConnection) -> list[Sequence[Any]]:
        """Send what is queued, and what comes until it is time to close the group.

        A server with `appendfsync always` syncs before it answers, and does nothing else meanwhile. A script
        that is sent by itself costs an fsync, and the wait behind it another one, in which the next scripts
        wait as well. So there they are held, and returned: they go with the wait.
        """
        clock = await self._pool.clock(connection)
        holds = self._level.fsync and self._processes.get(connection) == b""
        while True:
            while self._queue:
                calls.append(self._queue.popleft())
                if not holds:
                    write(connection, *self._commands(calls, calls[-1:], clock))
                    await asyncio.sleep(0)
            left = self._closed_at + min(self._took / GROUPS, LONGEST_GATHER) - monotonic()
            if left <= 0 or not calls:
                break
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._news.wait()
        held = self._commands(calls, list(calls), clock) if holds else []
        if calls:
            self._closed_at = monotonic()
        return held

    @staticmethod
    def _commands(calls: list[_Asked], some: Sequence[_Asked], clock: ServerClock) -> list[Sequence[Any]]:
        """The commands of some of a group's calls, which are sent now. Those that are given up leave it."""
        commands: list[Sequence[Any]] = []
        for asked in some:
            now = monotonic()
            if asked.reply.done() or asked.deadline <= now:
                asked.tell(GivenUp(TOO_LATE))
                calls.remove(asked)
                continue
            asked.clock, asked.sent = clock, now
            commands.append(asked.command(clock.at))
        return commands

    async def _wait_for(
        self, calls: Sequence[_Asked], held: Sequence[Sequence[Any]], connection: AbstractConnection
    ) -> str:
        """Close the group: send what was held, tell the calls their replies; return why the level was not
        reached, or nothing."""
        closed, end = monotonic(), max(asked.end for asked in calls)
        behind = self._behind(connection)
        last = max(end, *(asked.deadline for asked in calls))
        keys = dict.fromkeys(asked.key for asked in calls)
        async with asyncio.timeout(last - closed + GRACE):
            first = Durability(replicas=self._level.replicas) if behind else self._level
            problem = await self._reach(first, keys, calls, connection, end, held)
            if not behind and not problem:
                behind = self._behind(connection)  # the server may sync once a second since
            if behind and not problem:
                problem = await self._until_synced(keys, behind, connection, end)
        self._took = monotonic() - closed
        return problem

    async def _reach(
        self,
        level: Durability,
        keys: Iterable[str],
        calls: Sequence[_Asked],
        connection: AbstractConnection,
        end: float,
        held: Sequence[Sequence[Any]] = (),
    ) -> str:
        """Send what was held, wait until `end` for a level of all that was sent, and tell the calls their
        replies; return why it was not reached, or nothing."""
        written_behind = [("EVAL", WRITTEN, 1, key) for key in keys]
        left = end - monotonic()
        milliseconds = max(math.ceil(max(left - LATE, left / 2) * 1000), 1)  # 0 would be without end
        asks = [HOW_SYNCED] if level.fsync else []
        write(connection, *held, *written_behind, wait_command(level, milliseconds), *asks)
        for asked in calls:
            asked.tell(await _read(connection))
        written = [await _read(connection) for _ in written_behind]
        reached = await _read(connection)
        synced = appendfsync(await _read(connection)) if asks else b""
        if all(isinstance(each, BaseException) for each in written):  # one is enough: it is behind all calls
            return words(written[0])
        problem = missing(level, reached)
        if asks and not problem:
            problem = await self._note_synced(connection, synced)
        return problem

    async def _until_synced(
        self, keys: Iterable[str], behind: float, connection: AbstractConnection, end: float
    ) -> str:
        """Wait until `end` for an fsync of all that the group has written, on a server whose WAITAOF comes
        too early; return why there was none in time, or nothing.

        While no fsync is under way, all that was written is in the file, and the server begins an fsync that
        has it within `behind`, unless there was one. If it was late, the write of `_reach` makes it begin
        one. So once none is under way behind that, one has ended that has all. Only a rewrite hands the last
        fsync of the old file to a place where it isn't counted; then all is looked at once more.
        """
        before, after = None, await self._at_rest(connection, end)
        while after is not None and before != after:
            before = after
            await asyncio.sleep(behind)
            problem = await self._reach(self._level, keys, (), connection, end)
            if problem:
                return problem
            after = await self._at_rest(connection, end)
        return "" if after is not None else "the server's disk did not have it in time"

    async def _at_rest(self, connection: AbstractConnection, end: float) -> list[bytes] | None:
        """Wait until `end` for a moment at which no fsync is under way. Return what tells the server's files
        from those of before; None if there was none."""
        while True:
            write(connection, FSYNCS)
            files = files_at_rest(await _read(connection))
            if files is not None or monotonic() > end:
                return files
            await asyncio.sleep(PACE)

    # ------------------------------------------------------------------ what the server can give

    async def _look(self, connection: AbstractConnection) -> None:
        """Ask the server of a new connection whether it can give the level. Raises `CantGive`, which says
        what to set, and `CantGiveNow`."""
        steps, reply = look(self._level, self._replicas), None
        try:
            while True:
                command = steps.send(reply)
                try:
                    reply = await _told(connection, *command)
                except ResponseError as refusal:
                    reply = refusal
        except StopIteration as end:
            self._processes[connection] = end.value or b""

    async def _note_synced(self, connection: AbstractConnection, synced: bytes) -> str:
        """Note the server's `appendfsync`, which is empty if that may not be known; return why it won't do,
        or nothing."""
        if synced == b"always":
            self._processes[connection] = b""
        elif synced != b"no" and not self._processes.get(connection):
            self._processes[connection] = run_id(await _told(connection, "INFO", "server"))
        return NOT_SYNCED if synced == b"no" else ""

    def _behind(self, connection: AbstractConnection) -> float:
        """How many seconds behind the calls of a group its wait has to begin."""
        if self._level.fsync and self._level.replicas:
            return SYNC_INTERVAL
        process = self._processes.get(connection)
        return SYNC_INTERVAL if process and self._waited.get(process, 0.0) < PROOFS else 0.0

    async def _learn(self, connection: AbstractConnection, key: str) -> None:
        """Look whether the server waits for its fsync, where that is not known yet. A wait has just ended, so
        the next one takes as long as lies between two fsyncs; or no time, if the server takes all for
        synced."""
        process = self._processes.get(connection)
        if (
            not process
            or self._level.replicas
            or not 0.0 <= (waited := self._waited.get(process, 0.0)) < PROOFS
        ):
            return
        began = monotonic()
        write(connection, ("EVAL", WRITTEN, 1, key))
        write(connection, wait_command(Durability(fsync=True), int(SECONDS_TO_LEARN * 1000)))
        async with asyncio.timeout(2 * SECONDS_TO_LEARN):
            await _read(connection)
            await _read(connection)
        took, (least, most) = monotonic() - began, BETWEEN
        if took < least:
            self._waited[process] = -math.inf
        elif took < most:
            self._waited[process] = waited + 1


async def _told(connection: AbstractConnection, *command: str | int) -> Any:
    """A reply. Raises redis-py's errors."""
    await connection.send_command(*command, check_health=False)
    return await connection.read_response()


async def _read(connection: AbstractConnection) -> Any:
    """A reply, or the refusal in its place."""
    try:
        return await connection.read_response(timeout=math.inf)
    except ANSWERS as refusal:
        return refusal


class DurableCalls:
    """The calls to one place that wait for more than the server's OK: those of each level with connections of
    their own, made when first needed. So nobody waits for a level that he did not ask for."""

    def __init__(self, open_pool: OpenPool, replicas: Replicas) -> None:
        self._open_pool = open_pool
        self._replicas = replicas
        self._commits: dict[Durability, GroupCommit] = {}

    def __getitem__(self, level: Durability) -> GroupCommit:
        """Those of a level."""
        commit = self._commits.get(level)
        if commit is None:
            commit = self._commits[level] = GroupCommit(level, self._open_pool, self._replicas)
        return commit

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return any(commit.is_busy for commit in self._commits.values())

    def renew(self) -> None:
        """See `MasterPool.renew`."""
        for commit in self._commits.values():
            commit.renew()

    def forget_clocks(self) -> None:
        """See `MasterPool.forget_clocks`."""
        for commit in self._commits.values():
            commit.forget_clocks()

    async def aclose(self) -> None:
        """Close all connections."""
        for commit in self._commits.values():
            await commit.aclose()
