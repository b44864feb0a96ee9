"""How Hypothesis searches: the same interleavings each time in `make test-all`, others in `make chaos`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.chaos import CHAOS
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.rules import Break

if TYPE_CHECKING:
    from tests.servers import RunningServer

STEPS_PER_RUN = 50
COMMON = settings(
    stateful_step_count=STEPS_PER_RUN,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    print_blob=True,
)
SEARCH = settings(COMMON, derandomize=not CHAOS)
HUNT = settings(COMMON, max_examples=800, derandomize=True, phases=[Phase.generate])

M = TypeVar("M", bound=RuleBasedStateMachine)
B = TypeVar("B", bound=Bench)


def search(
    machine: Callable[[B, asyncio.Runner], type[M]],
    server: RunningServer,
    topic: str,
    options: settings,
    *breaks: Break,
    start: int | None = None,
    world: Callable[..., B] = Bench,  # type: ignore[assignment]
) -> type[M]:
    """Run a machine on a topic, with scripts that have these breaks; answer the machine.

    `start` seeds the search; without it the search begins where Hypothesis does. `world` makes what the
    machine is on of a server, a topic and the breaks.
    """
    with asyncio.Runner() as runner:

        async def opened() -> B:
            return world(server, topic, *breaks)

        bench = runner.run(opened())
        bound = machine(bench, runner)
        if start is not None:
            bound = seed(start)(bound)
        try:
            run_state_machine_as_test(bound, settings=options)
        finally:
            runner.run(bench.close())
        return bound
