"""Whatever callers hear while a topic is resharded could have come of one timer in one Redis, and nothing is
lost.

The daemon's own code and the scripts are at work, on two servers. Each step is drawn: who goes on, whose
reply is lost, who dies, which call arrives late, what finds no room, when leases lapse.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.exceptions import RedisError

from relay.core.errors import StoreFull
from relay.core.journal import NO_JOURNALS, Journals
from relay.core.outcomes import ClaimRequest, Verb
from relay.core.partitions import LEAVING
from relay.core.timers import Change, NewTimer
from relay.store.verbs import move
from tests.chaos import count, in_long
from tests.properties.resharding_bugs import BUGS, PLANS, Bug
from tests.properties.resharding_daemon import AS_THEY_ARE, Process
from tests.properties.resharding_journal import JOURNALS
from tests.properties.resharding_seam import TOPIC, Nodes, Seam, Step, clocked
from tests.properties.resharding_truth import LEASE, Violation
from tests.properties.resharding_world import KEEP, Plan, play
from tests.properties.search import SEARCH
from tests.servers import start_server
from tests.settlements import end_of
from tests.worlds.scripts.asking import N1, NOW

pytestmark = pytest.mark.slow

R = TypeVar("R")

RUNS = count(120, 30_000)
"""The suite takes the same runs each time; `make chaos` takes others, and more of them."""

TRIES = 2_000
"""Runs in which a broken protocol has to be found. Most are found in one of the first fifty."""

LATE = ["whoever is refused goes on where he was", "any note is removed"]
"""Those that hundreds of runs find, in `make chaos`."""

PROCESSES = 12
"""No run has more."""

MET = {
    *(
        "LAYOUT",
        "LEAVING",
        "PAUSEUNKNOWN",
        "move/put PUT",
        "move/put VOID",
        "move/void VOID",
        "move/void PUT",
    ),
    *("schedule CREATED", "schedule REPLACED", "create UNCHANGED", "change REPLACED", "cancel CANCELLED"),
    *("cancel GONE", "run OK", "get Found", "list Found", "settle OK", "settle rejected", "extend OK"),
}
"""What has to have happened, so that the search is about something."""


TOLD = {"LEFT", "ARRIVED", "RETURNED"}
"""And where there are journals."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Two servers."""
    with ExitStack() as stack:
        nodes = Nodes([stack.enter_context(start_server("valkey")) for _ in range(2)])
        stack.callback(nodes.close)
        yield nodes


def seams(nodes: Nodes, bug: Bug | None = None, journals: Journals = NO_JOURNALS) -> list[Seam]:
    """Ways to the servers, one for each process."""
    texts = clocked(bug.rooms, *bug.breaks) if bug else clocked(("",))
    return [Seam(nodes.url, timeout=60.0, texts=texts, journals=journals) for _ in range(PROCESSES)]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("journals", [NO_JOURNALS, JOURNALS], ids=["plain", "journal"])
def test_what_callers_hear(nodes: Nodes, journals: Journals) -> None:
    """No run has anything that one timer in one Redis could not have. Where there are journals, they prove
    every promise, and tell of each timer what has become of it."""
    ways, met = seams(nodes, journals=journals), set[str]()

    @settings(SEARCH, max_examples=RUNS)
    @given(plan=st.sampled_from(PLANS), tape=st.binary(min_size=250, max_size=500))
    def search(plan: Plan, tape: bytes) -> None:
        drawn = iter(tape)
        met.update(play(nodes, ways, lambda below: next(drawn, 0) % below, plan).met)

    search()
    wanted = MET | TOLD if journals is JOURNALS else MET
    assert met >= wanted, wanted - met


@pytest.mark.parametrize("name", [*(name for name in BUGS if name not in LATE), *in_long(LATE)])
def test_a_protocol_that_does_not_hold(nodes: Nodes, name: str) -> None:
    """The search finds what is wrong with it."""
    bug = BUGS[name]
    ways = seams(nodes, bug)
    with bug.patched():
        for number in range(TRIES):
            try:
                play(nodes, ways, Random(number).randrange, bug.plan, bug.kinds)
            except Violation:
                return
    pytest.fail(f"{TRIES} runs have found nothing")


