"""How recurrences lie in Redis: what is to recur, and where it stands, as JSON that people can read.

A field that has its default is left out, and one that is not known is passed over, so that relays of two
versions read each other's. Instants are whole microseconds.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import Enum
from typing import Any

from relay.core.recurring.recurrence import Filling, LeftOut, Past, Recurrence, Standing
from relay.core.recurring.rule import Rule
from relay.core.timers import Content
from relay.core.validate import SUBJECT

_RULE = tuple((each.name, each.default) for each in fields(Rule))
_RECURRENCE = tuple(
    (each.name, each.default)
    for each in fields(Recurrence)
    if each.name not in ("recurrence_id", "rule", "payload", "headers", "seal_with")
)


SEALED = "sealed"
"""The field of a payload that is a sealed content. A relay that knows nothing of sealing finds an object
where it wants a text, and leaves the recurrence to others."""


def content_to_seal(wanted: Recurrence) -> Content:
    """What is sealed of a recurrence: its content, and the name of the subject that it is about."""
    content = Content.of(wanted)
    if not wanted.seal_with:
        return content
    return content._replace(headers={**content.headers, SUBJECT: wanted.seal_with})


def write_rule(wanted: Recurrence, sealed: bytes | None = None) -> bytes:
    """Write what is to recur, without its id. `sealed` is its content, if that is sealed."""
    said = {"rule": _said(wanted.rule, _RULE), **_said(wanted, _RECURRENCE)}
    if sealed is not None:
        said.pop("content_type", None)
        return _json(said | {"payload": {SEALED: b64encode(sealed).decode()}})
    if wanted.headers:
        said["headers"] = dict(sorted(wanted.headers.items()))
    if wanted.payload:
        said |= _payload(wanted.payload)
    return _json(said)


def sealed_in(text: bytes) -> bytes | None:
    """The sealed content of what `write_rule` has written; None if it is not sealed. Raises `ValueError`."""
    payload = _mapping(text).get("payload")
    return b64decode(payload[SEALED]) if isinstance(payload, dict) else None


def with_sealed(text: bytes, sealed: bytes) -> bytes:
    """The same with this content in the place of the one that it has. Raises `ValueError`."""
    said = _mapping(text)
    for name in ("payload_base64", "headers", "content_type"):
        said.pop(name, None)
    return _json(said | {"payload": {SEALED: b64encode(sealed).decode()}})


def unopened(_stored: bytes) -> Content:
    """Read no sealed content. Raises `ValueError`."""
    raise ValueError("the content is sealed")


def read_rule(recurrence_id: str, text: bytes, opened: Callable[[bytes], Content] = unopened) -> Recurrence:
    """Read what `write_rule` has written. `opened` reads a sealed content. Raises `ValueError`, and what
    `opened` raises."""
    said = _mapping(text)
    rule, others = _values(_typed(dict)(said["rule"]), _RULE), _values(said, _RECURRENCE)
    if isinstance(said.get("payload"), dict):
        content = opened(b64decode(said["payload"][SEALED]))
        others.pop("content_type", None)
        found = dict(content.headers)
        others["seal_with"] = found.pop(SUBJECT, "")
        return Recurrence(recurrence_id, Rule(**rule), content.payload, found, content.content_type, **others)
    payload = said["payload"].encode() if "payload" in said else b64decode(said.get("payload_base64", ""))
    headers = {name: _typed(str)(value) for name, value in _typed(dict)(said.get("headers", {})).items()}
    return Recurrence(recurrence_id, Rule(**rule), payload, headers, **others)


def write_standing(standing: Standing) -> bytes:
    """Write where a recurrence stands, behind the timer_id of its last occurrence; see
    `lua/lib/recurring.lua`."""
    said: dict[str, Any] = {
        "version": standing.version,
        "next": standing.next,
        "settled": standing.settled,
    }
    for name in ("last_nominal", "buffered", "held", "paused"):
        if (value := getattr(standing, name)) is not None:
            said[name] = value
    for name in ("runs", "note", "further", "tzdata"):
        if value := getattr(standing, name):
            said[name] = value
    if standing.left_out:
        said["left_out"] = {reason.value: count for reason, count in standing.left_out.items()}
    if standing.filling:
        said["filling"] = [[each.run, each.due, each.apart, *each.nominals] for each in standing.filling]
    if standing.recent:
        said["recent"] = [
            [each.nominal, each.timer_id, each.left_out.value if each.left_out else "", each.lateness]
            for each in standing.recent
        ]
    return standing.last.encode() + b"\n" + _json(said)


def read_standing(text: bytes) -> Standing:
    """Read what `write_standing` has written. Raises `ValueError`."""
    last, _, rest = text.partition(b"\n")
    said = _mapping(rest)
    number, numbers, words, mapping, listed = _KINDS
    return Standing(
        version=number(said["version"]),
        next=numbers(said["next"]),
        settled=number(said["settled"]),
        last=last.decode(),
        last_nominal=numbers(said.get("last_nominal")),
        runs=number(said.get("runs", 0)),
        left_out={LeftOut(name): number(count) for name, count in mapping(said.get("left_out", {})).items()},
        buffered=numbers(said.get("buffered")),
        held=numbers(said.get("held")),
        filling=tuple(
            Filling(tuple(map(number, nominals)), number(run), number(due), number(apart))
            for run, due, apart, *nominals in map(listed, listed(said.get("filling", [])))
        ),
        paused=numbers(said.get("paused")),
        note=words(said.get("note", "")),
        further=number(said.get("further", 0)),
        tzdata=words(said.get("tzdata", "")),
        recent=tuple(
            Past(number(nominal), words(timer_id), LeftOut(reason) if reason else None, number(lateness))
            for nominal, timer_id, reason, lateness in map(listed, listed(said.get("recent", [])))
        ),
    )


def _mapping(text: bytes) -> dict[str, Any]:
    """Read a JSON object. Raises `ValueError`."""
    try:
        said: dict[str, Any] = _typed(dict)(json.loads(text.decode()))
        if b"\\ud" in text.lower():  # half a character, which no message can hold
            _json(said)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    return said


def _typed(*kinds: type) -> Callable[[Any], Any]:
    """Return a function that returns its argument if that is of one of these types. A value of another type
    would fail in the loop that ticks, and hold up its neighbours. Raises `ValueError`."""

    def typed(value: Any) -> Any:
        if type(value) not in kinds:
            raise ValueError(f"a {type(value).__name__} stands where this version writes none")
        return value

    return typed


_KINDS = _typed(int), _typed(int, type(None)), _typed(str), _typed(dict), _typed(list)
"""What the values of a standing may be."""


def _said(holder: object, names: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    values = ((name, getattr(holder, name), default) for name, default in names)
    return {
        name: value.value if isinstance(value, Enum) else value
        for name, value, default in values
        if value != default
    }


def _values(said: Mapping[str, Any], names: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {name: _value(name, default, said[name]) for name, default in names if name in said}


def _value(name: str, default: Any, said: Any) -> Any:
    """Check the value of a field. It has the type of its default, or is a whole number where the default is
    None; another version may write it otherwise. Raises `ValueError`."""
    if isinstance(default, Enum):
        return type(default)(said)
    if isinstance(default, tuple):
        if isinstance(said, list) and all(isinstance(each, str) for each in said):
            return tuple(said)
    elif type(said) is (str if isinstance(default, str) else int):
        return said
    raise ValueError(f"{name} {said!r} is not what this version writes")


def _payload(payload: bytes) -> dict[str, str]:
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": b64encode(payload).decode()}


def _json(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
