"""The public keys of issuers of JWTs (RFC 7517), from a file or an https URL."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import anyio
import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from relay.core.errors import ServiceError
from relay.trust.files import BadFile, Report, WatchedFiles, read

MIN_PAUSE = 30.0
"""Seconds between two fetches, however many unknown keys callers name."""

MAX_AGE = 900.0
"""Seconds after which keys are fetched again, so that one which was taken back ends."""

FETCH_TIMEOUT = 5.0
"""Seconds for one fetch."""

MOST_BYTES = 1 << 20
MIN_RSA_BITS = 2048

ALGORITHMS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""The algorithms of each kind of key. None of them is symmetric: with a public key as its secret, anybody
could sign."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Key:
    """A public key, and the algorithms that a token may name with it."""

    public: Any
    algorithms: tuple[str, ...]


Keys = Mapping[str, Key]
"""Keys by their `kid`; "" is the only key of a set."""


def parse(content: bytes) -> Keys:
    """Read a JWKS, leaving out keys that sign nothing or can't be used. Raises `ValueError`."""
    try:
        entries = json.loads(content)["keys"]
        found = {str(entry.get("kid", "")): key for entry in entries if (key := _key(entry)) is not None}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError('is not a JWKS: it must be JSON with a list "keys"') from None
    if not found:
        raise ValueError("holds no key that can be used: RSA of 2048 bits or more, EC or Ed25519")
    return {**found, "": next(iter(found.values()))} if len(found) == 1 else found


def _key(entry: Mapping[str, Any]) -> Key | None:
    kind = str(entry.get("kty")), str(entry.get("crv", ""))
    if entry.get("use", "sig") != "sig":
        return None
    algorithms = ALGORITHMS.get(kind, ())
    if "alg" in entry:
        algorithms = tuple(each for each in algorithms if each == entry["alg"])
    if not algorithms:
        return None
    try:
        public = jwt.PyJWK({**entry, "alg": algorithms[0]}).key
    except jwt.PyJWTError:
        return None
    if isinstance(public, RSAPublicKey) and public.key_size < MIN_RSA_BITS:
        return None
    return Key(public, algorithms)


class KeySource(Protocol):
    """Where the keys of one issuer come from."""

    generation: int
    """It changes with the keys; 0 as long as there were none."""

    async def find(self, kid: str) -> Key | None:
        """The key of this name; None if the issuer has none."""
        ...


class FileKeys:
    """The keys of a file. Add its `source` to a `Watch`."""

    def __init__(self, setting: str, file: Path) -> None:
        self._setting, self._file = setting, file
        self._keys: Keys = {}
        self.generation = 0
        self.source = WatchedFiles(setting, (file,), self.load)

    def load(self) -> None:
        """Read the file. Raises `BadFile`."""
        try:
            self._keys = parse(read(self._setting, self._file))
        except ValueError as error:
            raise BadFile(self._setting, self._file, str(error)) from None
        self.generation += 1

    async def find(self, kid: str) -> Key | None:
        """See `KeySource`."""
        return self._keys.get(kid)


@dataclass(frozen=True, slots=True)
class KeysAddress:
    """An https URL of keys, by which CAs it proves itself ("" for the system's), and the file of the token
    that it wants to see ("" for none)."""

    url: str
    ca: str = ""
    token_file: str = field(default="", repr=False)


class UrlKeys:
    """The keys behind a URL, kept here: fetched at the start, every `MAX_AGE` seconds, and when a token names
    an unknown one. If a fetch fails, those that are known stay."""

    def __init__(self, setting: str, address: KeysAddress, report: Report) -> None:
        self._setting, self._address, self._report = setting, address, report
        self._keys: Keys = {}
        self._tried = -MIN_PAUSE
        self._lock = asyncio.Lock()
        self.generation = 0

    async def run(self) -> None:
        """Keep the keys up to date until cancelled."""
        while True:
            await self._refresh()
            await anyio.sleep(MAX_AGE if self._keys else MIN_PAUSE)

    async def find(self, kid: str) -> Key | None:
        """See `KeySource`."""
        if kid not in self._keys and time.monotonic() - self._tried >= MIN_PAUSE:
            await self._refresh()
        return self._keys.get(kid)

    async def _refresh(self) -> None:
        async with self._lock:
            if time.monotonic() - self._tried < MIN_PAUSE:
                return  # another caller has just done it
            self._tried = time.monotonic()
            where = {"setting": self._setting, "url": self._address.url}
            try:
                content = await anyio.to_thread.run_sync(
                    partial(fetch, self._address), abandon_on_cancel=True
                )
                keys = parse(content)
            except (OSError, ValueError, ServiceError, http.client.HTTPException) as error:
                reason = str(error)
                log.error(
                    "keys can't be fetched; those before stay in use", extra={**where, "reason": reason}
                )
                self._report(self._setting, False)
                return
            if keys.keys() != self._keys.keys():
                log.info("keys are in use", extra={**where, "kids": sorted(filter(None, keys))})
            self._keys = keys
            self.generation += 1
            self._report(self._setting, True)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: the keys are those of the address that the settings name."""


def fetch(address: KeysAddress) -> bytes:
    """Get the JWKS, blocking. Raises `OSError`, `ValueError` or `HTTPException`."""
    context = ssl.create_default_context(cafile=address.ca or None)
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())
    request = urllib.request.Request(address.url, headers={"accept": "application/json"})
    if address.token_file:
        token = Path(address.token_file).read_text(encoding="ascii").strip()
        request.add_unredirected_header("authorization", f"Bearer {token}")
    with opener.open(request, timeout=FETCH_TIMEOUT) as answer:
        content: bytes = answer.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"the answer has more than {MOST_BYTES} bytes")
    return content
