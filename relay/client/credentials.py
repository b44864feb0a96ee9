"""By what a client knows its relay, and by what it proves who it is."""

from __future__ import annotations

import ipaddress
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc

from relay.client.errors import InvalidArgument

SYSTEM = "system"
"""In the place of a file of CAs: those of gRPC itself."""

VARIABLES = {
    "ca": "RELAY_CA",
    "certificate": "RELAY_CERTIFICATE",
    "key": "RELAY_KEY",
    "token_file": "RELAY_TOKEN_FILE",
    "server_name": "RELAY_SERVER_NAME",
}

LOOK_INTERVAL = 1.0
"""Seconds between two looks whether the file of the token has changed."""

_LOCAL = ("localhost", "localhost.")


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client shows its relay. All of it is optional.

    With `ca` the client speaks TLS: it is the file of the CAs that the relay's certificate must come from, or
    `system`. `certificate` and `key` are the files of the client's own. `token_file` holds a static token or
    a JWT and is read again when it changes; `token` is such a text itself, which is never shown.
    `server_name` is the name in the relay's certificate where the target has another. All files are PEM.

    >>> client = RelayClient("relay.shop:7451", credentials=Credentials(ca="ca.crt", token_file="/run/token"))
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    token_file: str = ""
    token: str = field(default="", repr=False)
    server_name: str = ""

    @classmethod
    def from_environment(cls) -> Self:
        """What the variables `RELAY_CA`, `RELAY_CERTIFICATE`, `RELAY_KEY`, `RELAY_TOKEN_FILE` and
        `RELAY_SERVER_NAME` say."""
        return cls(**{name: os.environ.get(variable, "") for name, variable in VARIABLES.items()})

    def check(self, target: str) -> Self:
        """Raises `InvalidArgument` for what does not fit together, and for a token that would go over the
        network in the clear."""
        for name, other in (("certificate", "key"), ("key", "certificate"), ("certificate", "ca")):
            if getattr(self, name) and not getattr(self, other):
                raise InvalidArgument(f"{other} must be given, since {name} is", field=other)
        if self.token and self.token_file:
            raise InvalidArgument("token: give it or token_file, not both", field="token")
        if (self.token or self.token_file) and not self.ca and not _is_local(target):
            problem = f"ca must be given: a token for {target} would go over the network in the clear"
            raise InvalidArgument(f"{problem}; {SYSTEM!r} takes the CAs of the system", field="ca")
        return self

    def options(self) -> list[tuple[str, Any]]:
        """The options of a channel."""
        return [("grpc.ssl_target_name_override", self.server_name)] if self.server_name else []

    def for_channel(self) -> grpc.ChannelCredentials | None:
        """What a channel is made with; None for one in the clear. Raises `InvalidArgument` for a file that
        can't be read."""
        if not self.ca:
            return None
        made: grpc.ChannelCredentials = grpc.ssl_channel_credentials(
            root_certificates=None if self.ca == SYSTEM else _read("ca", self.ca),
            private_key=_read("key", self.key) if self.key else None,
            certificate_chain=_read("certificate", self.certificate) if self.certificate else None,
        )
        return made


class Bearer:
    """The token of a client as metadata of its calls. Any number of threads may use it at once."""

    def __init__(self, credentials: Credentials) -> None:
        self._file = credentials.token_file
        self._metadata = _metadata(credentials.token)
        self._stamp: tuple[int, int, int] | None = None
        self._looked = float("-inf")
        self._lock = threading.Lock()

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata for a call that is made now. Raises `InvalidArgument` if the file has never
        been readable; one that is being replaced leaves the token before."""
        if self._file and time.monotonic() - self._looked >= LOOK_INTERVAL:
            with self._lock:
                self._look()
        return self._metadata

    def _look(self) -> None:
        try:
            stat = Path(self._file).stat()
            stamp = stat.st_ino, stat.st_size, stat.st_mtime_ns
            if stamp != self._stamp:
                token = _read("token_file", self._file).decode("ascii").strip()
                if not token:
                    raise InvalidArgument(f"token_file {self._file} is empty", field="token_file")
                self._metadata, self._stamp = _metadata(token), stamp
        except (OSError, UnicodeDecodeError, InvalidArgument) as error:
            if self._metadata:
                return
            if isinstance(error, InvalidArgument):
                raise
            reason = getattr(error, "strerror", None) or "it is not a token"
            problem = f"token_file {self._file} can't be read: {reason}"
            raise InvalidArgument(problem, field="token_file") from None
        self._looked = time.monotonic()


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),) if token else ()


def _read(name: str, file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{name} {file} can't be read: {error.strerror or error}", field=name) from None


def _is_local(target: str) -> bool:
    """Whether the target is on this machine, without a name lookup."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    host = target.removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")[0].strip("[]")
    try:
        return host.lower() in _LOCAL or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
