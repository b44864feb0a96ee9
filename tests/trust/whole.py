"""The daemon as it is put together, with a policy in the test's hand."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest

from relay import app, callers
from relay.api.access import Access
from relay.core.trust.access import AccessPolicy, AccessRule
from relay.core.trust.globs import Glob
from relay.core.trust.verbs import AccessVerb
from relay.settings import Settings
from tests.servers import RunningServer
from tests.worlds.waiting import PATIENCE


class Whole:
    """A daemon whose policy is in the test's hand: it lets anonymous callers do some verbs."""

    def __init__(self, access: Access, listening: app.Listening, topic: str) -> None:
        self.access, self.listening, self.topic = access, listening, topic

    def allow(self, *verbs: AccessVerb, topic: str = "*") -> None:
        rule = AccessRule("it", [Glob("anonymous")], [Glob(topic)], frozenset(verbs))
        self.access.use(AccessPolicy([rule]))

    def allow_each(self, needed: AccessVerb) -> Iterator[bool]:
        """Let callers do all but the verb, then the verb alone; yield whether it is allowed."""
        self.allow(*(set(AccessVerb) - {needed}))
        yield False
        self.allow(needed)
        yield True

    async def web(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        def call() -> tuple[int, Any]:
            connection = http.client.HTTPConnection(self.listening.api, timeout=PATIENCE)
            try:
                sends = method in ("POST", "PUT")
                content = json.dumps(body) if sends else None
                connection.request(
                    method, path, content, {"content-type": "application/json"} if sends else {}
                )
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())
            finally:
                connection.close()

        return await anyio.to_thread.run_sync(call)


@asynccontextmanager
async def whole(valkey: RunningServer, topic: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Whole]:
    access, anywhere = Access(), {"listen": "127.0.0.1:0"}
    monkeypatch.setattr(callers, "access_by", lambda *_: access)
    settings = Settings.model_validate(
        {
            "redis": {
                "url": valkey.url,
                "command_timeout": 60,
                "write_ttl": 60,
            },  # however busy the machine is
            "grpc": anywhere,
            "http": anywhere,
            "api": anywhere,
            "drain_timeout": 1,
            "topics": {topic: {}},
            "topics_closed": True,
        }
    )
    serving = anyio.Event()
    found: list[app.Listening] = []

    def started(listening: app.Listening) -> None:
        found.append(listening)
        serving.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app.serve, settings, started)
        with anyio.fail_after(PATIENCE):
            await serving.wait()
        yield Whole(access, found[0], topic)
        os.kill(os.getpid(), signal.SIGTERM)  # which the daemon waits for
