"""The type of a topic's payloads, its version, and how payloads of older versions become values."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from relay.client import arguments
from relay.client.errors import InvalidArgument, UsageError
from relay.client.payloads.codecs import Unfit, codec_of, parse_object, write_object

Upcaster: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes a JSON object of one version one of the next."""

_T = TypeVar("_T")
VERSION_HEADER = "payload-version"
"""The header that names the version of a payload, a whole number. Without it the version is 1."""
MAX_VERSION = 1_000_000
_NUMBER = re.compile(r"[0-9]{1,9}")
_JSON = re.compile(r"\s*(?:[\w.-]+/(?:[\w.-]+\+)?json)\s*(?:;|$)", re.ASCII | re.IGNORECASE)


class Newer(Exception):
    """A payload of a version that this application does not know yet."""


class Schema(Generic[_T]):
    """A type, by the version of its payloads. Raises `InvalidArgument` for what can't be a payload."""

    def __init__(self, kind: type[_T], version: int = 1, *, field: str = "of") -> None:
        try:
            self._codec = codec_of(kind)
        except TypeError as error:
            raise InvalidArgument(f"{field} can't be read from a payload: {error}", field=field) from None
        arguments.check_count(version, "version", 1, MAX_VERSION)
        if version > 1 and not self._codec.is_json:
            raise InvalidArgument(
                f"version needs a type that is written as JSON, not {self.name}", field="version"
            )
        self.kind = kind
        self.version = version
        self._upcasters: dict[int, Upcaster] = {}

    @property
    def name(self) -> str:
        """The type's name."""
        return self._codec.name

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of a payload; empty where anything goes. Raises what the type's library
        raises for one that has none."""
        return self._codec.json_schema()

    def upcast(self, version: int, upcaster: Upcaster) -> None:
        """Note how a JSON object of `version` becomes one of the next. Raises `InvalidArgument`, or
        `UsageError` if that is known already."""
        arguments.check_count(version, "version", 1, max(1, self.version - 1))
        if self.version == 1:
            raise InvalidArgument(
                "version 1 is the newest here; raise the version of the topic first", field="version"
            )
        if inspect.iscoroutinefunction(upcaster):
            raise InvalidArgument("upcaster must be a plain function", field="upcaster")
        if version in self._upcasters:
            raise UsageError(f"version {version} has an upcaster already")
        self._upcasters[version] = upcaster

    def encode(self, value: _T, content_type: str = "") -> tuple[bytes, str, dict[str, str]]:
        """Return payload, content type and headers. Raises `InvalidArgument`, whose message names fields and
        never quotes the value."""
        if content_type and self._codec.is_json and not _JSON.match(content_type):
            raise InvalidArgument(f"content_type must be that of JSON for {self.name}", field="content_type")
        try:
            payload = self._codec.encode(value)
        except Unfit as error:
            words = str(error)
        else:
            headers = {VERSION_HEADER: str(self.version)} if self.version > 1 else {}
            return payload, content_type or self._codec.content_type, headers
        raise InvalidArgument(f"payload must be {self.name}: {words}", field="payload")

    def decode(self, payload: bytes, content_type: str, headers: Mapping[str, str]) -> _T:
        """Return the value. Raises `Unfit`, and `Newer` for a version that is not known yet. What an upcaster
        raises goes through."""
        if self._codec.is_json:
            if content_type and not _JSON.match(content_type):
                raise Unfit("its content type is not that of JSON")
            version = _version(headers)
            if version > self.version:
                raise Newer(f"{VERSION_HEADER} {version} is newer than {self.version}, which is known here")
            if version < self.version:
                payload = self._upcasted(payload, version)
        value: _T = self._codec.decode(payload)
        return value

    def _upcasted(self, payload: bytes, version: int) -> bytes:
        content = parse_object(payload)
        for older in range(version, self.version):
            upcaster = self._upcasters.get(older)
            if upcaster is None:
                raise Unfit(f"{VERSION_HEADER} {older} has no upcaster")
            content = upcaster(content)
            if not isinstance(content, dict):
                raise TypeError(
                    f"the upcaster of version {older} returned {type(content).__name__}, not a dict"
                )
        try:
            return write_object(content)
        except ValueError:  # such as NaN
            pass
        raise Unfit("an upcaster returned what can't be written")


def _version(headers: Mapping[str, str]) -> int:
    said = headers.get(VERSION_HEADER, "1")
    if not _NUMBER.fullmatch(said) or int(said) < 1:
        raise Unfit(f"{VERSION_HEADER} is not a whole number from 1 on")
    return int(said)
