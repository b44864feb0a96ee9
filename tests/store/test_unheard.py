"""A server or a user that may not publish, or not subscribe: nothing else suffers, and it is told."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import anyio
import pytest

from relay.core.dispatch import Dispatch, StreamPolicy
from relay.core.journal import Journals
from relay.core.outcomes import NO_LIMITS, ClaimRequest, Extension, Limits, Reason, Verb, Verdict
from relay.core.partitions import Layout
from relay.core.policy import TopicPolicy
from relay.core.recurring.recurrence import Recurrence, Standing, Turned
from relay.core.recurring.rule import Rule
from relay.core.recurring.turns import triggered
from relay.core.timers import Change, Changed, NewTimer
from relay.store.bulk.applying import Applying
from relay.store.bulk.columns_call import LoadRows, PackedRows
from relay.store.bulk.inserting import Inserting
from relay.store.bulk.store import BulkStore
from relay.store.bulk.sweeping import Loading, Marks
from relay.store.codec import envelope
from relay.store.dispatch.stream_groups import RedisGroups
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.recurrences import RedisRecurrences
from relay.store.server.blocking import BlockingServer, log_refused_hint
from relay.store.server.hints import RedisHints
from relay.store.server.manifest import manifest
from relay.store.server.server import Server, ServerReports
from relay.store.timeline.clocks import RedisClocks
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from relay.store.verbs import move
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.settlements import end_of
from tests.worlds.scripts.asking import N1, Leasing, Scheduling

SECOND = 1_000_000
LATER = 4_000_000_000_000_000
ONE = PackedRows.of(LoadRows(0, ["a"], [LATER], [envelope.encode(b"x", {}, "")], [1]))
STREAM = TopicPolicy(dispatch=Dispatch.STREAM, stream=StreamPolicy("billing"))


class Limited(Scheduling):
    """Everything that publishes, as a user that may not."""

    def __init__(self, url: str, topic: str, keep: int) -> None:
        self.url, self.unheard = url, list[str]()
        self.journals = Journals(lambda _: keep)
        reports = ServerReports(refused_hint=self.unheard.append)
        self.server = Server(url, connections=1, timeout=60.0, journals=self.journals, reports=reports)
        super().__init__(RedisStore(self.server), topic)
        self.topics = RedisTopics(self.server)
        self.groups = RedisGroups(self.server, lambda _: STREAM)

    def bulk(self) -> BulkStore:
        told = self.unheard.append
        return BulkStore(BlockingServer(self.url, journals=self.journals, on_refused_hint=told))

    async def put(self, *names: str, due: int = LATER) -> None:
        """Store timers; that hint is none of what is tested."""
        await self.store.schedule(self.topic, [NewTimer(name, b"x", due=due) for name in names])
        self.unheard.clear()

    async def take(self) -> list[str]:
        """What the group hands out, all that was under way in it being over."""
        return await Leasing(self.groups, self.topic).claimed(lease=SECOND)

    async def states(self) -> dict[str, str]:
        page = await self.store.list(Layout(self.topic), state=None, limit=99, cursor="")
        return {timer.timer_id: timer.state.value for timer in page.timers}


@pytest.fixture
def user(redis_server: RunningServer) -> Iterator[str]:
    """The URL of a user that may do all but PUBLISH."""
    with redis_server.client() as operator:
        rules = ("on", ">pw", "~*", "&*", "+@all", "-publish")
        operator.execute_command("ACL", "SETUSER", "mute", *rules)
        yield redis_server.url.replace("://", "://mute:pw@")
        operator.execute_command("ACL", "DELUSER", "mute")


@pytest.fixture(params=[0, 100], ids=["", "journal"])
async def limited(user: str, keyspace: Keyspace, request: pytest.FixtureRequest) -> AsyncIterator[Limited]:
    limited = Limited(user, keyspace.topic(), request.param)
    keyspace.allow(f"*{limited.topic}#*")  # of its partitions
    yield limited
    await limited.server.aclose()


async def schedule(limited: Limited) -> None:
    """The first timer of a topic, and then an earlier one."""
    for n, name in enumerate("ba"):
        (stored,) = await limited.store.schedule(limited.topic, [NewTimer(name, b"x", due=LATER - n)])
        assert stored.stored
        assert len(limited.unheard) == n + 1
    del limited.unheard[0]
    assert await limited.states() == {"a": "pending", "b": "pending"}


async def run(limited: Limited) -> None:
    await limited.put("a", "b")
    assert await limited.store.run(limited.topic, ["a"]) == [Changed(Change.RUN)]
    await limited.claim()
    assert await limited.states() == {"a": "leased", "b": "pending"}


async def settle(limited: Limited) -> None:
    """A NACK that makes the topic's next timer an earlier one, and an ACK beside it."""
    await limited.put("a", "b", due=1)
    await limited.claim()
    ends = [end_of("a", N1, Verb.NACK, retry_after=0), end_of("b", N1, Verb.ACK)]
    assert await limited.store.settle(limited.topic, ends) == [Verdict.OK, Verdict.OK]
    assert await limited.states() == {"a": "pending"}


