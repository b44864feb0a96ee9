"""Messages of `relay.v1` as JSON, by protobuf's own `json_format`, with forms that are easier to write by
hand.

Beside protobuf's forms these are read: `message`, any JSON or text, for `payload`; `x_sec`, a number of
seconds, for a Duration `x`; the short names of enums (`create` for `SCHEDULE_MODE_CREATE`). A mistake raises
an `InvalidField` that names the field by its path, such as `timers[3].delay_sec`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from functools import reduce
from typing import Any, NoReturn

from google.protobuf import json_format
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from relay.core import validate
from relay.core.durability import STORED
from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.core.timers import Content

TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
SECONDS = "_sec"
"""The end of the name of a Duration that is given as a number of seconds."""

MARGIN = 50
"""The levels that are kept free for a payload's JSON, which is written inside other values and at another
depth of calls."""

MESSAGE, PAYLOAD, CONTENT_TYPE = "message", "payload", "content_type"
TEXT_TYPE, JSON_TYPE = "text/plain", "application/json"

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_WORDS = {
    FieldDescriptor.TYPE_BYTES: "must be base64 text",
    FieldDescriptor.TYPE_STRING: "must be text",
    FieldDescriptor.TYPE_BOOL: "must be true or false",
}


class NotJson(ValueError):
    """The text is not JSON that this API takes; the message says why."""


# Text to values


def parse(text: bytes) -> Any:  # see 0047
    """Parse JSON. This is stricter than Python: no NaN, and no key twice. Raises `NotJson`."""
    try:
        return json.loads(text.decode(), parse_constant=_no_constant, object_pairs_hook=_once)
    except NotJson:
        raise
    except UnicodeDecodeError:
        raise NotJson("is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise NotJson("is nested too deeply") from None
    except ValueError:  # a number with thousands of digits
        raise NotJson("has a number with too many digits") from None


def _no_constant(name: str) -> NoReturn:
    raise NotJson(f"is not JSON: it has no {name}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise NotJson(f"has the key {name!r} twice in one object")
            seen.add(name)
    for name in found:
        if not name.isascii() and not is_text(name):  # it can't be a field, and no answer could name it
            raise NotJson(f"has half a character in the key {name!r}")
    return found


def is_text(value: str) -> bool:
    """Whether a text can be encoded: JSON can spell half a character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def dump(value: Any) -> bytes:
    """Write a JSON value as compact text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


# Values to messages


def read(
    message: Message,
    body: Any,
    *,
    path: str = "",
    without: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
) -> dict[str, str]:
    """Fill `message` from an object. Fields in `without` are not accepted; those in `also` are read
    elsewhere, and errors list them.

    Returns the other names by which fields were given, such as `{"delay": "delay_sec"}`. Raises
    `InvalidField`.
    """
    if not isinstance(body, Mapping):
        raise InvalidField(path.rstrip(".") or "body", "must be an object: {…}")
    given: dict[str, str] = {}
    inside: dict[str, str] = {}
    for key, value in body.items():
        field, form = _field(message.DESCRIPTOR, key)
        if field is None or field.name in without:
            raise InvalidField(path + key, _unknown(message.DESCRIPTOR, key, without, also))
        if field.name in given:
            raise InvalidField(path + key, f"is set beside {given[field.name]}; set one of the two")
        given[field.name] = key
        if form == MESSAGE:
            continue  # this needs the content type, which may come after it
        if form == SECONDS and value is not None:
            getattr(message, field.name).CopyFrom(_duration(path + key, value))
        else:
            names_inside = _set(message, field, value, path + key)
            inside |= {f"{field.name}.{name}": f"{key}.{other}" for name, other in names_inside.items()}
    if given.get(PAYLOAD) == MESSAGE:
        _take_message(message, body[MESSAGE], path + MESSAGE)
    return {name: key for name, key in given.items() if name != key} | inside


def _field(descriptor: Any, key: str) -> tuple[FieldDescriptor | None, str]:
    """Return the field that a key means, and which of the easier forms it has, if any."""
    by_name = descriptor.fields_by_name
    if key == MESSAGE and PAYLOAD in by_name:
        return by_name[PAYLOAD], MESSAGE
    if key.endswith(SECONDS):
        field = by_name.get(key.removesuffix(SECONDS))
        if field is not None and field.message_type and field.message_type.full_name == DURATION:
            return field, SECONDS
    return by_name.get(key) or descriptor.fields_by_camelcase_name.get(key), ""


def _unknown(descriptor: Any, key: str, without: tuple[str, ...], also: tuple[str, ...]) -> str:
    if key in without:
        return "stands in the path; leave it out"
    known = [*(name for name in names(descriptor) if name not in without), *also]
    return f"is not known here; there are {', '.join(known)}" if known else "is not known here; there is none"


def names(descriptor: Any) -> list[str]:
    """Return all names that `read` takes, the easier forms too."""
    found = []
    for field in descriptor.fields:
        found.append(field.name)
        if field.name == PAYLOAD:
            found.append(MESSAGE)
        elif field.message_type and field.message_type.full_name == DURATION:
            found.append(field.name + SECONDS)
    return found


def _set(message: Message, field: FieldDescriptor, value: Any, path: str) -> dict[str, str]:
    """Set a field; return the other names by which fields of a message inside were given."""
    if value is None:
        return {}  # in protobuf's JSON, null means that the field is absent
    nested = field.message_type
    if nested is None or nested.full_name in (TIMESTAMP, DURATION) or nested.GetOptions().map_entry:
        _set_value(message, field, value, path)
    elif field.is_repeated:
        if not isinstance(value, list):
            raise InvalidField(path, "must be a list: […]")
        for index, item in enumerate(value):
            read(getattr(message, field.name).add(), item, path=f"{path}[{index}].")
    else:
        inner = getattr(message, field.name)
        inner.SetInParent()
        return read(inner, value, path=f"{path}.")
    return {}


def _set_value(message: Message, field: FieldDescriptor, value: Any, path: str) -> None:
    if field.enum_type is not None and isinstance(value, str):
        value = _enum(field.enum_type, value, path)
    if field.type == FieldDescriptor.TYPE_BYTES:
        _check_base64(value, path)
    try:
        json_format.ParseDict({field.name: value}, message)
    except (json_format.ParseError, ValueError, TypeError):
        raise InvalidField(path, _expected(field)) from None


def _check_base64(value: Any, path: str) -> None:
    """Check base64. json_format would skip characters that are not base64, and take the rest."""
    for text in value if isinstance(value, list) else [value]:
        if not isinstance(text, str) or not _BASE64.fullmatch(text):
            raise InvalidField(path, _WORDS[FieldDescriptor.TYPE_BYTES])


def _expected(field: FieldDescriptor) -> str:
    kind = field.message_type.full_name if field.message_type else ""
    if kind == TIMESTAMP:
        return 'must be an RFC 3339 time from year 1 to 9999, such as "2026-01-01T00:00:00Z"'
    if kind == DURATION:
        return f'must be a duration such as "1.5s"; or give {field.name}{SECONDS}, a number'
    if kind:
        return 'must be an object of texts: {"name": "text"}'
    words = _WORDS.get(field.type, "must be a whole number within its bounds")
    return f"{words}, each in a list" if field.is_repeated else words


def prefix(enum: EnumDescriptor) -> str:
    """Return the common prefix of the names of an enum's values."""
    return enum.values_by_number[0].name.removesuffix("UNSPECIFIED")


