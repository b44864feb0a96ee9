"""The suite finds what it is for: a client that is well passes, and each scene can be failed."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from relay.conformance.judging import Grade, SceneVerdict, judge
from relay.conformance.observed import Observed
from relay.conformance.scene import Scene
from relay.conformance.scenes import SCENES, pushed
from relay.conformance.scripted import ScriptedRelay
from relay.conformance.under_test import MakeClient, process
from tests.conformance.raw_push import RawPush
from tests.docs import pages
from tests.docs.pages import ROOT

BY_NAME = {each.name: each for each in SCENES}
PUSH_SCENES = [each for each in SCENES if each.name.startswith("push-")]
STREAM_SCENES = [each for each in SCENES if each not in PUSH_SCENES]

FAULTS = {
    "places": ("opening", "max_outstanding: 100 came, and 7 was asked for"),
    "open-twice": ("opening", "Open was sent twice"),
    "receipt-first": ("opening", "the first message has to be Open, and is settle"),
    "empty": ("opening", "an empty message came"),
    "late-receipts": ("receipts", "not within .* s: the receipt of a comes"),
    "milliseconds": (
        "content",
        "due_time: '1767225605000001' was sent, and the handler got '1767225605000000'",
    ),
    "small-messages": (
        "large-message",
        "ended its side, or broke off, and neither|the client broke the stream off",
    ),
    "one-by-one": ("batches", "1000 messages came for 500 deliveries"),
    "starts-all": ("flood", "12 handlers ran at once, and max_outstanding is 4"),
    "columns-as-acks": ("columns", "b: OUTCOME_NACK was asked for, and OUTCOME_ACK came"),
    "nack-for-ack": ("ack", "a: OUTCOME_ACK was asked for, and OUTCOME_NACK came"),
    "seconds": ("nack", "paused: retry_after: 1500s came, and 1.5 s was asked for"),
    "quotes": ("error", "the reason quotes the payload"),
    "never-final": ("final-nack", "retryable: false was asked for, and did not come"),
    "no-reason": ("reject", "reason: '' came, and 'größer' was asked for"),
    "reschedule-is-ack": ("reschedule", "a: OUTCOME_RESCHEDULE was asked for, and OUTCOME_ACK came"),
    "extend-is-ack": ("extend", "an outcome came, and the handler still worked"),
    "dies-at-sigterm": ("stop", "ended its side, or broke off, before the outcome of held|the client broke"),
    "leaves-early": ("stop", "broke off, and did not wait|ended its side, or broke off|the client broke"),
    "starts-behind-drain": ("stop", "a handler started after Drain"),
    "hangs-up-at-drain": ("relay-drains", "ended its side, or broke off, before the outcome of held"),
    "first-token": ("redelivery", "a was settled twice"),
    "by-timer-id": ("late-outcome", "a was settled twice"),
    "leaves-at-a-problem": ("lease-lost", "."),
    "stubborn": ("refused", "it dialled again"),
    "old-tokens": (
        "broken-stream",
        "an outcome came with a token that belongs to no delivery",
    ),
    "dials-once": ("lost-connection", "the client ended by itself"),
    "no-pause": ("back-off", "7 tries came within"),
    "strict-fields": ("unknown-fields", "."),
    "strict-kinds": ("unknown-kinds", "."),
    "strict-reasons": ("unknown-reasons", "."),
    "acknowledges": ("older-relay", "Settle.acknowledged was used, and Opened did not say that it is read"),
    "delay-in-seconds": ("schedule", r"delay \(µs\): 1500000 was asked for, and 1000 came"),
    "retries-at-once": ("schedule-again", "it came after .* s, and RetryInfo says 1.5 s"),
    "gives-up-early": ("schedule-silent", "the next try came after .* s, and this one may act for"),
    "retries-all": ("schedule-refused", "the call was made again"),
    "retries-later": ("schedule-refused", "the call was made again"),
}
"""By the fault of the raw client: the scene that has to find it, and what it has to find."""

PUSH_FAULTS = {
    "never-serving": ("push-outcomes", "not within .* s: the health of its server as a whole says SERVING"),
    "ends-at-once": ("push-outcomes", r"the client ended by itself \(1; without .*\): its last words"),
    "answers-extend": ("push-outcomes", "ack: the outcome 4 came, which ends no pushed delivery"),
    "late-receipt": ("push-receipt", "not within .* s: the receipt of a comes"),
    "milliseconds": (
        "push-content",
        "due_time: '1767225605000001' was sent, and the handler got '17672256050000",
    ),
    "small-messages": ("push-content", "a: OUTCOME_ACK was asked for, and OUTCOME_NACK came"),
    "by-status": ("push-outcomes", "paused: retry_after: 0s came, and 1.5 s was asked for"),
    "quotes": ("push-outcomes", "the reason quotes the payload"),
    "no-reason": ("push-outcomes", "reason: '' came, and 'größer' was asked for"),
    "any-topic": ("push-unknown-topic", r"the call ended with OK \(\), and the client has no handler"),
    "receipt-first": ("push-unknown-topic", "a receipt came, which makes it an attempt"),
    "once": ("push-redelivery", r"the call ended with OK \(\), and the receipt of a had not come"),
    "does-no-work": ("push-deadline", r"the call ended with OK \(\), and its handler still worked"),
    "one-at-a-time": ("push-flood", "not within .* s: the receipt of a"),
    "dies-with-its-relay": ("push-connection", r"the client ended by itself \(1\)"),
    "leaves-at-once": ("push-stop", "the call ended with |held: OUTCOME_ACK was asked for"),
    "says-nothing": ("push-stop", "not within .* s: its health says NOT_SERVING"),
    "fails-late-calls": (
        "push-stop",
        r"a call that came behind SIGTERM cost an attempt: .* INTERNAL \(it stops",
    ),
    "receives-late-calls": ("push-stop", ".* SIGTERM cost an attempt: .* UNAVAILABLE"),
    "wrong-code": ("push-stop", "the exit code is 1: its last words"),
    "strict-fields": ("push-content", "the reason has to have 7 parts, and has 1"),
    "first-token": ("push-batch", "held was settled twice"),
    "all-at-the-end": ("push-batch", "not within .* s: the outcome of a0 comes"),
    "ends-early": ("push-batch", "ended the call of a batch with OK before the outcomes of its deliveries"),
    "batch-status": ("push-batch", r"the call ended with ABORTED \(done\)"),
    "unsaid-receipt": ("push-batch-receipts", "not within .* s: a receipt or an outcome of the batch comes"),
}
"""The same of the raw application that is pushed to."""


def judged(make: MakeClient, scenes: Sequence[Scene], patience: float) -> dict[str, SceneVerdict]:
    async def play() -> dict[str, SceneVerdict]:
        return {each.scene.name: each async for each in judge(make, scenes, patience)}

    return asyncio.run(play())


def raw(fault: str) -> MakeClient:
    return process((sys.executable, "-m", "tests.conformance.raw_client", fault))


def raw_push(fault: str) -> MakeClient:
    return partial(RawPush, fault)


def waits_less_in_vain(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a scene wait for 3 s where that is in vain, as `found` says; for all else that it waits for it has
    its patience, or a slow machine would be found instead of the fault."""
    until = Observed.until

    async def less(
        stage: Observed, ask: Callable[[], Any], what: str, *, patience: float | None = None
    ) -> Any:
        in_vain = re.match(found, f"not within 3 s: {what}") if found.startswith("not within") else None
        return await until(stage, ask, what, patience=3.0 if in_vain else patience)

    monkeypatch.setattr(Observed, "until", less)