async def resume(limited: Limited) -> None:
    await limited.put("a")
    await limited.topics.pause(limited.topic)
    await limited.topics.resume(limited.topic)
    assert (await limited.topics.stats(limited.topic)).paused_until is None


async def redrive(limited: Limited) -> None:
    await limited.put("a", due=1)
    await limited.claim()
    ends = [end_of("a", N1, Verb.REJECT)]
    await limited.store.settle(limited.topic, ends, limits=Limits(keep=True))
    (letter,) = (await limited.topics.dead_page(limited.topic, limit=9, cursor="")).letters
    assert await limited.topics.redrive(limited.topic, [letter.dead_id]) == [Change.RUN]
    assert await limited.states() == {"a": "pending"}
    assert (await limited.topics.stats(limited.topic)).dead == 0


async def finish(limited: Limited) -> None:
    """A NACK in a stream's group."""
    await taken(limited)
    assert await limited.take() == ["a"], "it waits for another try, and comes"


async def taken(limited: Limited, verb: Verb = Verb.NACK) -> None:
    await limited.put("a", due=1)
    claim = await limited.groups.claim(
        limited.topic, ClaimRequest(limit=9, lease=SECOND, nonce=N1, max_bytes=1 << 20)
    )
    (timer,) = claim.timers
    end = end_of("a", timer.proof, verb, retry_after=0)
    (word,) = await limited.groups.settle(limited.topic, [end], limits=Limits(keep=True))
    assert word is (Verdict.OK if verb is Verb.NACK else Reason.REJECTED)


async def revive(limited: Limited) -> None:
    """A letter of a stream's group."""
    await taken(limited, Verb.REJECT)
    (letter,) = (await limited.topics.dead_page(limited.topic, limit=9, cursor="")).letters
    assert await limited.topics.redrive(limited.topic, [letter.dead_id]) == [Change.RUN]
    assert await limited.take() == ["a"]


async def on_its_way(limited: Limited) -> tuple[Layout, Sequence[bytes]]:
    """A layout by which a timer moves, which has left its partition."""
    layout = Layout(limited.topic, 2, 1, 2)
    await limited.store.schedule(layout.partitions[0], [NewTimer("a", b"x", due=LATER)])
    batch = await limited.server.call(move.leave(layout.partitions[0], "t", ["a"]))
    limited.unheard.clear()
    return layout, batch


async def arrive(limited: Limited) -> None:
    """A batch of a move, where it belongs."""
    layout, batch = await on_its_way(limited)
    assert (await limited.server.call(move.put(layout.partitions[1], batch)))[0] == b"PUT"
    assert await limited.store.get(layout.partitions[1], "a") is not None


async def come_back(limited: Limited) -> None:
    """A batch of a move, where it was."""
    layout, batch = await on_its_way(limited)
    assert await limited.server.call(move.back(layout.partitions[0], batch)) == b"1"
    assert await limited.store.get(layout.partitions[0], "a") is not None


async def load(limited: Limited) -> None:
    """A sweep's batch."""
    with limited.bulk() as bulk:
        loading = Loading(bulk.server)
        epoch = loading.open(limited.topic, "1", "d", lock=SECOND, ttl=60, epoch="e", store="s")
        loading.load(Marks(Layout(limited.topic), str(epoch), "1"), ONE)
        loading.flush()
        assert loading.done.loaded == 1
    assert await limited.states() == {"a": "pending"}


async def insert(limited: Limited) -> None:
    """A batch of a load that can be repeated."""
    with limited.bulk() as bulk:
        inserting = Inserting(bulk, "run")
        inserting.insert(limited.topic, ONE)
        inserting.flush()
        assert inserting.done == (1, 0, 0)
    assert await limited.states() == {"a": "pending"}


async def apply(limited: Limited) -> None:
    """Rows of a stream's batch."""
    with limited.bulk() as bulk:
        applying = Applying(bulk, "run", 0)
        applying.apply(limited.topic, ONE)
        bulk.flush()
        assert applying.done == (1, 0, 0, 0, 0)
    assert await limited.states() == {"a": "pending"}


async def replace(limited: Limited) -> None:
    """A batch of a load that replaces."""
    with limited.bulk() as bulk:
        bulk.replace(limited.topic, ONE)
        bulk.flush()
    assert await limited.states() == {"a": "pending"}


