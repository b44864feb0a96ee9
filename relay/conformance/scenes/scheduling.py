"""Schedule, and when it is tried again. A scene raises `Broken` where its rule is broken."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn

import grpc
from google.protobuf import any_pb2, duration_pb2, timestamp_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped, unused-ignore]

from relay.conformance.observed import Broken
from relay.conformance.scene import scene
from relay.conformance.scripted import ScheduleTry, unanswered
from relay.conformance.stage import START_PATIENCE, Stage
from relay.conformance.stream import TOPIC
from relay.v1 import timer_pb2
from relay.v1 import timer_service_pb2 as timers

SECTION = "when-to-try-again"
PAUSE = 1.5
"""Seconds that a relay asks for by RetryInfo."""
PAUSED = PAUSE - 0.01
"""Seconds that count as that pause."""
RETRY_PATIENCE = 30.0
"""Seconds for a try and the next one."""
MOST_TRIES = 3
"""The most tries of a call that is refused for good: on a busy machine all but the last may pass their
deadline before the answer comes."""
TIMER_ID, DELAY_MS, PAYLOAD = "zwölf", 1500, "ein Käse"


@scene("scheduling", "Schedule carries topic, id, delay and payload as they were given, and a deadline.")
async def schedule(stage: Stage) -> None:
    stage.relay.answer = _stored
    (one,) = await _tries(stage, 1)
    spec = one.request.timer
    wanted = (TOPIC, TIMER_ID, DELAY_MS * 1000, PAYLOAD.encode())
    if not spec.HasField("delay"):
        raise Broken("delay: was asked for, and did not come")
    came = (spec.topic, spec.timer_id, spec.delay.ToMicroseconds(), spec.payload)
    names = ("topic", "timer_id", "delay (µs)", "payload")
    for name, asked, got in zip(names, wanted, came, strict=True):
        if asked != got:
            raise Broken(f"{name}: {asked!r} was asked for, and {got!r} came")
    if one.life is None:
        raise Broken("the call has no deadline")
    if code := await stage.ended():
        raise Broken(f"the answer was OK, and the exit code is {code}: {stage.client.last_words()}")


@scene(SECTION, "After UNAVAILABLE with RetryInfo the same call is made again, not before that pause.")
async def schedule_again(stage: Stage) -> None:
    tries = stage.relay.tries

    async def answer(one: ScheduleTry) -> timers.ScheduleResponse:
        if len(tries) <= 2 or (len(tries) == 3 and _undecided(tries)):
            await _away(one, PAUSE)
        return await _stored(one)

    stage.relay.answer = answer
    found = await _tries(stage, 3)
    if _undecided(found):
        found = await _come(stage, 4)
    for each in found:
        _same(found[0], each)
    pauses = _pauses(found)
    early = len(_early(found)) > 1
    pause = min(pauses) if early else max(pauses)
    if early or pause < PAUSED:
        raise Broken(f"it came after {pause:.2f} s, and RetryInfo says {PAUSE} s")
    if code := await stage.ended():
        raise Broken(f"the last answer was OK, and the exit code is {code}")


@scene(SECTION, "A try without an answer is open until its deadline: the next one waits for that.")
async def schedule_silent(stage: Stage) -> None:
    async def answer(one: ScheduleTry) -> timers.ScheduleResponse:
        if _silent(stage.relay.tries):
            await unanswered(one.context)
        return await _stored(one)

    stage.relay.answer = answer
    await _open_until_its_deadline(stage)


@scene(
    SECTION,
    "UNAVAILABLE without RetryInfo is not an answer: the next try waits for the deadline.",
)
async def schedule_lost(stage: Stage) -> None:
    async def answer(one: ScheduleTry) -> timers.ScheduleResponse:
        if _silent(stage.relay.tries):
            await one.context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        return await _stored(one)

    stage.relay.answer = answer
    await _open_until_its_deadline(stage)


@scene("scheduling", "INVALID_ARGUMENT is final: the call is not made again, and its caller hears of it.")
async def schedule_refused(stage: Stage) -> None:
    async def answer(one: ScheduleTry) -> timers.ScheduleResponse:
        await one.context.abort(
            grpc.StatusCode.INVALID_ARGUMENT, "topic: contains a brace; leave out { and }"
        )
        raise AssertionError

    stage.relay.answer = answer
    tries = stage.relay.tries
    await _tries(stage, 1)
    await stage.until(
        lambda: _made_again(tries) or stage.client.exit_code is not None,
        "the client ends",
        patience=max(stage.patience, RETRY_PATIENCE),
    )
    if _made_again(tries):
        raise Broken("the call was made again")
    if stage.client.exit_code == 0:
        raise Broken("the exit code is 0, as if the timer were stored")


async def _tries(stage: Stage, count: int) -> Sequence[ScheduleTry]:
    """Start the client, and return the first tries of its call."""
    await stage.schedule(TIMER_ID, DELAY_MS, PAYLOAD)
    tries = stage.relay.tries
    await stage.until(
        lambda: tries or stage.client.exit_code is not None, "Schedule is called", patience=START_PATIENCE
    )
    return await _come(stage, count)


async def _come(stage: Stage, count: int) -> Sequence[ScheduleTry]:
    """Return the first tries of the client's call, once `count` have come."""
    tries = stage.relay.tries
    await stage.until(
        lambda: len(tries) >= count or stage.client.exit_code is not None,
        "the call is made again",
        patience=max(stage.patience, RETRY_PATIENCE),
    )
    if len(tries) < count:
        raise Broken(f"the client ended after {len(tries)} tries: {stage.client.last_words()}")
    return tries[:count]