@pytest.fixture(autouse=True)
def _root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def faults(verdicts: dict[str, SceneVerdict]) -> dict[str, str]:
    return {name: each.found for name, each in verdicts.items() if each.grade is Grade.FAILED}


def left_out(verdicts: dict[str, SceneVerdict]) -> list[str]:
    return [name for name, each in verdicts.items() if each.grade is Grade.LEFT_OUT]


@pytest.mark.slow
def test_a_raw_client_without_a_fault_passes() -> None:
    """So what the other tests find is the fault. It has no columns, and no push."""
    verdicts = judged(raw("honest"), [*STREAM_SCENES, BY_NAME["push-outcomes"]], 60.0)
    assert faults(verdicts) == {}
    assert left_out(verdicts) == ["columns", "push-outcomes"]


def test_a_raw_application_that_is_pushed_to_without_a_fault_passes() -> None:
    verdicts = judged(raw_push("nothing"), PUSH_SCENES, 60.0)
    assert {each.grade for each in verdicts.values()} == {Grade.PASSED}, faults(verdicts)


def test_health_and_batches_of_push_are_left_to_the_application() -> None:
    (verdict,) = judged(raw_push("no-health"), [BY_NAME["push-stop"]], 60.0).values()
    assert verdict.grade is Grade.PASSED, verdict.found
    scenes = [
        BY_NAME[name] for name in ("push-unknown-topic", "push-stop", "push-batch", "push-batch-receipts")
    ]
    verdicts = judged(raw_push("no-batch"), scenes, 60.0)
    assert faults(verdicts) == {}
    assert left_out(verdicts) == ["push-batch", "push-batch-receipts"]


