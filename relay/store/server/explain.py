"""Why a server can't be reached or used, in words that say what to do."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.exceptions import AuthenticationError, NoPermissionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from relay.core.errors import StoreError
from relay.store.server.errors import NotMaster, translated_errors


@asynccontextmanager
async def explained() -> AsyncIterator[None]:
    """Failures to reach the server, as `StoreError`s whose words say what to do."""
    try:
        with translated_errors():
            yield
    except StoreError as failure:
        raise type(failure)(explain(failure)) from failure


def explain(failure: BaseException) -> str:
    """Why the server can't be reached or used, and what to do; what is unknown, in its own words."""
    chain: list[BaseException] = []
    link: BaseException | None = failure
    while link is not None:
        chain.append(link)
        link = link.__cause__ or link.__context__
    for kind, advice in _ADVICE:
        if any(isinstance(each, kind) for each in chain):
            return f"{advice} ({failure})"
    return str(failure)


# The first that fits stands.
_ADVICE: tuple[tuple[type[BaseException], str], ...] = (
    (NotMaster, "this is a replica: name the master in redis.url, or its Sentinels"),
    (AuthenticationError, "the user or the password is wrong, or missing: put them into redis.url"),
    (NoPermissionError, "the user may not even do this: give it what docs/how-to/redis.md lists"),
    (socket.gaierror, "the host's name is not known: look for a typing error in redis.url, or in DNS"),
    (ConnectionRefusedError, "nobody listens there: is the server running, and on this port?"),
    (FileNotFoundError, "there is no such socket: is the server running?"),
    (PermissionError, "this user may not open the socket"),
    (RedisTimeoutError, "no answer: is the server frozen, or a firewall between?"),
    (TimeoutError, "no answer: is the server frozen, or a firewall between?"),
)