def done(nodes: Nodes, work: Coroutine[Step, Any, R], *, full: bool = False) -> R:
    """Do all of some work, with nobody beside it. `full`: there is no room for batches."""
    reply: Any = None
    try:
        while True:
            step = work.throw(reply) if isinstance(reply, Exception) else work.send(reply)
            try:
                reply = StoreFull() if full and step.verb == "move/put" else nodes.run(step)
            except RedisError as refusal:
                reply = refusal
    except StopIteration as ended:
        result: R = ended.value
        return result


def test_a_redrive_of_an_id_that_lives(nodes: Nodes) -> None:
    """The timer that has the id stands where its letter was, and has not been moved yet. It stays."""
    nodes.empty()
    nodes.set_clock(NOW)
    process = Process(seams(nodes)[0], AS_THEY_ARE)

    async def story() -> tuple[list[Change], bytes | None]:
        await process.timers.schedule(TOPIC, [NewTimer("a", b"old", NOW)])
        await process.timers.claim(TOPIC, ClaimRequest(limit=1, lease=LEASE, nonce=N1, max_bytes=1 << 20))
        await process.timers.settle(TOPIC, [end_of("a", N1, Verb.REJECT)], limits=KEEP)
        await process.timers.schedule(TOPIC, [NewTimer("a", b"new", NOW)])
        layout = await process.moves.begin(TOPIC, 2)
        letters = (await process.topics._topics.dead_page(layout.partitions[0], limit=1, cursor="")).letters
        changes = await process.topics.redrive(TOPIC, [f"{letters[0].dead_id}#0"])
        found = await process.timers.get(layout.partition("a"), "a")
        return changes, None if found is None else found.payload

    assert done(nodes, story()) == ([Change.UNCHANGED], b"new")


def test_a_page_while_a_batch_goes_back(nodes: Nodes) -> None:
    """A timer that finds no room is listed all the same, and so is one that a claim has taken whose reply was
    lost."""
    nodes.empty()
    nodes.set_clock(NOW)
    process = Process(seams(nodes)[0], AS_THEY_ARE)
    request = ClaimRequest(limit=1, lease=LEASE, nonce=N1, max_bytes=1 << 20)

    async def story() -> tuple[list[str], list[str]]:
        await process.timers.schedule(TOPIC, [NewTimer("a", b"x", NOW)])
        await process.timers.claim(TOPIC, request)
        layout = await process.moves.begin(TOPIC, 2)
        (old,) = layout.emptied
        leave = move.leave(old.removesuffix(LEAVING), "t", ["a"])
        await process.server.call(leave)
        page = await process.timers.list(layout, state=None, limit=5, cursor="")
        await process.server.call(leave)
        found = await process.timers.claimed(TOPIC, request, since=NOW, until=NOW)
        return [each.timer_id for each in page.timers], list(found.timers.timer_ids)

    assert done(nodes, story(), full=True) == (["a"], ["a"])


def test_a_move_that_two_begin(nodes: Nodes) -> None:
    """The second one finds timers in the partition to come, since the first one has moved them there. That is
    no topic of this name."""
    nodes.empty()
    nodes.set_clock(NOW)
    first, second = (Process(way, AS_THEY_ARE) for way in seams(nodes)[:2])

    async def story() -> None:
        await first.timers.schedule(TOPIC, [NewTimer("a", b"x", NOW)])
        await first.moves.run(await first.moves.begin(TOPIC, 2), no_rest)

    work = second.moves.begin(TOPIC, 2)
    step = work.send(None)
    while step.verb != "TYPE":
        step = work.send(nodes.run(step))
    step = work.send(nodes.run(step))
    done(nodes, story())
    reply, layout = nodes.run(step), None
    while layout is None:
        try:
            reply = nodes.run(work.send(reply))
        except StopIteration as ended:
            layout = ended.value
    assert layout.text == "3 2"


async def no_rest(_size: int) -> None:
    """A move's rate has no bound."""
