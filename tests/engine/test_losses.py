"""What was under way when its relay died or its stream broke: it comes again with its neighbours, and alone
once it is lost again."""

from __future__ import annotations

import anyio
import pytest

from relay.core.outcomes import Verb
from relay.core.policy import RetryPolicy
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import App, World

MANY = [f"t{n:03}" for n in range(100)]
LEASE = 10.0


async def die_at_work(world: World, *names: str) -> None:
    """A relay delivers these timers, which are due; all are received, it has written that, and dies."""
    async with anyio.create_task_group() as tasks:
        doomed = world.make(world.heard(type(world.hints)()))
        await tasks.start(doomed.run)
        app = await world.app(engine=doomed)
        assert sorted(app.names()) == sorted(names)
        doomed.received(app.session, [lease.token for lease in app.held])
        await world.advance(0.1)
        tasks.cancel_scope.cancel()
    assert await world.leased() == set(names), "nobody has settled"


async def frames(app: App) -> list[list[str]]:
    """All that comes to an application which acknowledges at once, by messages."""
    seen = []
    while batch := app.session.take().leases:
        seen.append(sorted(lease.timer.timer_id for lease in batch))
        app.ack(batch)
        await settle()
    return seen


async def attempts(world: World, *names: str) -> list[int | None]:
    return [getattr(await world.get(name), "attempts", None) for name in names]


async def test_a_relay_s_death(world: World) -> None:
    """All that was at work comes again within `lease_ttl` + 1 s where another relay lives, though no handler
    ends meanwhile."""
    world.tune(lease_ttl=LEASE)
    await world.put(*MANY)
    await die_at_work(world, *MANY)
    app = await world.app()
    await world.advance(LEASE - 0.2)
    assert app.names() == [], "the leases last"
    at_work: list[str] = []
    for _ in range(12):
        await world.advance(0.1)
        at_work += app.names()
    assert sorted(at_work) == MANY
    assert {lease.timer.attempt for lease in app.held} == {2}


async def test_a_second_death(world: World) -> None:
    """What was lost twice comes alone, since its payload may be what kills. Others need not wait for all."""
    world.tune(lease_ttl=LEASE)
    await world.put("a", "b")
    await die_at_work(world, "a", "b")
    await world.advance(LEASE)
    await die_at_work(world, "a", "b")
    await world.advance(LEASE)
    await world.put("new")
    assert await frames(await world.app()) == [["a"], ["new"], ["b"]]


async def broken(world: World, *received: str) -> list[list[str]]:
    """An application takes all that comes, receives these, and its stream breaks; the messages it took."""
    app, taken = await world.app(), []
    while batch := app.session.take().leases:
        taken.append(sorted(lease.timer.timer_id for lease in batch))
        app.held += batch
        for lease in batch:
            if lease.timer.timer_id in received:
                app.receive(lease)
        await world.advance(0.6)  # a suspect has had its time
    await app.leave(broken=True)
    return taken


async def test_a_stream_that_breaks_again(world: World) -> None:
    """A killer takes its neighbours down twice, and is alone from then on."""
    await world.put("killer", "near")
    both = ["killer", "near"]
    assert await broken(world, *both) == [both]
    assert await broken(world, *both) == [both]
    assert await attempts(world, *both) == [2, 2]
    assert await frames(await world.app()) == [["killer"], ["near"]]


async def test_a_killer_without_receipts_is_alone_as_well(world: World) -> None:
    """Receipts may be left out, and who dies may take his receipt along. Then claims are counted."""
    await world.put("killer", "near")
    both = ["killer", "near"]
    assert await broken(world) == [both]
    assert await broken(world) == [both]
    assert await attempts(world, *both) == [0, 0]
    assert await frames(await world.app()) == [["killer"], ["near"]]


async def test_what_was_not_sent_is_no_suspect(world: World) -> None:
    """However often the stream breaks before; and who is one stays one."""
    await world.put("a")
    for _ in range(2):
        await broken(world, "a")
    await world.put("b", "c")
    for _ in range(3):
        app = await world.app()
        await app.leave(broken=True)
    assert await frames(await world.app()) == [["a"], ["b", "c"]]


@pytest.mark.parametrize(("most", "seen"), [(2, [["a"], ["b"]]), (3, [["a", "b"]])])
async def test_the_last_attempt_goes_alone(world: World, most: int, seen: list[list[str]]) -> None:
    """Nobody's payload may take it from its neighbour."""
    world.tune(retry=RetryPolicy(max_attempts=most, initial=0.0))
    await world.put("a", "b")
    await broken(world, "a", "b")
    assert await frames(await world.app()) == seen


@pytest.mark.parametrize("end", ["nack", "orderly"])
async def test_what_clears_the_mark(world: World, end: str) -> None:
    """A NACK, and an orderly end of the stream on which a suspect was sent."""
    await world.put("a", "b")
    for _ in range(2):
        await broken(world, "a", "b")
    app = await world.app()
    suspect = app.one()
    if end == "nack":
        app.end(suspect, Verb.NACK, retry_after=0)
        await settle()
    await app.leave(broken=False)
    held = (await world.app()).session.leases.values()
    assert {lease.timer.timer_id: lease.timer.suspect for lease in held} == {"a": False, "b": True}
