"""How a connection to Redis is made from its URL, and what a start that fails may be due to."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from relay.core.endpoints.redis_url import Address, Login, RedisLocation, Tls, parse
from relay.core.errors import UnfitServer
from relay.store.server.durable.offer import Replicas
from relay.store.server.group_commit import GROUPS, DurableCalls
from relay.store.server.pool import Client, MasterPool
from relay.store.server.sentinel import SENTINEL_TIMEOUT, MasterConnection, MasterTlsConnection, Sentinels


class Kinds(NamedTuple):
    """redis-py's classes of connections, and ours through Sentinel."""

    tcp: type
    tls: type
    unix: type
    master: type
    master_tls: type
    sentinels: Callable[..., Any]
    retry: Callable[..., Any]


ASYNC = Kinds(
    TcpConnection,
    SSLConnection,
    UnixDomainSocketConnection,
    MasterConnection,
    MasterTlsConnection,
    Sentinels,
    Retry,
)


def options_of(where: RedisLocation, kinds: Kinds, *, timeout: float) -> dict[str, Any]:
    """redis-py's options of a connection to there, `connection_class` among them; it never retries by itself.

    Raises `UnfitServer` if a file that it names can't be used.
    """
    if where.tls is not None:
        _check_files(where.tls)
    return {
        "socket_timeout": timeout,
        "db": where.db,
        "protocol": 2,
        "retry": kinds.retry(NoBackoff(), 0),  # see 0013
        "encoding_errors": "surrogateescape",
        **_login(where.login),
        **_place(where, kinds, timeout),
    }


def open_client(
    url: str,
    *,
    connections: int,
    timeout: float,
    stepped_back: Callable[[], None] = lambda: None,
    replicas: Replicas | None = None,
    at: Address | None = None,
) -> Client:
    """A client with at most `connections` connections, and others for calls that are to be durable. It never
    retries by itself. Only `Server` holds one. `replicas` are those that were seen at any server of the URL.
    `at`: which node, if the URL names a Cluster.

    Raises `ValueError` for a text that is not a URL, `UnfitServer` if a file that it names can't be used.
    """
    options = options_of(parse(url), ASYNC, timeout=timeout)
    options |= {"timeout": timeout, "stepped_back": stepped_back} | _node(at)
    client = Client.from_pool(MasterPool(max_connections=connections, **options))  # which its aclose closes
    assert isinstance(client, Client)
    client.durable = DurableCalls(
        lambda look: MasterPool(max_connections=GROUPS, look=look, **options), replicas or Replicas()
    )
    if "sentinels" in options:
        options["sentinels"].moved = client.renew
    return client


def open_to_ask(url: str, at: Address) -> Redis:
    """A client for one question to a node of a Cluster, which may be a replica."""
    options = options_of(parse(url), ASYNC, timeout=SENTINEL_TIMEOUT)
    return Redis.from_pool(ConnectionPool(**options, **_node(at)))


def _node(at: Address | None) -> dict[str, Any]:
    return {"host": at[0], "port": at[1]} if at else {}


def _login(login: Login) -> dict[str, Any]:
    return {name: value for name, value in asdict(login).items() if value is not None}


def _place(where: RedisLocation, kinds: Kinds, timeout: float) -> dict[str, Any]:
    """redis-py's options that say which server it is, and how to get there."""
    if where.path:
        return {"connection_class": kinds.unix, "path": where.path}
    direct = kinds.tls if where.tls else kinds.tcp
    tcp = {"socket_connect_timeout": timeout, "socket_keepalive": True} | _tls(where.tls)
    if where.cluster:
        return {"connection_class": direct, **tcp}
    if not where.master:
        ((host, port),) = where.hosts
        return {"connection_class": direct, **tcp} | {"host": host, "port": port}
    to_sentinel = {
        "connection_class": direct,
        "protocol": 2,
        "retry": kinds.retry(NoBackoff(), 0),
        **_login(where.sentinel_login),
        **_tls(where.tls),
    }
    return {
        "connection_class": kinds.master_tls if where.tls else kinds.master,
        "sentinels": kinds.sentinels(where.hosts, where.master, to_sentinel),
        **tcp,
    }


def _tls(tls: Tls | None) -> dict[str, Any]:
    return {f"ssl_{name}": value for name, value in asdict(tls).items()} if tls else {}


def _check_files(tls: Tls) -> None:
    """Check now whether files can be used: later it would look as if Redis were away. Raises
    `UnfitServer`."""
    context = ssl.create_default_context()
    try:
        if tls.ca_certs:
            context.load_verify_locations(cafile=tls.ca_certs)
    except (OSError, ssl.SSLError) as failure:
        raise UnfitServer(
            f"redis.url: the file after ssl_ca_certs= can't be used: {_reason(failure)}"
        ) from None
    try:
        if tls.certfile:
            context.load_cert_chain(tls.certfile, tls.keyfile, password="")  # a prompt would hang the daemon
    except (OSError, ssl.SSLError) as failure:
        raise UnfitServer(
            f"redis.url: the files after ssl_certfile= and ssl_keyfile= can't be used: {_reason(failure)}"
        ) from None


def guess(url: str, trouble: str) -> str:
    """Guess why a start never got an answer, as the end of a sentence; empty if unknown.

    Servers close such connections without a word, or wait for more: only together with the URL does
    that mean something.
    """
    tls = parse(url).tls
    closed = re.search(r"reset|closed|lost|broken pipe|EOF", trouble, re.IGNORECASE)
    if closed and tls is None:
        return "; does the server speak TLS on this port? Then redis.url begins with rediss://"
    if closed and tls is not None and tls.certfile is None:
        return (
            "; does the server want a client certificate? Then name one in redis.url, with ssl_certfile "
            "and ssl_keyfile"
        )
    if closed and tls is not None:
        return "; does the server refuse the client certificate? It may trust another CA, or want a newer one"
    if tls is not None and re.search("Timeout connecting|no answer", trouble):
        return "; does the server speak TLS on this port? Otherwise redis.url begins with redis://"
    return ""


def _reason(failure: OSError) -> str:
    return failure.strerror or type(failure).__name__
