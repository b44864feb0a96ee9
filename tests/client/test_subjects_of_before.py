"""A relay that does not know of subjects passes `seal_with` over: the client does not take its OK for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from google.protobuf.message import Message

from relay.client import FailedPrecondition, NewTimer, SyncRelayClient
from relay.client.calls.channel import Method
from relay.client.testing import SyncInMemoryRelay

ECHO = "sealed_with_subject"
TOLD = "seal_with: the relay does not know it, and what it has stored is not sealed with the subject's key"


class Before:
    """The way to a relay whose answers have no such field."""

    def __init__(self, wire: Any) -> None:
        self._wire = wire

    def call(self, method: Method[Any, Any], request: Message, timeout: float) -> Message:
        answer = self._wire.call(method, request, timeout)
        results = getattr(answer, "results", ()) if method.name == "ScheduleBatch" else ()
        for each in (answer, *(result.scheduled for result in results if result.HasField("scheduled"))):
            if ECHO in each.DESCRIPTOR.fields_by_name:
                each.ClearField(ECHO)
        return answer  # type: ignore[no-any-return]

    def close(self) -> None:
        pass


def one_by_one(client: SyncRelayClient, who: Sequence[str]) -> list[Exception | None]:
    """Store timers in a call each, and a recurrence in the last one; return the error of each."""
    calls: list[Callable[[], Any]] = [
        lambda each=each: client.schedule("t", b"", delay=9, seal_with=each)  # type: ignore[misc]
        for each in who[:-1]
    ]
    calls.append(lambda: client.recur("r", topic="t", every=60.0, seal_with=who[-1]))
    return [failed(each) for each in calls]


def failed(call: Callable[[], Any]) -> Exception | None:
    try:
        call()
    except FailedPrecondition as failure:
        return failure
    return None


def together(client: SyncRelayClient, who: Sequence[str], **of_the_first: Any) -> list[Exception | None]:
    """Store timers by a batch; by columns, unless the first one has what has none."""
    new = [NewTimer(topic="t", payload=b"", delay=9, seal_with=each) for each in who[1:]]
    first = NewTimer(topic="t", payload=b"", delay=9, seal_with=who[0], **of_the_first)
    return [each.error for each in client.schedule_batch([first, *new])]


@pytest.mark.parametrize(
    "ask",
    [one_by_one, together, lambda client, who: together(client, who, expire_after=99)],
    ids=["one by one", "columns", "batch"],
)
def test_its_answer_is_an_error_for_those_that_name_a_subject(ask: Callable[..., list[Any]]) -> None:
    who = ["ann", "", "ben"]
    client = SyncRelayClient("127.0.0.1:1")
    with SyncInMemoryRelay(client), client:
        assert ask(client, who) == [None, None, None]
        client.double = Before(client.double)
        errors = ask(client, who)
    assert [error is not None for error in errors] == [True, False, True]
    assert all(str(error).startswith(f"FAILED_PRECONDITION: {TOLD}") for error in errors if error)
    assert not any("ann" in str(error) for error in errors)
