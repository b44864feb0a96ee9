"""The JSON API of a served engine, called over a socket by the standard library's client."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

import anyio
import anyio.to_thread

from relay.api.call_time import CallTime
from relay.core.endpoints.listener_bounds import ConnectionBounds
from relay.settings import Settings
from relay.web.routes import JsonApi
from relay.web.server import HttpServer, serve_http, start_http
from tests.web.described import Reply, reply
from tests.worlds.engine.served import LONG, Served
from tests.worlds.waiting import PATIENCE

MAX_BODY = 64 * 1024
BOUNDS = Settings().api.bounds
OMITTED: Any = object()


@dataclass(eq=False)
class Api:
    """A served API. `measured` has what it told of each request: method, route, status."""

    relay: Served
    app: JsonApi
    server: HttpServer
    measured: list[tuple[str, str, int]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    """How many connections were refused, by reason."""

    async def call(
        self,
        method: str,
        path: str,
        body: Any = OMITTED,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """One request, whose answer is as the OpenAPI document says. `body` goes as JSON, `raw` as it is."""
        said = {"content-type": "application/json"} if method in ("POST", "PUT") else {}
        content = raw if body is OMITTED else json.dumps(body).encode()
        given = {name: text for name, text in {**said, **(headers or {})}.items() if text}
        return await anyio.to_thread.run_sync(self._call, method, path, content, given)

    def _call(self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> Reply:
        connection = http.client.HTTPConnection(self.server.address, timeout=PATIENCE)
        try:
            connection.request(method, path, content, dict(headers))
            answer = connection.getresponse()
            return reply(method, path, answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    async def schedule(self, topic: str = "t", **fields: Any) -> Reply:
        return await self.call("POST", f"/v1/topics/{quote(topic, safe='')}/timers", fields)

    async def get(self, timer_id: str, topic: str = "t") -> Any:
        found = await self.call("GET", f"/v1/topics/{topic}/timers/{quote(timer_id, safe='')}")
        return found.value["timer"] if found.status == 200 else found


serve = partial(serve_http, bounds=BOUNDS, count=lambda _: None)
"""`serve_http` for whom its bounds are no matter."""


@asynccontextmanager
async def with_api(
    relay: Served, *, bounds: ConnectionBounds | None = None, call_time: CallTime = LONG, **options: Any
) -> AsyncIterator[Api]:
    """Serve the API of an engine that is served."""
    measured: list[tuple[str, str, int]] = []
    refused: Counter[str] = Counter()
    app = JsonApi(
        relay.engine,
        lambda method, route, status, _: measured.append((method, route, status)),
        call_time,
        **{"max_body_bytes": MAX_BODY, **options},
    )
    async with anyio.create_task_group() as tasks:
        server = await start_http(
            tasks,
            app,
            "127.0.0.1:0",
            setting="api.listen",
            bounds=bounds or BOUNDS,
            count=lambda reason: refused.update((reason,)),
        )
        try:
            yield Api(relay, app, server, measured, refused)
        finally:
            await server.stop()
