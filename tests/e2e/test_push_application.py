"""An application that is pushed to, as a process: its orderly end, and its death."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from relay.v1 import delivery_service_pb2 as delivery_pb
from relay.v1 import timer_handler_pb2 as pb
from relay.v1.timer_handler_pb2_grpc import TimerHandlerStub
from tests.worlds.relay.processes import CHANNEL, Process
from tests.worlds.waiting import eventually


class Pushed(Process):
    """The application, and a caller of it."""

    def __init__(self, directory: Path) -> None:
        self.target = f"unix:{directory}/push.sock"
        super().__init__(
            ["tests.e2e.push_application"], directory / "application.log", {"LISTEN": self.target}
        )
        self.channel = grpc.insecure_channel(self.target, options=CHANNEL)

    def push(self, timer_id: str, payload: bytes) -> Any:
        delivery = delivery_pb.Delivery(topic="t", timer_id=timer_id, payload=payload, attempt=1)
        call: Any = TimerHandlerStub(self.channel).Deliver.future(
            pb.TimerHandlerDeliverRequest(delivery=delivery), timeout=120, wait_for_ready=True
        )
        return call


@pytest.fixture
def application() -> Iterator[Pushed]:
    with tempfile.TemporaryDirectory(prefix="relay-push-") as directory:
        pushed = Pushed(Path(directory))
        pushed.spawn()
        try:
            assert pushed.push("first", b"ack").result().outcome == delivery_pb.OUTCOME_ACK
            yield pushed
        finally:
            pushed.kill()
            pushed.channel.close()


def test_sigterm_finishes_what_runs_and_takes_nothing_new(application: Pushed) -> None:
    """The call that runs is answered, a new one is not; the process exits with 0."""
    running = application.push("running", b"wait")
    eventually(lambda: "started running" in application.output(), "the handler runs")
    application.signal(signal.SIGTERM)
    eventually(lambda: refused(application), "new calls are refused")
    assert application.running
    assert not running.done()
    application.signal(signal.SIGUSR1)
    assert running.result().outcome == delivery_pb.OUTCOME_ACK
    assert application.wait() == 0
    assert "ended in order" in application.output()
    assert "Traceback" not in application.output()


def refused(application: Pushed) -> bool:
    """Whether a call fails without having reached a handler; no attempt may count for it."""
    delivery = delivery_pb.Delivery(topic="t", timer_id="late", payload=b"ack")
    call = TimerHandlerStub(application.channel).Deliver.future(
        pb.TimerHandlerDeliverRequest(delivery=delivery), timeout=60
    )
    try:
        call.result()
    except grpc.RpcError:
        assert "relay-receipt" not in dict(call.initial_metadata() or ())
        assert call.code() is grpc.StatusCode.UNIMPLEMENTED
        return True
    return False


def test_a_handler_that_kills_its_process_had_sent_the_receipt(application: Pushed) -> None:
    """So the relay can count the attempt of this call, and of no other that waited beside it."""
    call = application.push("deadly", b"die")
    with pytest.raises(grpc.RpcError):
        call.result()
    assert application.wait() == -signal.SIGKILL
    assert call.code() is grpc.StatusCode.UNAVAILABLE
    assert dict(call.initial_metadata())["relay-receipt"] == "1"
