"""What rests, as sweeps tell it to forecasts: never twice, wherever a sweep is killed, and exact in the
end."""

from __future__ import annotations

import asyncio

import pytest

from relay.core.partitions import Layout
from relay.core.recurring.cold_counts import DAY
from relay.core.recurring.forecast import Forecast, Window
from relay.pipeline.cold import counting
from relay.pipeline.cold.counting import tell_what_rests
from relay.pipeline.cold.sweep import now
from relay.store.partitions.forecasts import RedisForecasts
from relay.store.server.server import Server
from tests.pipeline.cold_world import HOUR, OPTIONS, ColdWorld

pytestmark = pytest.mark.slow

WINDOW = Window(horizon=48 * HOUR, resolution=HOUR)
SOON, LATER = HOUR, 30 * HOUR


class Killed(Exception):
    """In the place of a SIGKILL."""


def forecast(world: ColdWorld) -> Forecast:
    async def read() -> Forecast:
        async with Server(world.server.url, connections=1, timeout=60.0) as server:
            return await RedisForecasts(server).read(Layout(world.topic), WINDOW)

    return asyncio.run(read())


def counted(world: ColdWorld) -> tuple[int, int]:
    """The timers that wait in Redis, and those that rest."""
    found = forecast(world)
    cold = found.cold
    rest = 0 if cold is None else cold.overdue + sum(cold.timers) + cold.later
    return found.overdue + sum(found.timers) + found.later, rest


def tell(world: ColdWorld, at: int | None = None) -> int:
    return tell_what_rests(world.cold, world.target, None, at or now(world.target))


def test_a_sweep_that_is_killed_again_and_again(world: ColdWorld) -> None:
    """At every step, also right before it counts again: what it has loaded is not counted as resting, and
    behind a run that was not killed every timer is counted once, where it is."""
    world.write([(f"soon{n}", SOON) for n in range(6)] + [(f"later{n}", LATER) for n in range(4)])
    assert tell(world) == 10
    assert counted(world) == (0, 10)

    for instant in ("stage", "load", "finalise"):

        def kill(name: str, instant: str = instant) -> None:
            if name == instant:
                raise Killed

        with pytest.raises(Killed):
            world.sweeper(OPTIONS, kill).run()
        waiting, rest = counted(world)
        assert (waiting, rest) == ((6, 4) if instant == "finalise" else (0, 10)), instant
    world.sweep()
    assert counted(world) == (6, 4)
    assert tell(world) == 4
    assert counted(world) == (6, 4)


def test_between_its_word_and_its_batches(world: ColdWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is counted twice: what it takes is missing for as long as it loads."""
    from relay.pipeline.cold import guarded_load

    world.write([("soon", SOON), ("later", LATER)])
    tell(world)
    seen = []
    load = guarded_load.load

    def watched(*args: object, **options: object) -> object:
        seen.append(counted(world))
        outcome = load(*args, **options)  # type: ignore[arg-type]
        seen.append(counted(world))
        return outcome

    monkeypatch.setattr(guarded_load, "load", watched)
    world.sweep()
    assert seen == [(0, 1), (1, 1)]


@pytest.mark.chaos
def test_rows_are_compared_when_they_have_changed(world: ColdWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaced and cancelled rows rest no more. What plans have taken is left out without a look at rows,
    until a day has passed."""
    looks: list[list[str]] = []
    count = counting._counted

    def watched(cold: object, state: object, topics: list[str], at: int) -> object:
        looks.append(topics)
        return count(cold, state, topics, at)  # type: ignore[arg-type]

    monkeypatch.setattr(counting, "_counted", watched)
    world.write([("a", LATER), ("b", LATER), ("c", SOON)])
    world.write([("a", LATER + HOUR)])
    world.cancel("b")
    assert (tell(world), looks.pop()) == (2, [world.topic])
    assert counted(world) == (0, 2)
    world.sweep()
    assert (tell(world), looks.pop()) == (1, [])
    assert counted(world) == (1, 1)
    assert (tell(world, now(world.target) + DAY), looks.pop()) == (1, [world.topic])
    world.cancel("a")
    assert (tell(world), looks.pop()) == (0, [world.topic])
    assert counted(world) == (1, 0)
