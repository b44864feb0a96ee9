"""TLS to a real server: what works, and what is said where it does not."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from relay import app
from relay.core.errors import ServiceError, StoreError, UnfitServer
from relay.settings import Settings
from relay.store.server.fitness import check_server
from relay.store.server.server import Server
from tests.missing import need
from tests.sentinels import MASTER, Sentinel, until_answered
from tests.servers import SYSTEM, RunningServer, free_port, start_server
from tests.tls import Authority, Pair


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("openssl")
    need("redis-server")
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def authority(files: Path) -> Authority:
    return Authority(files)


@pytest.fixture(scope="module")
def good(authority: Authority) -> Pair:
    return authority.issue("good", "IP:127.0.0.1,DNS:localhost")


def tls_config(authority: Authority, pair: Pair, *, clients: str = "no") -> tuple[int, dict[str, str]]:
    """A port and what a server, or a Sentinel, needs to speak TLS there."""
    port = free_port()
    return port, {
        "tls-port": str(port),
        "tls-cert-file": str(pair.certificate),
        "tls-key-file": str(pair.key),
        "tls-ca-cert-file": str(authority.ca.certificate),
        "tls-auth-clients": clients,
    }


@contextmanager
def serving(authority: Authority, pair: Pair, *, clients: str = "no") -> Iterator[tuple[RunningServer, int]]:
    """A server with both ports, the plain one for the test; and the TLS port."""
    port, config = tls_config(authority, pair, clients=clients)
    with start_server(SYSTEM, config=config) as server:
        yield server, port


async def start(url: str) -> str:
    """What the start of a relay asks of Redis: the server's name, or the words that it fails with."""
    said = "no answer"
    for seconds in (0.5, 5.0, 50.0):  # the first that is long enough for an answer
        if "no answer" in said:
            said = await start_within(seconds, url)
    return said


async def start_within(seconds: float, url: str) -> str:
    """The same with this start_timeout."""
    settings = Settings.model_validate({"redis": {"url": url, "start_timeout": seconds}})
    try:
        redis = Server(url, connections=1, timeout=60.0)
    except UnfitServer as failure:
        return str(failure)
    try:
        return await app.fit_server(settings, redis)
    except ServiceError as failure:
        return str(failure)
    finally:
        await redis.aclose()


async def test_tls(authority: Authority, good: Pair) -> None:
    """A server whose CA is named is fit; without its name it is when nothing is verified."""
    with serving(authority, good) as (_, port):
        for host, options in (
            ("127.0.0.1", f"ssl_ca_certs={authority.ca.certificate}"),
            ("localhost", f"ssl_ca_certs={authority.ca.certificate}&ssl_check_hostname=true"),
            ("127.0.0.1", "ssl_cert_reqs=none"),
        ):
            assert (await start(f"rediss://{host}:{port}/0?{options}")).startswith("Redis 7")


async def test_a_ca_that_is_not_known(authority: Authority, good: Pair, files: Path) -> None:
    """The start names the setting and the option."""
    other = Authority(files, "other").ca.certificate
    with serving(authority, good) as (_, port):
        for options in ("", f"?ssl_ca_certs={other}"):
            said = await start(f"rediss://127.0.0.1:{port}/0{options}")
            assert "no CA that is trusted here" in said
            assert "in redis.url, with ssl_ca_certs" in said


async def test_a_certificate_that_has_expired(authority: Authority) -> None:
    """The start says so."""
    with serving(authority, authority.issue("old", expired=True)) as (_, port):
        said = await start(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority.ca.certificate}")
        assert "the server's certificate has expired: renew it" in said


async def test_a_certificate_for_another_host(authority: Authority) -> None:
    """The start says so, unless names are not to be checked."""
    with serving(authority, authority.issue("elsewhere", "DNS:cache")) as (_, port):
        url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority.ca.certificate}"
        assert "is for another host: name in redis.url one that it lists" in await start(url)
        assert (await start(f"{url}&ssl_check_hostname=false")).startswith("Redis 7")


