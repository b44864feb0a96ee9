"""Where it listens, what it says of its health, and that it describes itself."""

from __future__ import annotations

import grp
import logging
import os
import socket
import stat
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from relay.core.errors import CannotListen
from relay.rpc import server as rpc
from relay.rpc.binding import Binding
from relay.settings import Settings
from relay.telemetry.metrics.catalogue import UNREADABLE
from relay.v1.timer_service_pb2 import ScheduleRequest
from tests.missing import skip
from tests.worlds.engine.served import LONG, Served, served
from tests.worlds.engine.stubs import spec

SERVICES = tuple(
    f"relay.v1.{name}" for name in ("TimerService", "DeliveryService", "TopicService", "RecurrenceService")
)


async def start(relay: Served, listen: str, group: str = "") -> rpc.RpcServer:
    return await rpc.start(
        relay.engine,
        binding=Binding(listen, 0o660, group),
        bounds=Settings().grpc.bounds,
        call_time=LONG,
        unreadable=partial(relay.counts.count, UNREADABLE),
    )


async def test_tells_its_health(relay: Served) -> None:
    """NOT_SERVING until told otherwise, for the server and each service; an unknown service is NOT_FOUND."""
    stub: Any = health_pb2_grpc.HealthStub(relay.channel)
    for healthy, status in ((None, "NOT_SERVING"), (True, "SERVING"), (False, "NOT_SERVING")):
        if healthy is not None:
            await relay.server.say_healthy(healthy)
        for service in ("", *SERVICES):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
            assert health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status) == status
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Check(health_pb2.HealthCheckRequest(service="no.such.Service"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_change_of_health_reaches_who_watches(relay: Served) -> None:
    """As load balancers do."""
    stub: Any = health_pb2_grpc.HealthStub(relay.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest())
    with anyio.fail_after(60):
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await relay.server.say_healthy(True)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()


async def test_describes_itself(relay: Served) -> None:
    """Reflection lists the services and gives their files, so that generic tools work."""
    channel: Any = relay.channel
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    listed = {service.name for service in (await call.read()).list_services_response.service}
    assert listed >= {*SERVICES, "grpc.health.v1.Health"}
    for symbol in SERVICES:
        await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol))
        assert (await call.read()).file_descriptor_response.file_descriptor_proto
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.OK


async def test_a_unix_socket_has_its_mode_and_goes_with_the_server(tmp_path: Path) -> None:
    """Group and owner, as set; no file is left behind."""
    path = tmp_path / "relay.sock"
    async with served(listen=f"unix:{path}") as relay:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        await relay.timers.Schedule(ScheduleRequest(timer=spec()))
    assert not path.exists()


async def test_a_unix_socket_has_its_group(relay: Served, tmp_path: Path) -> None:
    """By number or name; a group that this process can't give is a clear error, and leaves no socket."""
    path = tmp_path / "relay.sock"
    own = grp.getgrgid(os.getgid())
    for group in (str(own.gr_gid), own.gr_name):
        served_there = await start(relay, f"unix:{path}", group)
        assert path.stat().st_gid == own.gr_gid
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        await served_there.stop(0)
    with pytest.raises(CannotListen, match=r"grpc\.socket_group is 'no-such-group', and there is no such"):
        await start(relay, f"unix:{path}", "no-such-group")
    assert not path.exists()


async def test_a_socket_file_left_by_a_dead_relay_is_taken_over(tmp_path: Path) -> None:
    """SIGKILL leaves it there; the next one must start."""
    path = tmp_path / "relay.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    async with served(listen=f"unix:{path}") as relay:
        await relay.timers.Schedule(ScheduleRequest(timer=spec()))


async def test_a_socket_in_use_is_not_taken_over(relay: Served, tmp_path: Path) -> None:
    """Another relay listens there: a clear error, and the other one goes on."""
    path = tmp_path / "relay.sock"
    async with served(listen=f"unix:{path}") as other:
        with pytest.raises(CannotListen, match=f"unix:{path}"):
            await start(relay, f"unix:{path}")
        await other.timers.Schedule(ScheduleRequest(timer=spec()))


@pytest.mark.parametrize("where", ["no/such/directory.sock", "x" * 200])
async def test_a_socket_that_can_t_be_made_is_a_clear_error(
    relay: Served, tmp_path: Path, where: str
) -> None:
    """Also where a path is too long for a socket."""
    with pytest.raises(CannotListen, match=r"grpc\.listen: can't listen on unix:"):
        await start(relay, f"unix:{tmp_path / where}")


async def test_a_file_that_is_no_socket_is_left_alone(relay: Served, tmp_path: Path) -> None:
    """Somebody mistook the path."""
    path = tmp_path / "precious"
    path.write_text("keep me")
    with pytest.raises(CannotListen):
        await start(relay, f"unix:{path}")
    assert path.read_text() == "keep me"


async def test_a_taken_port_is_a_clear_error(relay: Served) -> None:
    """Two relays never share a port unawares."""
    with pytest.raises(CannotListen) as caught:
        await start(relay, relay.server.address)
    assert str(caught.value) == (
        f"grpc.listen: can't listen on {relay.server.address} for the gRPC API: another process "
        "listens there already; set another address there, or by RELAY_GRPC__LISTEN"
    )
    await relay.timers.Schedule(ScheduleRequest(timer=spec()))


async def test_listens_on_ipv6_too() -> None:
    """The address that it tells can be dialled."""
    if not socket.has_ipv6:
        skip("IPv6")
    async with served(listen="[::1]:0") as relay:
        assert relay.server.address.startswith("[::1]:")
        await relay.timers.Schedule(ScheduleRequest(timer=spec()))


@pytest.mark.usefixtures("relay")
def test_a_caller_that_goes_away_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Race: its connection breaks while the answer is written, and gRPC hears of the break second. What a
    service has raised is logged as before."""
    log = logging.getLogger("grpc._cython.cygrpc")
    log.error("ExecuteBatchError raised in core by servicer method [%s]", "/relay.v1.TimerService/Schedule")
    log.error(
        "Unexpected [%s] raised by servicer method [%s]", "ValueError", "/relay.v1.TimerService/Schedule"
    )
    assert [record.msg for record in caplog.records] == ["Unexpected [%s] raised by servicer method [%s]"]


async def test_lists_its_health(relay: Served) -> None:
    """Of all services: gRPC's own servicer answers UNIMPLEMENTED, and logs a stack trace for each call."""
    stub: Any = health_pb2_grpc.HealthStub(relay.channel)
    await relay.server.say_healthy(True)
    messages: Any = health_pb2
    answer = await stub.List(messages.HealthListRequest())
    assert {name: each.status for name, each in answer.statuses.items()} == dict.fromkeys(
        ("", *rpc.SERVICES), rpc.SERVING
    )