async def tick(limited: Limited) -> None:
    """A recurrence makes an occurrence."""
    recurrences = RedisRecurrences(limited.server, Carrier(limited.server))
    recurrence, standing = Recurrence("r", Rule(every=SECOND)), Standing(version=1, next=LATER)
    assert await recurrences.keep(limited.topic, None, recurrence, standing, 0, reason="put")
    _, kept = await recurrences.get(limited.topic, "r")
    assert kept is not None
    turn = triggered(kept, LATER)
    assert await recurrences.turn(limited.topic, [turn], LATER) == [Turned.DONE]
    assert await limited.states() == {turn.standing.last: "pending"}


async def renew(limited: Limited) -> None:
    """A lease that is renewed until sooner than it was to end."""
    await leased(limited)
    extensions = [Extension(timer_id="a", nonce=N1, received=False)]
    assert await limited.store.extend(limited.topic, extensions, lease=SECOND) == [Verdict.OK]


async def recall(limited: Limited) -> None:
    """A lease that the clock of before has given."""
    await leased(limited)
    clocks = RedisClocks(limited.server)
    _, left = await clocks.recall(limited.topic, {"a": None}, lease=SECOND, back=0, limits=NO_LIMITS)
    assert left == {}


async def leased(limited: Limited) -> None:
    """For an hour."""
    await limited.put("a", due=1)
    assert await limited.claimed(lease=3600 * SECOND) == ["a"]


VERBS: tuple[Callable[[Limited], Awaitable[None]], ...] = (
    *(
        schedule,
        run,
        settle,
        resume,
        redrive,
        finish,
        revive,
        arrive,
        come_back,
        load,
        insert,
        apply,
        replace,
        tick,
    ),
    *(renew, recall),
)
SCRIPTS = {
    "timeline/schedule",
    "timeline/run",
    "timeline/settle",
    "timeline/extend",
    "timeline/recall",
    "people/pause",
    "people/redrive",
    "move/put",
    "move/back",
    "stream/settle",
    "stream/redrive",
    "bulk/guarded_load",
    "bulk/insert",
    "bulk/apply",
    "bulk/replace",
    "recur/turn",
}
"""The scripts that `VERBS` run."""


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
async def test_what_can_t_be_published_is_told(
    limited: Limited, verb: Callable[..., Awaitable[None]]
) -> None:
    """The call does all that it was to do, to the last write, and says that its hint was refused, and why."""
    await verb(limited)
    (reason,) = limited.unheard
    assert "publish" in reason.lower() or "permission" in reason or "can't run this command" in reason


def test_every_script_that_publishes_is_tested() -> None:
    """One that is new belongs into `VERBS`."""
    folder = Path(__file__).parents[2] / "lua"
    texts = {
        str(file.relative_to(folder).with_suffix("")): file.read_text(encoding="utf-8")
        for file in folder.rglob("*.lua")
    }
    whole = {
        name: "".join([*(texts[f"lib/{part}"] for part in manifest(name).uses), text])
        for name, text in texts.items()
        if not name.startswith("lib/")
    }
    assert {name for name, text in whole.items() if re.search(r"(?<!function )\bhint\(", text)} == SCRIPTS
    assert [name for name, text in texts.items() if "'PUBLISH'" in text] == ["lib/prelude"]


def test_a_load_says_it_once(user: str, keyspace: Keyspace, caplog: pytest.LogCaptureFixture) -> None:
    """A line for the process, whatever number of workers and batches it has."""
    log_refused_hint.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with BulkStore(BlockingServer(user)) as bulk:
                bulk.replace(keyspace.topic(), ONE)
                bulk.replace(keyspace.topic(), ONE)
                bulk.flush()
    (record,) = caplog.records
    assert "PUBLISH" in record.getMessage()


@pytest.mark.parametrize("rule", ["-subscribe", "resetchannels"])
async def test_a_user_that_may_not_subscribe(
    redis_server: RunningServer, keyspace: Keyspace, rule: str
) -> None:
    """It is told at the first try, and the next try comes in a minute: whoever waits polls."""
    topic = keyspace.topic()
    with redis_server.client() as operator:
        operator.execute_command("ACL", "SETUSER", "deaf", "on", ">pw", "~*", "&*", "+@all", rule)
        url = redis_server.url.replace("://", "://deaf:pw@")
        unheard: list[str] = []
        told = anyio.Event()

        def tell(reason: str) -> None:
            unheard.append(reason)
            told.set()

        async with Server(url, connections=1, timeout=60.0) as redis, anyio.create_task_group() as tasks:
            hints = RedisHints(redis, on_refused_hint=tell)
            tasks.start_soon(hints.run)
            await hints.watch(topic, lambda _: None)
            with anyio.fail_after(60):
                await told.wait()
            tasks.cancel_scope.cancel()
        operator.execute_command("ACL", "DELUSER", "deaf")
    (reason,) = unheard
    assert "subscribe" in reason or "channel" in reason
