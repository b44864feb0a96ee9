"""Timers that several callers ask for, by way of two relays, while they are delivered."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from relay.client import ChangeResult, Delivery, OnConflict, RelayClient, ScheduledTimer
from relay.core.audit import Promise, PromiseVerdict
from tests.judge import report_of, told
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

SEED = 7
TOPIC = "meeting"


def proved(stage: Stage, *, at_rest: bool) -> None:
    """By the topic's journal."""
    _, report = report_of(stage.client, TOPIC, exclusive=True, at_rest=at_rest)
    verdicts = {each.promise: each.verdict for each in report.judgements}
    assert set(verdicts.values()) <= {PromiseVerdict.PROVED, PromiseVerdict.UNSAID}, told(report)
    assert verdicts[Promise.AT_LEAST_ONCE] is PromiseVerdict.PROVED


@pytest.mark.usefixtures("one_try")
async def test_the_earliest_of_many_stands(stage: Stage) -> None:
    """Whoever comes first, and by whichever relay: the answers tell of due times that only come nearer."""
    relays = [stage.relay("one"), stage.relay("other")]
    base = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    dues = [base + timedelta(seconds=n) for n in range(300)]
    random.Random(SEED).shuffle(dues)
    async with (
        RelayClient(relays[0].target, timeout=PATIENCE) as one,
        RelayClient(relays[1].target, timeout=PATIENCE) as other,
    ):

        async def ask(n: int) -> ScheduledTimer:
            return await (one, other)[n % 2].schedule(
                TOPIC,
                dues[n].isoformat().encode(),
                due_time=dues[n],
                timer_id="a",
                on_conflict=OnConflict.KEEP_EARLIEST,
            )

        answers = await asyncio.gather(*map(ask, range(len(dues))))
        stands = await one.get(TOPIC, "a")
    assert stands is not None
    assert (stands.due_time, stands.payload) == (base, base.isoformat().encode())
    assert all(answer.due_time <= due for answer, due in zip(answers, dues, strict=True))
    assert all(answer.due_time == due for answer, due in zip(answers, dues, strict=True) if answer.result)
    results = Counter(answer.result for answer in answers)
    assert results[ChangeResult.CREATED] == 1
    assert (
        results[ChangeResult.CREATED] + results[ChangeResult.REPLACED] + results[ChangeResult.UNCHANGED]
        == 300
    )
    proved(stage, at_rest=False)


@pytest.mark.usefixtures("one_try")
async def test_no_event_is_lost_in_a_storm(stage: Stage) -> None:
    """Calls that never pause don't keep a debounced timer from being delivered, since the first of each run
    has set a limit. What came last is delivered last, though handlers are at work when calls come."""
    relays = [stage.relay("one"), stage.relay("other")]
    clients = [RelayClient(relay.target, timeout=PATIENCE) for relay in relays]
    seen: list[bytes] = []

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.payload)
        await asyncio.sleep(0.02)  # of work, in which the next call comes

    for client in clients:
        client.on(TOPIC)(handle)

    async def call(client: RelayClient, payload: bytes) -> ScheduledTimer:
        return await client.schedule(TOPIC, payload, timer_id="a", debounce=0.2, at_most=0.5)

    async def calls(client: RelayClient, name: str) -> None:
        number = 0
        while len(seen) < 4:
            await call(client, f"{name} {number}".encode())
            number += 1

    async with clients[0], clients[1]:
        await asyncio.wait_for(
            asyncio.gather(*(calls(client, f"{n}") for n, client in enumerate(clients))), timeout=120
        )
        assert (await call(clients[0], b"last")).result
        await until(lambda: bool(seen) and seen[-1] == b"last", timeout=60.0)
    stage.wait_empty(TOPIC)
    proved(stage, at_rest=True)
