"""The console as an ASGI application: it finds the caller and the page, and turns errors into pages."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from relay.api.call_time import CallTime
from relay.api.errors import INTERNAL, kind, retry_after
from relay.console import forgery, streaming
from relay.console.rendering import asset_version, assets, render
from relay.console.requests import Desk, Download, PageAnswer, PageCall, Shown
from relay.console.streaming import EventStream
from relay.console.views import ACTIONS, PAGES
from relay.core.errors import InvalidField, ServiceError, Unauthenticated
from relay.core.trust.principals import ANONYMOUS, caller
from relay.core.trust.usage import Bounds
from relay.web import guard
from relay.web.problems import Refused
from relay.web.routes import Measure

AT = "/console"
"""Where the console is."""

SIGN_IN, LIVE, ASSETS = f"{AT}/sign-in", f"{AT}/live", f"{AT}/assets/"

MOST_FORM = 64 * 1024
"""The bytes of a form."""

MOST_BEARER = 3_800
"""The characters of a token. Browsers drop a cookie of more than 4,096 bytes, and say nothing."""

FOR_A_YEAR = "private, max-age=31536000, immutable"

log = logging.getLogger(__name__)


class Console:
    """Answers all that lies under `/console`. The arguments are those of `JsonApi`."""

    def __init__(
        self,
        desk: Desk,
        measure: Measure,
        call_time: CallTime,
        *,
        allowed_hosts: Collection[str] = (),
        admit: guard.Admit | None = None,
        bounds_of_callers: Bounds | None = None,
    ) -> None:
        self._desk = desk
        self._measure = measure
        self._call_time = call_time
        self._allowed_hosts = allowed_hosts
        self._admit = admit
        self._bounds = bounds_of_callers or Bounds(time.monotonic)

    async def run(self) -> None:
        """Remember how topics stand, until cancelled."""
        await self._desk.trends.run()

    def end(self) -> None:
        """End what open pages listen to, since the relay stops."""
        self._desk.live.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(_with_bearer(scope), receive)
        began, status = time.perf_counter(), 0
        route = self._route(request)
        try:
            response = await self._answer(request, route)
            kept = (
                {"cache-control": response.headers["cache-control"]}
                if "cache-control" in response.headers
                else {}
            )
            response.headers.update({**forgery.HEADERS, **kept})
            status = response.status_code
            await response(scope, receive, send)
        except ClientDisconnect:
            pass
        finally:
            method = request.method if request.method in ("GET", "HEAD", "POST") else "_OTHER"
            self._measure(method, route, status, time.perf_counter() - began)

    def _route(self, request: Request) -> str:
        path = request.url.path.rstrip("/")
        if path.startswith(ASSETS):
            return f"{ASSETS}{{name}}"
        known = path in (SIGN_IN, LIVE) or path.removeprefix(AT) in PAGES or path.removeprefix(AT) in ACTIONS
        return path if known else ""

    async def _answer(self, request: Request, route: str) -> Response:
        try:
            guard.check_host(request, self._allowed_hosts)
            if route.startswith(ASSETS):  # the same for everybody
                return _asset(request.url.path.removeprefix(ASSETS), request.query_params.get("v", ""))
            if route == SIGN_IN:
                return await self._sign_in(request)
            if self._admit is not None:
                await self._admit(request)
            return await self._admitted(request, route)
        except Refused as refused:
            return self._problem(request, refused.status, refused.title, str(refused))
        except Unauthenticated as failure:
            if "hx-request" in request.headers:  # a part of a page, whose place a whole one does not fit
                return self._problem(request, 401, "You are not signed in", str(failure))
            return self._page(request, Shown("sign_in.html", {"reason": _reason(request, failure)}, 401))
        except ServiceError as failure:
            return self._failed(request, failure)
        except ClientDisconnect:
            raise
        except Exception:
            log.exception("a page failed")
            return self._failed(request, ServiceError())

    async def _admitted(self, request: Request, route: str) -> Response:
        if route == LIVE:
            return self._stream(request)
        usage = self._bounds.begin(delivers=False)
        try:
            response = await self._perform(request, route)
            if usage is not None:
                usage.moved(len(response.body))
            return response
        finally:
            if usage is not None:
                usage.end()

    async def _perform(self, request: Request, route: str) -> Response:
        began = time.monotonic()
        timeout = guard.timeout(request)
        path = route.removeprefix(AT)
        handlers = ACTIONS if request.method == "POST" else PAGES
        if not route:
            raise Refused(404, "no-such-path", "There is no such page", f"{AT} is where the console begins")
        if request.method not in ("GET", "HEAD", "POST") or path not in handlers:
            raise Refused(405, "method-not-allowed", "There is no such method here", "open the page itself")
        given = (
            await self._form(request) if request.method == "POST" else _pairs(request.scope["query_string"])
        )
        left = None if timeout is None else timeout - (time.monotonic() - began)
        with self._call_time.bound(left):
            answer = await handlers[path](self._desk, PageCall(given, caller.get().name))
        return self._page(request, answer)

    async def _form(self, request: Request) -> Mapping[str, str]:
        if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            detail = "content-type: send a form of the console"
            raise Refused(415, "content-type", "The body must be a form", detail)
        given = _pairs(await guard.body(request, MOST_FORM, lambda _: None))
        forgery.check_form(request, given.get(forgery.TOKEN, ""))
        return given

    async def _sign_in(self, request: Request) -> Response:
        """Take a token, and keep it in the browser if it is somebody's."""
        if request.method != "POST":
            return self._page(request, Shown("sign_in.html", {"reason": ""}))
        token = (await self._form(request)).get("bearer", "").strip()
        if len(token) > MOST_BEARER:
            reason = (
                f"The token has {len(token)} characters; a cookie takes {MOST_BEARER}. Use a shorter one."
            )
            return self._page(request, Shown("sign_in.html", {"reason": reason}, 422))
        if token and self._admit is not None:
            request.scope["headers"] = [
                *(each for each in request.scope["headers"] if each[0] != b"authorization"),
                (b"authorization", f"Bearer {token}".encode("latin-1", "replace")),
            ]
            await self._admit(Request(request.scope))
        response = RedirectResponse(AT, 303)
        forgery.keep(response, forgery.BEARER, token, secure=request.url.scheme == "https")
        return response

    def _stream(self, request: Request) -> Response:
        usage = self._bounds.open()
        return EventStream(
            streaming.events(self._desk, request.query_params, caller.get().name, usage), usage
        )

    def _page(self, request: Request, answer: PageAnswer) -> Response:
        if isinstance(answer, Download):
            headers = {"content-disposition": f'attachment; filename="{answer.name}"'}
            return Response(answer.content, 200, headers, "application/octet-stream")
        token = forgery.token_of(request)
        common = {
            "token": token,
            "principal": caller.get().name,
            "here": request.url.path.rstrip("/"),
            "signed_in": bool(request.cookies.get(forgery.BEARER)),
            "may_sign_in": self._admit is not None and caller.get() is ANONYMOUS,
        }
        content = render(answer.template, {**common, **answer.about})
        response = Response(content, answer.status, media_type="text/html; charset=utf-8")
        if request.cookies.get(forgery.TOKEN) != token:
            forgery.keep(response, forgery.TOKEN, token, secure=request.url.scheme == "https")
        return response

    def _failed(self, request: Request, failure: ServiceError) -> Response:
        what = kind(failure)
        if what is INTERNAL:
            log.error("a page failed", extra={"reason": str(failure)})
            return self._problem(request, what.status, what.title, "the relay's log says more")
        detail = f"{failure.field}: {failure.problem}" if isinstance(failure, InvalidField) else str(failure)
        response = self._problem(request, what.status, what.title, detail)
        if (pause := retry_after(failure)) is not None:
            response.headers["retry-after"] = str(max(round(pause), 1))
        return response

    def _problem(self, request: Request, status: int, title: str, detail: str) -> Response:
        template = "part_problem.html" if "hx-request" in request.headers else "problem.html"
        return self._page(
            request, Shown(template, {"status": status, "title": title, "detail": detail}, status)
        )