def test_an_application_without_push_says_so() -> None:
    verdicts = judged(raw_push("no-push"), PUSH_SCENES, 60.0)
    assert {each.grade for each in verdicts.values()} == {Grade.LEFT_OUT}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the scene whose rule it breaks, in words that say what was wrong."""
    name, found = FAULTS[fault]
    waits_less_in_vain(found, monkeypatch)
    (verdict,) = judged(raw(fault), [BY_NAME[name]], 60.0).values()
    assert verdict.grade is Grade.FAILED
    assert re.match(found, verdict.found), verdict.found


@pytest.mark.slow
@pytest.mark.parametrize("fault", PUSH_FAULTS)
def test_a_fault_of_push_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, found = PUSH_FAULTS[fault]
    waits_less_in_vain(found, monkeypatch)
    if fault == "does-no-work":  # its answer comes at once, and no deadline is to come before it
        monkeypatch.setattr(pushed, "DEADLINE", 60.0)
    (verdict,) = judged(raw_push(fault), [BY_NAME[name]], 60.0).values()
    assert verdict.grade is Grade.FAILED
    assert re.match(found, verdict.found), verdict.found


def test_a_client_that_ends_without_a_call_passes_no_scene() -> None:
    """Not even those that wait for its end."""
    verdicts = judged(process((sys.executable, "-c", "raise SystemExit(1)")), SCENES, 60.0)
    assert {each.grade for each in verdicts.values()} == {Grade.FAILED}


def test_each_scene_can_be_failed() -> None:
    covered = {name for name, _ in [*FAULTS.values(), *PUSH_FAULTS.values()]}
    # `schedule-lost` by `retries-at-once`, too: see below
    assert covered | {"schedule-lost"} == BY_NAME.keys()


def test_a_lost_answer_is_not_repeated_at_once() -> None:
    (verdict,) = judged(raw("retries-at-once"), [BY_NAME["schedule-lost"]], 60.0).values()
    assert verdict.grade is Grade.FAILED
    assert "the next try came after" in verdict.found


def test_a_refusal_that_comes_too_late_is_no_fault_of_the_client() -> None:
    """On a busy machine it may come after the deadline of its try: then the client rightly tries again."""
    (verdict,) = judged(raw("hears-late"), [BY_NAME["schedule-refused"]], 60.0).values()
    assert verdict.grade is Grade.PASSED, verdict.found


def test_each_rule_is_stated_where_its_scene_says() -> None:
    anchors = pages.anchors("docs/reference/protocol.md")
    assert {each.section for each in SCENES} <= set(anchors)


async def test_a_relay_that_is_stopped_keeps_its_port() -> None:
    """Others can't take it meanwhile, and a client that dials is refused."""
    relay = ScriptedRelay(Observed(1.0))
    await relay.start()
    await relay.stop()
    host, _, port = relay.target.partition(":")
    with socket.socket() as other, socket.socket() as client:
        with pytest.raises(OSError, match="in use"):
            other.bind((host, int(port)))
        with pytest.raises(ConnectionRefusedError):
            client.connect((host, int(port)))
    await relay.start()
    with socket.create_connection((host, int(port)), timeout=60):
        pass
    await relay.close()
