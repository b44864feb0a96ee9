"""How values of a type are written as payloads, and read from them.

Types belong to a library: structs to msgspec; models, dataclasses, TypedDicts and what is made of them to
pydantic, which also checks them. `dict`, `str` and `bytes` need none. A library is imported when a type
needs it, and not before.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import ValidationError

_T = TypeVar("_T")
_MOST_FIELDS = 5
"""Fields that a reason names; the others of the same payload are counted."""
_AT = re.compile(r" - at `(?:key in )?\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `(?P<name>[^`]*)`")
_EXPECTED = re.compile(r"^Expected `[^`]*`(?:, got `[^`]*`)?")


class Unfit(ValueError):
    """A value or a payload that does not fit the type. The message names fields and never quotes values."""


class Codec(Generic[_T]):
    """Writes and reads the values of one type. Both raise `Unfit`."""

    content_type = "application/json"
    """The media type of what is written; empty if it is the application's affair."""
    is_json = True
    """Whether payloads are JSON."""

    def __init__(self, kind: Any) -> None:
        self.name: str = getattr(kind, "__name__", None) or str(kind)
        """The type as messages name it."""
        is_class = isinstance(kind, type) and not hasattr(kind, "__required_keys__")  # as TypedDicts have
        self._class = kind if is_class else object

    def encode(self, value: _T) -> bytes:
        """Return the payload. A value that `decode` would refuse is refused here."""
        if not isinstance(value, self._class):
            raise Unfit(f"it has the type {type(value).__name__}")
        try:
            payload = self._write(value)
        except (TypeError, ValueError, RecursionError):
            payload = None  # their words may quote the value
        if payload is None:
            raise Unfit("it holds what can't be written")
        self.decode(payload)  # dataclasses and structs aren't checked as they are made
        return payload

    def decode(self, payload: bytes) -> _T:
        """Return the value."""
        raise NotImplementedError

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of a payload; empty where anything goes. Raises what the library raises."""
        return {}

    def _write(self, value: _T) -> bytes:
        """Return the payload. Raises what the library raises."""
        raise NotImplementedError


class _AsIs(Codec[bytes]):
    content_type = ""
    is_json = False

    def decode(self, payload: bytes) -> bytes:
        return payload

    def _write(self, value: bytes) -> bytes:
        return value


class _Text(Codec[str]):
    content_type = "text/plain; charset=utf-8"
    is_json = False

    def decode(self, payload: bytes) -> str:
        try:
            return payload.decode()
        except UnicodeDecodeError:
            pass
        raise Unfit("it is not UTF-8")

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string"}

    def _write(self, value: str) -> bytes:
        return value.encode()


class _Dict(Codec[dict[str, Any]]):
    def decode(self, payload: bytes) -> dict[str, Any]:
        return parse_object(payload)

    def json_schema(self) -> dict[str, Any]:
        return {"type": "object"}

    def _write(self, value: dict[str, Any]) -> bytes:
        return write_object(value)


class _Struct(Codec[_T]):
    def __init__(self, kind: Any) -> None:
        super().__init__(kind)
        import msgspec

        self._errors = msgspec.ValidationError, msgspec.DecodeError
        self._decoder = msgspec.json.Decoder(kind)
        self._encode = msgspec.json.encode
        self._kind = kind

    def decode(self, payload: bytes) -> _T:
        wrong, malformed = self._errors
        try:
            value: _T = self._decoder.decode(payload)
        except wrong as error:
            words = _struct_words(str(error))
        except (malformed, RecursionError):
            words = "it is not JSON"
        else:
            return value
        raise Unfit(words)

    def json_schema(self) -> dict[str, Any]:
        import msgspec

        schema: dict[str, Any] = msgspec.json.schema(self._kind)
        return schema

    def _write(self, value: _T) -> bytes:
        payload: bytes = self._encode(value)
        return payload


class _Pydantic(Codec[_T]):
    def __init__(self, kind: Any) -> None:
        super().__init__(kind)
        from pydantic import PydanticUserError, TypeAdapter, ValidationError

        try:
            self._adapter: TypeAdapter[_T] = TypeAdapter(kind)
        except PydanticUserError as error:
            raise TypeError(str(error).partition("\n")[0]) from None
        self._wrong = ValidationError
        self._kind = kind
        self._names: frozenset[str] | None = None

    def decode(self, payload: bytes) -> _T:
        try:
            return self._adapter.validate_json(payload)
        except self._wrong as error:
            words = self._words(error)
        raise Unfit(words)

    def json_schema(self) -> dict[str, Any]:
        return self._adapter.json_schema()

    def _write(self, value: _T) -> bytes:
        return self._adapter.dump_json(value, by_alias=True, warnings=False)

    def _words(self, error: ValidationError) -> str:
        """Name what is wrong by pydantic's types of errors: its sentences may quote the payload."""
        found = error.errors(include_url=False, include_context=False, include_input=False)
        if found[0]["type"] == "json_invalid":
            return "it is not JSON"
        return _listed(f"{self._path(each['loc'])} ({each['type']})".lstrip() for each in found)

    def _path(self, place: Iterable[int | str]) -> str:
        """Write a place as `lines[0].amount`. What is not a field's name may be a key of the
        payload: it is hidden."""
        if self._names is None:
            self._names = self._known_names()
        path = ""
        for part in place:
            if isinstance(part, int):
                path += f"[{part}]"
            else:
                path += "." * bool(path) + (part if part in self._names else "*")
        return path

    def _known_names(self) -> frozenset[str]:
        try:
            return frozenset(_properties(self._adapter.json_schema()))
        except Exception:  # noqa: BLE001 (a type may have no schema, for any reason)
            return frozenset(getattr(self._kind, "__annotations__", ()))


