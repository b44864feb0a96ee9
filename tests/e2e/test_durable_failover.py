"""Sentinel takes the master away from callers for whom an OK means that a replica has it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import cast

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from tests.sentinels import Group
from tests.servers import RunningServer
from tests.worlds.relay.producer import Producer, code_of
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

TOPIC = "orders"
SETTINGS = {"RELAY_REDIS__COMMAND_TIMEOUT": "30", "RELAY_DEFAULTS__DURABILITY": "replicas:1"}
"""A replica of a busy machine may be slow, and this test may be slow to see that a call waits for one."""


@pytest.fixture
def group() -> Iterator[Group]:
    with Group() as group:
        yield group


def blocked(server: RunningServer) -> int:
    """How many connections wait in WAIT."""
    return int(server.control.info("clients")["blocked_clients"])


def reasons(error: grpc.RpcError) -> list[str]:
    """The reasons in a status's details."""
    raw = dict(cast("grpc.Call", error).trailing_metadata() or ())["grpc-status-details-bin"]
    infos = [error_details_pb2.ErrorInfo() for _ in status_pb2.Status.FromString(raw).details]
    for info, detail in zip(infos, status_pb2.Status.FromString(raw).details, strict=True):
        detail.Unpack(info)
    return [info.reason for info in infos if info.reason]


class Asking:
    """A Schedule in a thread of its own, which ends with an error or without."""

    def __init__(self, producer: Producer, timer_id: str) -> None:
        self.error: grpc.RpcError | None = None
        self._producer, self._timer_id = producer, timer_id
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        try:
            self._producer.schedule(TOPIC, self._timer_id, delay=3600)
        except grpc.RpcError as error:
            self.error = error

    def ended(self) -> grpc.RpcError | None:
        self._thread.join()
        return self.error


def test_oks_of_a_replica_survive_a_failover(stage: Stage, group: Group) -> None:
    """Each OK stands for a replica that has it, and that one takes over. A call that waits as its master dies
    is told that it may be lost; repeated, it is OK."""
    master, taking_over, frozen = group.servers
    relay = stage.relay(settings=SETTINGS, url=group.url)
    producer = stage.producer(relay)
    frozen.freeze()  # the OKs are by the other one alone
    names = [f"t{n}" for n in range(50)]
    for name in names:
        producer.schedule(TOPIC, name, delay=3600)
    taking_over.freeze()
    cut = Asking(producer, "cut")
    eventually(lambda: blocked(master) == 1, "it waits for a replica")
    master.kill()
    error = cut.ended()
    assert error is not None
    assert (code_of(error), reasons(error)) == (grpc.StatusCode.UNAVAILABLE, ["NOT_DURABLE"])
    taking_over.thaw()
    assert group.new_master(master) is taking_over
    frozen.thaw()

    def is_repeated() -> bool:
        try:
            producer.schedule(TOPIC, "cut", delay=3600)
        except grpc.RpcError as failure:
            if code_of(failure) not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION):
                raise
            return False
        return True

    eventually(is_repeated, "the new master has a replica again")
    with taking_over.client() as client:
        assert {name.decode() for name in client.zrange(f"timers_timeline:{TOPIC}", 0, -1)} == {*names, "cut"}
