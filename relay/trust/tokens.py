"""Static tokens: random text that a caller sends, of which the relay keeps only the hash.

A token has 256 random bits, so nobody finds it from its SHA-256, and no slow hash is needed.
"""

from __future__ import annotations

import hmac
import re
import secrets
from hashlib import sha256
from pathlib import Path

from relay.core.trust.principals import Principal
from relay.trust.files import BadFile, WatchedFiles, read

SETTING = "authentication.tokens_file"
BEGINNING = "relay_"
"""How every token begins, so that people and scanners of secrets know it."""

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


def new() -> str:
    """Make a token."""
    return BEGINNING + secrets.token_urlsafe(32)


def line(name: str, token: str) -> str:
    """Return the line by which the file of tokens knows this one."""
    return f"{name} sha256:{sha256(token.encode()).hexdigest()}"


class Tokens:
    """The tokens of a file. A name may have several lines, so that a new token can come before the old one
    goes. Add its `source` to a `Watch`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: tuple[tuple[bytes, Principal], ...] = ()
        self.source = WatchedFiles(SETTING, (file,), self.load)

    def load(self) -> None:
        """Read the file. Raises `BadFile`, which quotes no line: it might be a token."""
        try:
            lines = read(SETTING, self._file).decode().splitlines()
        except UnicodeDecodeError:
            raise BadFile(SETTING, self._file, "is not UTF-8 text") from None
        known = []
        for number, text in enumerate(lines, 1):
            words = text.partition("#")[0].split()
            if not words:
                continue
            if len(words) != 2 or not NAME.fullmatch(words[0]) or not _HASH.fullmatch(words[1]):
                problem = f"line {number}: must be NAME sha256:HASH, as `relay token new NAME` prints it"
                raise BadFile(SETTING, self._file, problem)
            known.append((bytes.fromhex(words[1].removeprefix("sha256:")), Principal(f"token:{words[0]}")))
        self._known = tuple(known)

    def owner(self, token: str) -> Principal | None:
        """Whose token it is; None if nobody's. How long it takes does not depend on the token."""
        given, found = sha256(token.encode()).digest(), None
        for digest, principal in self._known:
            if hmac.compare_digest(digest, given):
                found = principal
        return found