def codec_of(kind: Any) -> Codec[Any]:  # see 0120
    """Return the codec of a type. Raises `TypeError` for one that no payload can be read as, with a remedy.

    >>> codec_of(dict).decode(b'{"to": "a@example.org"}')
    {'to': 'a@example.org'}
    """
    if kind is bytes:
        return _AsIs(kind)
    if kind is str:
        return _Text(kind)
    if kind is dict or (get_origin(kind) is dict and get_args(kind) == (str, Any)):
        return _Dict(dict)
    if _has_struct(kind):
        return _Struct(kind)
    try:
        return _Pydantic(kind)
    except ImportError:
        raise TypeError(
            "only msgspec structs, dict, str and bytes are read without pydantic 2: pip install 'pydantic>=2'"
        ) from None


def parse_object(payload: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises `Unfit`."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        words = "it is not JSON"
    else:
        if isinstance(value, dict):
            return value
        words = "it is not an object of JSON"
    raise Unfit(words)


def write_object(value: dict[str, Any]) -> bytes:
    """Write a JSON object. Raises what `json.dumps` raises."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _has_struct(kind: Any) -> bool:
    """Whether a type is a struct of msgspec or is made of one, as `Paid | Cancelled` is."""
    msgspec = sys.modules.get("msgspec")
    if msgspec is None:
        return False
    own = get_origin(kind) or kind
    return (isinstance(own, type) and issubclass(own, msgspec.Struct)) or any(
        map(_has_struct, get_args(kind))
    )


def _struct_words(said: str) -> str:
    """Keep of msgspec's sentence what stems from the type: the rest may quote the payload."""
    place = at["path"] if (at := _AT.search(said)) else ""
    if missing := _MISSING.match(said):
        name = missing["name"]
        return f"{place}.{name} (missing)" if place else f"{name} (missing)"
    expected = _EXPECTED.match(said)
    wrong = expected[0].replace("`", "").lower() if expected else "wrong value"
    if said.startswith("Object contains unknown field"):
        wrong = "unknown field"
    return f"{place} ({wrong})".lstrip()


def _listed(fields: Iterable[str]) -> str:
    named = list(fields)
    more = len(named) - _MOST_FIELDS
    return ", ".join(named[:_MOST_FIELDS]) + (f" and {more} more" if more > 0 else "")


def _properties(schema: Any) -> Iterator[str]:
    """Yield the names of all fields of a JSON schema."""
    if isinstance(schema, dict):
        named = schema.get("properties")
        yield from named if isinstance(named, dict) else ()
        for part in schema.values():
            yield from _properties(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _properties(part)