def _enum(enum: EnumDescriptor, text: str, path: str) -> str:
    for name in (text, prefix(enum) + text.upper()) if is_text(text) else ():
        if name in enum.values_by_name:
            return name
    short = [name.removeprefix(prefix(enum)).lower() for name in enum.values_by_name][1:]
    raise InvalidField(path, f"{text!r} is not known here; give {' or '.join(short)}")


def _duration(path: str, value: Any) -> Duration:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidField(path, "must be a number of seconds")
    if isinstance(value, float) and math.isinf(value):
        raise InvalidField(path, "is too large")
    exact = Decimal(repr(value)) * SECOND  # as it was written: 0.1 is a tenth
    instant = validate.delay(int(exact.to_integral_value(ROUND_CEILING)), path)
    seconds, rest = divmod(instant, SECOND)
    return Duration(seconds=seconds, nanos=rest * 1000)


def _take_message(message: Any, value: Any, path: str) -> None:
    """Turn `message` into a payload: a text as it is, unless the content type says JSON; any other value as
    JSON."""
    has_type = CONTENT_TYPE in message.DESCRIPTOR.fields_by_name
    content_type = message.content_type if has_type else ""
    as_text = isinstance(value, str) and not _is_json(content_type)
    try:
        message.payload = value.encode() if as_text else dump(value)
    except UnicodeEncodeError:
        raise InvalidField(path, "contains half a character; give valid Unicode text") from None
    except (ValueError, RecursionError):
        raise InvalidField(path, "has a number that is too large, or is nested too deeply") from None
    if has_type and not content_type:
        message.content_type = TEXT_TYPE if as_text else JSON_TYPE


# Messages to values


def write(message: Message) -> dict[str, Any]:
    """Return a message as protobuf's JSON, with the names of the proto, and with empty fields. The durability
    that it stands for is written in full: gRPC leaves `stored` out."""
    value: dict[str, Any] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    if "reached" in value:
        value["reached"] = reached(value["reached"])
    return value


def reached(said: str) -> str:
    """The durability of an answer in full."""
    return said or str(STORED)


def drop_content(value: dict[str, Any]) -> None:
    """Remove the fields that listings leave out from a timer or a dead letter."""
    for name in Content._fields:
        value.pop(name, None)


def with_message(value: dict[str, Any], payload: bytes) -> dict[str, Any]:
    """Return the value of a message with a payload, and with `message`: the payload as JSON or text, if its
    content type says that it is."""
    content_type = str(value.get(CONTENT_TYPE, ""))
    try:
        if _is_json(content_type):
            message = parse(payload)
            dump(reduce(lambda inner, _: [inner], range(MARGIN), message))
            return {**value, MESSAGE: message}
        if content_type.lower().startswith("text/"):
            return {**value, MESSAGE: payload.decode()}
    except (ValueError, RecursionError):
        pass  # it is not what it says, or can't be written again, such as 1e999; see `payload`
    return value


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == JSON_TYPE or kind.endswith("+json")