async def test_client_certificates(authority: Authority, good: Pair, files: Path) -> None:
    """A server that requires one takes ours; none, a stranger's or an old one is told apart."""
    stranger = Authority(files, "stranger").issue("stranger-client")
    old = authority.issue("old-client", expired=True)
    with serving(authority, good, clients="yes") as (_, port):
        url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority.ca.certificate}"
        said = await start(url)
        assert "client certificate" in said
        assert "in redis.url, with ssl_certfile and ssl_keyfile" in said
        assert (await start(with_client(url, good))).startswith("Redis 7")
        for pair, words in (
            (stranger, "the server does not trust the client certificate"),
            (old, "the client certificate that redis.url names has expired"),
        ):
            # The server says why and hangs up. Its last words are lost where we find the connection closed
            # while we write to it: then the start can only guess.
            with anyio.fail_after(60):
                while words not in (said := await start(with_client(url, pair))):
                    assert "does the server refuse the client certificate?" in said


def with_client(url: str, pair: Pair) -> str:
    """The URL with a client's certificate."""
    return f"{url}&ssl_certfile={pair.certificate}&ssl_keyfile={pair.key}"


async def test_the_wrong_port(authority: Authority, good: Pair) -> None:
    """TLS to a plain port, and the other way, are guessed."""
    with serving(authority, good) as (server, port):
        said = await start(f"redis://127.0.0.1:{port}/0")
        assert "does the server speak TLS on this port? Then redis.url begins with rediss://" in said
        said = await start_within(  # which may have no answer, and is guessed by that
            0.5, f"rediss://127.0.0.1:{server.port}/0?ssl_ca_certs={authority.ca.certificate}"
        )
        assert "speak TLS on this port" in said


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile"])
async def test_files_that_are_of_no_use(files: Path, option: str) -> None:
    """They are told of at once, by the option's name and without the path."""
    empty = files / "empty.pem"
    empty.write_text("")
    for path in (files / "missing.pem", empty):
        said = await start(f"rediss://127.0.0.1:1/0?{option}={path}")
        assert said.startswith("redis.url: the file")
        assert option in said
        assert "pem" not in said.replace("PEM", "")


async def test_sentinels_and_master_over_tls(authority: Authority, good: Pair) -> None:
    """`rediss+sentinel://` speaks TLS to both, and verifies both."""
    with serving(authority, good) as (_, master_port):
        port, config = tls_config(authority, good)
        sentinel = Sentinel(SYSTEM, master_port, {**config, "tls-replication": "yes"})
        try:
            with sentinel.client() as client:
                await anyio.to_thread.run_sync(until_answered, client.ping, "the Sentinel answers", 40.0)
            place = f"rediss+sentinel://127.0.0.1:{port}/{MASTER}/0"
            redis = Server(f"{place}?ssl_ca_certs={authority.ca.certificate}", connections=1, timeout=60.0)
            assert (await check_server(redis, allow_eviction=False)).startswith("Redis 7")
            await redis.aclose()
            said = await start(place)
            assert "no CA that is trusted here has signed the server's certificate" in said
        finally:
            sentinel.stop()


def test_a_refused_password_leaves_no_line_open(authority: Authority, good: Pair) -> None:
    """redis-py closes a line that failed without waiting, and one by TLS ends when the server says goodbye.
    Here it does not, and the loop ends first: the line is closed all the same."""
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.load_cert_chain(good.certificate, good.key)
    over = threading.Event()

    def refuse(listener: socket.socket) -> None:
        with serves.wrap_socket(listener.accept()[0], server_side=True) as line:
            assert b"AUTH" in line.recv(4096)
            line.sendall(b"-WRONGPASS invalid username-password pair\r\n")
            over.wait(60.0)

    async def ask(port: int) -> None:
        url = f"rediss://:wrong@127.0.0.1:{port}/0?ssl_ca_certs={authority.ca.certificate}"
        async with Server(url, connections=1, timeout=60.0) as server:
            with pytest.raises(StoreError, match="invalid username"):
                await server.info()

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:
        refused = thread.submit(refuse, listener)
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                asyncio.run(ask(listener.getsockname()[1]))
                gc.collect()
        finally:
            over.set()
        refused.result()
    assert [str(each.message) for each in told if each.category is ResourceWarning] == []