def _reason(request: Request, failure: Unauthenticated) -> str:
    """Why somebody is not known; nothing for who has not tried yet."""
    tried = request.method == "POST" or "authorization" in request.headers
    return str(failure) if tried else ""


def _with_bearer(scope: Scope) -> Scope:
    """Show a token by which somebody has signed in as if it came as a header, unless one did."""
    token = Request(scope).cookies.get(forgery.BEARER, "")
    if not token or any(name == b"authorization" for name, _ in scope["headers"]):
        return scope
    header = (b"authorization", f"Bearer {token}".encode("latin-1", "replace"))
    return {**scope, "headers": [*scope["headers"], header]}


def _pairs(raw: bytes) -> Mapping[str, str]:
    """The fields of a query or a form. Raises `InvalidField`."""
    try:
        return dict(parse_qsl(raw.decode(), keep_blank_values=True, errors="strict", max_num_fields=100))
    except ValueError:
        raise InvalidField(
            "query", "is not UTF-8, or has too many fields; give it as the console does"
        ) from None


def _asset(name: str, version: str) -> Response:
    """A file. While relays are upgraded behind one address, a page of a new one may ask an old one for it:
    then the browser must not keep it by that name."""
    asset = assets().get(name)
    if asset is None:
        raise Refused(404, "no-such-path", "There is no such file", "the console loads only its own")
    kept = {"cache-control": FOR_A_YEAR} if version == asset_version(name) else {}
    return Response(asset.content, 200, kept, asset.kind)


class Front:
    """Shares a listener between the console and the API in JSON, by the path."""

    def __init__(self, api: Any, console: Console) -> None:
        self._api = api
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        app = self._console if path == AT or path.startswith(f"{AT}/") else self._api
        await app(scope, receive, send)
