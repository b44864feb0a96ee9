"""The connection of Spark's workers goes wherever a relay's does, by every form of redis.url; to a Cluster in
test_blocking_cluster.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from relay.core.errors import StoreRefused, StoreUnavailable, UnfitServer
from relay.store.server import line as line_module
from relay.store.server.blocking import BlockingServer, PlainCall, is_refused
from relay.store.server.line import NAME, Line
from relay.store.verbs import timeline
from tests.missing import need
from tests.sentinels import MASTER, Sentinel, until_answered
from tests.servers import SYSTEM, start_server
from tests.store.test_tls import serving, tls_config
from tests.tls import Authority

if TYPE_CHECKING:
    from pathlib import Path

    from tests.keyspace import Keyspace
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


def test_no_script_takes_another_commands_reply(valkey: RunningServer, keyspace: Keyspace) -> None:
    """A reply that somebody left behind is not that of a script which is sent later."""
    with BlockingServer(valkey.url, timeout=60.0) as line:
        line.send(("ECHO", "one"))
        with pytest.raises(RuntimeError, match="1 replies are under way"):
            line.each([timeline.get(keyspace.topic(), "a")])


def cut_off(server: RunningServer) -> None:
    """The server closes the connections of workers."""
    with server.client() as raw:
        for client in cast("list[dict[str, str]]", raw.client_list()):
            if client["name"] == NAME:
                raw.client_kill_filter(_id=client["id"])


def test_a_line_that_was_closed_while_nobody_used_it(
    valkey: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As servers do with those that are idle, and as a node does that dies: the next call finds a new one."""
    monkeypatch.setattr(line_module, "IDLE", -1.0)
    with BlockingServer(valkey.url, timeout=60.0) as line:
        assert line.ask("PING") == b"PONG"
        cut_off(valkey)
        assert line.ask("PING") == b"PONG"
        cut_off(valkey)
        line.send(("PING",), ("PING",))
        assert line.receive(2) == [b"PONG"] * 2


def test_a_line_that_is_lost_with_replies_under_way(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Nothing takes the reply of another command for its own: everything is refused from then on."""
    with BlockingServer(valkey.url, timeout=60.0) as line:
        key = line.keys.key("dead", keyspace.topic())
        line.send(("BLPOP", key, 0), ("ECHO", "left behind"))
        cut_off(valkey)
        with pytest.raises(StoreUnavailable):
            line.receive(1)
        for use in (
            lambda: line.receive(1),
            lambda: line.ask("PING"),
            lambda: line.send(("PING",)),
            lambda: line.send_packed(b"*1\r\n$4\r\nPING\r\n", 1),
            lambda: line.each([timeline.get(keyspace.topic(), "a")]),
            lambda: line.now(),
        ):
            with pytest.raises(StoreUnavailable, match="lost before, with replies under way"):
                use()
        line.close()
        assert line.ask("PING") == b"PONG"


def test_a_line_that_is_lost_with_the_last_reply(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Then there is none to be mistaken, and the next call makes a new connection."""
    with BlockingServer(valkey.url, timeout=60.0) as line:
        line.send(("BLPOP", line.keys.key("dead", keyspace.topic()), 0))
        cut_off(valkey)
        with pytest.raises(StoreUnavailable):
            line.receive(1)
        assert line.ask("PING") == b"PONG"


def test_many_calls_of_an_unknown_script(
    valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go out at once again when the server knows it, and not one after the other."""
    topic = keyspace.topic()
    with BlockingServer(valkey.url, timeout=60.0) as line:
        valkey.client().script_flush()
        calls = [timeline.get(topic, str(n)) for n in range(200)]
        sent: list[int] = []
        send = Line.send

        def counted(self: Line, data: bytes, replies: int) -> None:
            sent.append(replies)
            send(self, data, replies)

        monkeypatch.setattr(Line, "send", counted)
        assert line.each(calls) == [[]] * 200
        assert [count for count in sent if count > 1] == [200, 199]
        assert len(sent) < 8


def test_a_script_whose_text_was_refused_is_told_again(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Race: a node refuses the first call, text and all. Another load tells it the script while two further
    batches are under way; the first of them must not come behind the second."""
    with BlockingServer(valkey.url, timeout=60.0) as line:
        made = PlainCall(line.prepare(timeline.get(keyspace.topic(), "a")))
        line.send_call(made)
        line.receive(1)
        (told,) = line._servers.lines
        assert told.told == {made.call.script.sha}
        valkey.client().script_flush()
        line.send_call(made)
        assert is_refused(line.receive(1)[0])
        line.send_call(made)
        assert line.receive(1) == [[]]


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
