"""Requests made from the OpenAPI document: what it allows, and the same with a fault."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from relay.web.document import document
from tests.hostile.mutation import damaged
from tests.web.described import resolved

SPOILED: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        1e308,
        2**31,
        2**63,
        2**64,
        -(2**63) - 1,
        "",
        "x",
        "\u0000",
        "\ud800",
        "٣",
    ),
    *([], {}, [[]], [{}], {"": None}, {"a": {"a": {}}}, "x" * 70_000, "null", "-1s", "1s", "9999999999999s"),
    *(
        "2026-02-30T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "10000-01-01T00:00:00Z",
        "=",
        "_w==",
        "{",
        "a#1",
        "../..",
    ),
)
"""Values that stand where others belong, of the types of others and at the ends of ranges."""

_SAID = {"topic": "t", "timer_id": "a", "recurrence_id": "r", "dead_id": "1-0", "name": "c", "token": "YQ=="}
_FORMATS = {
    "date-time": "2099-01-01T00:00:00Z",
    "date": "2026-12-24",
    "byte": "aGk=",
    "duration": "1.5s",
    "int64": 5,
}
_DEEPEST = 6


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None


def requests(method: str, path: str, said: Mapping[str, Any], count: int) -> Iterator[Asked]:
    """Yield `count` requests for one operation, the same ones at every run. A third is as the document
    says."""
    drawn = random.Random(f"{method} {path}")
    waits = path.endswith(":receive")
    parameters = [resolved(each) for each in said.get("parameters", ())]
    for number in range(count):
        spoil = 0.0 if number % 3 == 0 else drawn.choice((0.05, 0.2))
        where, query, headers = path, list[tuple[str, str]](), dict[str, str]()
        for each in parameters:
            if each["in"] != "path" and drawn.random() < 0.6:
                continue
            value = _value(drawn, each["schema"], each["name"], spoil)
            text = value if isinstance(value, str) else json.dumps(value)
            raw = text.encode(errors="surrogatepass")[:2_000]
            if each["in"] == "path":
                where = where.replace(f"{{{each['name']}}}", quote(raw, safe=""))
            elif each["in"] == "query":
                query += [(each["name"], raw.decode(errors="replace"))] * (
                    2 if drawn.random() < spoil / 4 else 1
                )
            elif text.isascii() and text.isprintable():
                headers[each["name"]] = text[:2_000]
        body = None
        if "requestBody" in said:
            schema = resolved(said["requestBody"])["content"]["application/json"]["schema"]
            value = _value(drawn, schema, "", spoil)
            if waits and isinstance(value, dict):
                value.setdefault("wait_sec", 0.5)  # or each request would wait for deliveries for long
            body = json.dumps(value).encode()
            headers["content-type"] = "application/json"
            if number % 7 == 6 and not waits:
                _, body = damaged(f"{path} {number}", (body,), (b"null", b"[" * 500), 2)
        yield Asked(method.upper(), where + (f"?{urlencode(query)}" if query else ""), headers, body)


def _value(drawn: random.Random, schema: Mapping[str, Any], name: str, spoil: float, depth: int = 0) -> Any:
    """A value of the schema, or with the chance `spoil` another one at each place."""
    if name == "wait_sec":
        return drawn.choice((0.5, "x", -1))
    if drawn.random() < spoil:
        return drawn.choice(SPOILED)
    schema = resolved(schema)
    for choice in ("oneOf", "anyOf", "allOf"):
        if choice in schema and "properties" not in schema:
            return _value(drawn, drawn.choice(schema[choice]), name, spoil, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "")
    if isinstance(kind, list):
        kind = drawn.choice(kind)
    if kind == "object":
        return _object(drawn, schema, spoil, depth)
    if kind == "array":
        count = 0 if depth > _DEEPEST else drawn.randrange(4)
        return [_value(drawn, schema.get("items", {}), name, spoil, depth + 1) for _ in range(count)]
    return _plain(drawn, schema, kind, name)


def _plain(drawn: random.Random, schema: Mapping[str, Any], kind: str, name: str) -> Any:
    if "enum" in schema:
        return drawn.choice(schema["enum"])
    if kind in ("integer", "number"):
        return drawn.choice((schema.get("minimum", 0), 1, 5, schema.get("maximum", 100)))
    if kind == "boolean":
        return drawn.random() < 0.5
    if kind == "string":
        known = _SAID.get(name) or _FORMATS.get(schema.get("format", ""))
        return known or drawn.choice(("t", "0 3 * * *", "aGk="))
    return drawn.choice(({"a": 1}, "text", 5))


def _object(drawn: random.Random, schema: Mapping[str, Any], spoil: float, depth: int) -> dict[str, Any]:
    required = schema.get("required", ())
    found = {
        name: _value(drawn, inner, name, spoil, depth + 1)
        for name, inner in schema.get("properties", {}).items()
        if name in required or (depth <= _DEEPEST and drawn.random() < 0.35)
    }
    more = schema.get("additionalProperties")
    if isinstance(more, Mapping) and drawn.random() < 0.5:
        found["a"] = _value(drawn, more, "a", spoil, depth + 1)
    if drawn.random() < spoil / 2:
        found[drawn.choice(("no_such_field", "", "\ud800", "topic"))] = 1
    return found


def operations() -> list[tuple[str, str]]:
    """Method and path of each."""
    return [(method, path) for path, methods in document()["paths"].items() for method in methods]