def _pauses(tries: Sequence[ScheduleTry]) -> list[float]:
    """The seconds between each try and the next one."""
    return [later.at - earlier.at for earlier, later in pairwise(tries)]


def _early(tries: Sequence[ScheduleTry]) -> list[float]:
    """Those pauses that are too short, though the client should have heard the answer before its deadline."""
    lives = (PAUSED if each.life is None else min(PAUSED, each.life / 2) for each in tries)
    return [pause for pause, life in zip(_pauses(tries), lives, strict=False) if pause < life]


def _undecided(tries: Sequence[ScheduleTry]) -> bool:
    """Whether the pauses between three tries leave it open if the client waits as it is asked to.

    A single one proves nothing: a client that stands still for a while seems to wait, and where the relay
    stands still, a client that meets its deadlines seems not to.
    """
    early = len(_early(tries))
    return early == 1 or (early == 0 and max(_pauses(tries)) < PAUSED)


def _made_again(tries: Sequence[ScheduleTry]) -> bool:
    """Whether a try came though the client has heard the answer to the one before it.

    A client may try again when a try has passed its deadline, since the answer may have come too late. Half
    of the deadline has to do: on a busy machine the relay reads late how much of it is left. So a client that
    waits for that long and gives up after a few tries is not found.
    """
    return len(tries) > MOST_TRIES or any(
        earlier.life is None or later.at - earlier.at < earlier.life / 2 for earlier, later in pairwise(tries)
    )


def _silent(tries: Sequence[ScheduleTry]) -> bool:
    """Whether the last of these tries gets no answer: the first one, and the second if it comes too soon.

    One is not enough: a relay that stands still for a while reads a try and the next one at once.
    """
    return len(tries) == 1 or (len(tries) == 2 and _too_soon(*tries))


def _too_soon(first: ScheduleTry, second: ScheduleTry) -> bool:
    """A quarter of the deadline has to do: the first try may have been under way on a busy machine."""
    return first.life is not None and second.at - first.at < first.life / 4


async def _open_until_its_deadline(stage: Stage) -> None:
    tries = await _tries(stage, 2)
    if _too_soon(*tries):
        tries = (await _come(stage, 3))[1:]
    first, second = tries
    _same(first, second)
    if first.life is None:
        raise Broken("the call has no deadline")
    if _too_soon(first, second):
        raise Broken(
            f"the next try came after {second.at - first.at:.2f} s, "
            f"and this one may act for {first.life:.2f} s"
        )
    if code := await stage.ended():
        raise Broken(f"the last answer was OK, and the exit code is {code}")


def _same(first: ScheduleTry, second: ScheduleTry) -> None:
    if first.request != second.request:
        raise Broken("a later try is not about the same timer")


async def _stored(one: ScheduleTry) -> timers.ScheduleResponse:
    spec = one.request.timer
    due = timestamp_pb2.Timestamp(seconds=4_102_444_800)
    timer = timer_pb2.Timer(
        topic=spec.topic,
        timer_id=spec.timer_id,
        due_time=due,
        state=timer_pb2.TIMER_STATE_PENDING,
        next_claim_time=due,
    )
    return timers.ScheduleResponse(timer=timer, result=timer_pb2.CHANGE_RESULT_CREATED)


async def _away(one: ScheduleTry, pause: float) -> NoReturn:
    """Answer as a relay whose Redis can't be reached."""
    text = "redis can't be reached"
    delay = duration_pb2.Duration()
    delay.FromMicroseconds(round(pause * 1e6))
    status = status_pb2.Status(code=grpc.StatusCode.UNAVAILABLE.value[0], message=text)
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    status.details.append(detail)
    trailers = (("grpc-status-details-bin", status.SerializeToString()),)
    await one.context.abort(grpc.StatusCode.UNAVAILABLE, text, trailers)
    raise AssertionError


SCENES = (schedule, schedule_again, schedule_silent, schedule_lost, schedule_refused)
