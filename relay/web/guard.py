"""The checks that a request must pass before anything is done for it.

On loopback the API may ask for no credentials. But a browser on that machine runs the code of
any page, so two rules keep pages out. A page can send a body as `application/json` to another origin only
after the browser has asked for permission (CORS), which is never given: so every call that changes something
requires that content type. A page whose own host name was made to point here (DNS rebinding) still sends that
name as `Host`: so only names that can't belong to a stranger are accepted.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING

import anyio
from starlette.requests import Request

from relay.core.endpoints import addresses
from relay.core.errors import Unauthenticated
from relay.core.trust.principals import caller
from relay.web.connection import CERTIFICATE
from relay.web.problems import Refused

if TYPE_CHECKING:
    from relay.trust.identity import Identity  # with cryptography, which only some relays need

Admit = Callable[[Request], Awaitable[None]]
"""Called with each request before anything is done for it. It notes who calls, or raises
`Unauthenticated`."""

JSON = "application/json"
LOCAL = ("localhost", "localhost.")

TIMEOUT = "Relay-Timeout"
"""The header by which a caller says for how many seconds it waits for the answer."""

MOST_TIMEOUT = 86_400
"""The most seconds that it may say."""

SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)

BODY_TIMEOUT = 30.0
"""Seconds in which the body of a request must have come."""


def check_host(request: Request, allowed: Collection[str]) -> None:  # see 0048
    """Raises `Refused` unless the `Host` is loopback, the address that was called, or one of `allowed`."""
    host = _name(request.headers.get("host", ""))
    server = request.scope.get("server") or ("", None)
    if host in LOCAL or host in allowed or host == server[0] or _is_loopback(host):
        return
    raise Refused(
        403,
        "host-not-allowed",
        "The Host is not one of this relay's",
        f"host: {host!r} is neither loopback nor in api.allowed_hosts; call 127.0.0.1, or add it there",
    )


def _name(header: str) -> str:
    """Return the host of a `Host` header, without port and brackets, in lower case."""
    host = header.strip().lower()
    try:
        return addresses.split(host)[0]
    except ValueError:
        return host.removeprefix("[").removesuffix("]")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def admission(identity: Identity, refused: Callable[[], None]) -> Admit:
    """Make what notes the caller of each request; `refused` is called for each that proves nothing."""

    async def admit(request: Request) -> None:
        certificate = request.scope.get("state", {}).get(CERTIFICATE)
        try:
            caller.set(await identity.of(certificate, request.headers.getlist("authorization")))
        except Unauthenticated:
            refused()
            raise

    return admit


def check_content_type(request: Request) -> None:
    """Raises `Refused` unless the content type is JSON, in UTF-8."""
    kind, _, rest = request.headers.get("content-type", "").partition(";")
    charset = rest.strip().lower().removeprefix("charset=").strip('"')
    if kind.strip().lower() == JSON and charset in ("", "utf-8"):
        return
    raise Refused(
        415,
        "content-type",
        "The body must be JSON",
        f"content-type: send {JSON}, in UTF-8, even with an empty body",
        accept=JSON,
    )


def timeout(request: Request) -> float | None:
    """For how many seconds the caller waits for the answer; None if it does not say. Raises `Refused`."""
    said = request.headers.get(TIMEOUT)
    if said is None:
        return None
    if SECONDS.fullmatch(said) and 0 < float(said) <= MOST_TIMEOUT:
        return float(said)
    raise Refused(
        400,
        "bad-timeout",
        "The timeout is wrong",
        f"relay-timeout: {said!r} is not a number of seconds; give one, such as 1.5, up to {MOST_TIMEOUT}",
    )


async def body(request: Request, limit: int, came: Callable[[int], None]) -> bytes:
    """Read the whole body; `came` is called with the bytes of each part. Raises `Refused` if it is too large
    or too slow."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise _too_large(limit)
    content = bytearray()
    with anyio.move_on_after(BODY_TIMEOUT):
        async for part in request.stream():
            content += part
            came(len(part))
            if len(content) > limit:
                raise _too_large(limit)
        return bytes(content)
    raise Refused(408, "too-slow", "The body did not come", f"body: did not come within {BODY_TIMEOUT:g} s")


def _too_large(limit: int) -> Refused:
    return Refused(
        413,
        "body-too-large",
        "The body is too large",
        f"body: has more than {limit} bytes, which is api.max_body_bytes",
        connection="close",
    )
