"""The connection of Spark's workers goes wherever a relay's does, by every form of redis.url; to a Cluster in
test_blocking_cluster.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relay.core.errors import StoreRefused, StoreUnavailable, UnfitServer
from relay.store.server.blocking import BlockingServer
from tests.missing import need
from tests.sentinels import MASTER, Sentinel, until_answered
from tests.servers import SYSTEM, start_server
from tests.store.test_tls import serving, tls_config
from tests.tls import Authority

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import RunningServer


def ping(url: str) -> bool:
    with BlockingServer(url, timeout=60.0) as line:
        return bool(line.ask("PING") == b"PONG")


def test_replies_come_in_order(valkey: RunningServer) -> None:
    """Commands go ahead of their replies; what is refused stands among them; a bare id is an id."""
    with BlockingServer(valkey.url, timeout=60.0) as line:
        line.send(("ECHO", "one"), ("NONSENSE",), ("ECHO", "\udcff"))
        with pytest.raises(RuntimeError, match="3 replies are under way"):
            line.ask("PING")
        one, refusal, raw = line.receive(3)
        assert (one, raw) == (b"one", b"\xff")
        assert "unknown command" in str(refusal)
        with pytest.raises(StoreRefused, match="unknown command"):
            line.ask("NONSENSE")


def test_a_unix_socket_with_a_password(tmp_path: Path) -> None:
    """The user's name and password are the URL's."""
    path = tmp_path / "redis.sock"
    with start_server("valkey", config={"unixsocket": str(path), "requirepass": "p@ss"}):
        assert ping(f"unix://:p%40ss@{path}?db=3")
        with pytest.raises(StoreUnavailable):
            ping(f"unix://:wrong@{path}")


def test_tls(tmp_path: Path) -> None:
    """With the server's CA, and a client's certificate; a file that is none is told of at once."""
    need("openssl")
    need("redis-server")
    authority = Authority(tmp_path)
    pair, client = authority.issue("good"), authority.issue("client")
    with serving(authority, pair, clients="yes") as (_, port):
        url = f"rediss://127.0.0.1:{port}?ssl_ca_certs={authority.ca.certificate}"
        assert ping(f"{url}&ssl_certfile={client.certificate}&ssl_keyfile={client.key}")
        with pytest.raises(StoreUnavailable):
            ping(f"rediss://127.0.0.1:{port}")
    with pytest.raises(UnfitServer, match="ssl_ca_certs"):
        BlockingServer(f"rediss://127.0.0.1?ssl_ca_certs={tmp_path}/none", timeout=1.0)


def test_a_cluster_over_tls(tmp_path: Path) -> None:
    """The question where the slots are goes over TLS, and so do calls."""
    need("openssl")
    need("redis-server")
    authority = Authority(tmp_path)
    pair, client = authority.issue("good"), authority.issue("client")
    port, config = tls_config(authority, pair, clients="yes")
    config |= {"cluster-enabled": "yes", "tls-cluster": "yes"}  # so that it announces its TLS port
    with start_server(SYSTEM, config=config) as server:
        with server.client() as operator:
            operator.execute_command("CLUSTER", "ADDSLOTS", *range(16_384))
        url = f"rediss+cluster://127.0.0.1:{port}?ssl_ca_certs={authority.ca.certificate}"
        assert ping(f"{url}&ssl_certfile={client.certificate}&ssl_keyfile={client.key}")
        with pytest.raises(StoreUnavailable):
            ping(url)


@pytest.mark.slow
def test_sentinels(valkey: RunningServer) -> None:
    """The first that knows the master is believed; one that is away, or knows none, is passed over."""
    sentinel = Sentinel("valkey", valkey.port, {})
    try:
        with sentinel.client() as client:
            until_answered(client.ping, "the Sentinel answers")
        assert ping(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/{MASTER}/0")
        with pytest.raises(StoreUnavailable, match="knows no such master"):
            ping(f"redis+sentinel://127.0.0.1:{sentinel.port}/other")
    finally:
        sentinel.stop()


def test_a_replica_is_left(valkey: RunningServer) -> None:
    """What it answers may be old, and it takes nothing."""
    with (
        start_server("valkey", config={"replicaof": f"127.0.0.1 {valkey.port}"}) as replica,
        pytest.raises(StoreUnavailable, match="replica"),
    ):
        ping(replica.url)
