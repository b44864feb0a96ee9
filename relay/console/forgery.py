"""What keeps pages of others from acting through somebody's browser.

A form is taken only from a page of this listener: the browser says so (`Sec-Fetch-Site`, or `Origin` where it
is old), and the form carries the token that lies in a cookie which no other page can read or send. See 0122.
"""

from __future__ import annotations

import hmac
import re
import secrets
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from relay.web.problems import Refused

TOKEN = "relay_console"
"""The cookie, and the field of forms, that hold the token."""

BEARER = "relay_bearer"
"""The cookie that holds the token by which somebody has signed in."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")

HEADERS = {  # see 0122
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with `no-referrer` browsers send `Origin: null` with forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""What every answer of the console carries."""


def token_of(request: Request) -> str:
    """The token of this browser, or a new one."""
    said = request.cookies.get(TOKEN, "")
    return said if _TOKEN.fullmatch(said) else secrets.token_urlsafe(32)


def keep(response: Response, name: str, value: str, *, secure: bool) -> None:
    """Let the browser keep a cookie until it is closed: for the console alone, out of reach of scripts and of
    pages of others."""
    response.set_cookie(name, value, path="/console", httponly=True, samesite="strict", secure=secure)


def check_form(request: Request, token: str) -> None:
    """Raises `Refused` unless a form comes from a page of this listener. `token` is that of the form."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        own = site == "same-origin"
    else:
        own = origin is not None and urlsplit(origin).netloc == request.headers.get("host", "")
    if not own:
        raise Refused(
            403,
            "other-page",
            "The form does not come from the console",
            "sec-fetch-site: is not same-origin; send the form from a page of the console",
        )
    kept = request.cookies.get(TOKEN, "")
    if not _TOKEN.fullmatch(kept) or not hmac.compare_digest(kept.encode(), token.encode()):
        raise Refused(
            403,
            "wrong-token",
            "The form is too old",
            f"{TOKEN}: is not the token of this browser; load the page again, and send its form",
        )
