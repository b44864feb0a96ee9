"""The relay dials an application by TLS, and shows its certificate."""

from __future__ import annotations

from pathlib import Path

import anyio
import grpc
import pytest
from grpc_health.v1 import health, health_pb2_grpc

from relay.core.policy import TargetTls
from relay.rpc.application import Application
from relay.rpc.push import credentials
from relay.trust.files import BadFile
from tests.trust.authority import Authority
from tests.worlds.waiting import until


async def test_an_application_behind_tls_is_called(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, own = authority.issue("application"), authority.issue("relay")
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    ca = authority.certificate.read_bytes()
    proof = (pair.key.read_bytes(), pair.certificate.read_bytes())
    asking = grpc.ssl_server_credentials([proof], ca, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", asking)
    await server.start()
    tls = TargetTls(str(authority.certificate), str(own.certificate), str(own.key))
    made = Application(f"127.0.0.1:{port}", lambda _: None, credentials(tls))
    async with made as application, anyio.create_task_group() as tasks:
        tasks.start_soon(application.run)
        await until(lambda: application.ready)
        tasks.cancel_scope.cancel()
    await server.stop(0)


def test_a_file_that_is_not_there_names_its_setting(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"^delivery.tls.ca: .* can't be read"):
        credentials(TargetTls(ca=str(tmp_path / "gone")))
    assert credentials(TargetTls()) is None
