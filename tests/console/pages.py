"""A browser without a window: asks for pages over a socket, keeps cookies, and sends forms."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape
from urllib.parse import urlencode

import anyio.to_thread

from tests.worlds.waiting import PATIENCE

FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class PageReply:
    """What came."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def token(self) -> str:
        """The token of the page's form."""
        found = re.search(r'name="relay_console" value="([^"]+)"', self.text)
        assert found, "the page has no form"
        return found[1]

    @property
    def words(self) -> str:
        """Its text without tags."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.text)).split())


@dataclass
class Pages:
    """Asks one listener."""

    address: str
    cookies: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str = "", **headers: str) -> PageReply:
        """A page of the console."""
        return await self.ask("GET", f"/console{path}", None, headers)

    async def send(self, path: str, fields: Mapping[str, str], **headers: str) -> PageReply:
        """A form, as a page of the console sends it."""
        said = {"content-type": FORM, "sec-fetch-site": "same-origin", **headers}
        return await self.ask("POST", f"/console{path}", urlencode(fields).encode(), said)

    async def act(self, path: str, **fields: str) -> PageReply:
        """Open the page that asks, and send its form with these fields."""
        asked = await self.get(f"{path}?{urlencode(fields)}")
        assert asked.status == 200, asked.words
        hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', asked.text))
        return await self.send(path, {**{name: unescape(text) for name, text in hidden.items()}, **fields})

    async def ask(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> PageReply:
        """Any request."""
        return await anyio.to_thread.run_sync(self._ask, method, path, content, dict(headers or {}))

    def _ask(self, method: str, path: str, content: bytes | None, headers: dict[str, str]) -> PageReply:
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        said = {name.replace("_", "-"): text for name, text in headers.items()}
        if self.cookies:
            said["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        try:
            connection.request(method, path, content, said)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
            for cookie in answer.headers.get_all("set-cookie") or ():
                name, _, value = cookie.partition(";")[0].partition("=")
                self.cookies[name] = value
            return PageReply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text)
        finally:
            connection.close()
