"""The lines to the relay and to Redis: what a caller by HTTPS is answered, and what lies in the server."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, cast

from cryptography import x509
from redis import Redis

from relay.store.codec import sealed


class Https:
    """A caller of the API that sends a token, or nothing."""

    def __init__(self, address: str, ca: Path, token: str = "") -> None:
        self._address = address
        self._context = ssl.create_default_context(cafile=ca)
        self._token = token

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        """Make a request; returns the status and the answer."""
        return await asyncio.to_thread(self._call, method, path, body)

    def _call(self, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        headers = {"content-type": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"https://{self._address}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._context) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)


def serial_at(address: str) -> int:
    """The serial number of the certificate that a listener shows to a new caller."""
    host, _, port = address.rpartition(":")
    return x509.load_pem_x509_certificate(
        ssl.get_server_certificate((host, int(port))).encode()
    ).serial_number


class Server:
    """Redis, as whoever has broken into it sees it."""

    def __init__(self, url: str, topic: str) -> None:
        self._redis = Redis.from_url(url)
        self._payloads, self._dead = f"timers_payloads:{topic}", f"timers_dead:{topic}"
        self._redis.config_set("rdbcompression", "no")  # so that a search finds texts

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()

    def stored(self, timer_id: str) -> tuple[str, bytes]:
        """What lies there for a timer: the id of the key, and the sealed text or what is there instead."""
        found = cast("bytes | None", self._redis.hget(self._payloads, timer_id)) or b""
        key = sealed.key_of(found)
        return (key, sealed.body_of(found, key)) if key else ("no key", found)

    def by_key(self) -> Counter[str]:
        """How many timers are sealed with each key."""
        stored = cast("list[bytes]", self._redis.hvals(self._payloads))
        return Counter(sealed.key_of(each) or "no key" for each in stored)

    def dead(self) -> int:
        """How many dead letters there are."""
        return self._redis.xlen(self._dead)

    def finds(self, text: str) -> int:
        """How many keys hold a text anywhere."""
        dumps = [self._redis.dump(key) or b"" for key in self._redis.scan_iter()]
        return sum(text.encode() in each for each in dumps)
