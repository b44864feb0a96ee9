"""Holds real answers to the OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from relay.web.document import document

URI = "urn:openapi"


@dataclass(frozen=True)
class Reply:
    """What an API answered; `headers` by names in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    value: Any = field(default=None, compare=False)

    @property
    def field(self) -> str:
        """The field that a problem names."""
        return str(self.value["field"])


def reply(method: str, path: str, status: int, headers: Mapping[str, str], content: bytes) -> Reply:
    """What came, once it is known to be as the document says."""
    value: Any = json.loads(content) if content else None
    answer = Reply(status, {name.lower(): text for name, text in headers.items()}, content, value)
    if method == "HEAD":
        assert not content
        return answer
    said = operation(method, path)
    if said is None or status == 405:
        assert status in (403, 404, 405), (method, path, status)
        check({"$ref": "#/components/schemas/ProblemDetails"}, value)
    else:
        assert str(status) in said["responses"], (method, path, status, content)
        described = resolved(said["responses"][str(status)])
        ((kind, media),) = described["content"].items()
        assert answer.headers["content-type"] == kind
        check(media["schema"], value)
        for name, header in described.get("headers", {}).items():
            assert name.lower() in answer.headers
            if header["schema"]["type"] == "integer":
                int(answer.headers[name.lower()])
    if status >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert value["status"] == status
        assert value["instance"] == path.partition("?")[0]
    return answer


def operation(method: str, path: str) -> dict[str, Any] | None:
    """What the document says of a method of a path."""
    bare = path.partition("?")[0]
    for template, methods in document()["paths"].items():
        pattern = "".join(
            "[^/]*" if index % 2 else re.escape(part)
            for index, part in enumerate(re.split(r"\{(\w+)\}", template))
        )
        if method.lower() in methods and re.fullmatch(pattern, bare):
            said: dict[str, Any] = methods[method.lower()]
            return said
    return None


def filled(path: str) -> str:
    """The path of a template."""
    places = {"topic": "t", "timer_id": "a", "recurrence_id": "r", "dead_id": "1-1", "name": "c"}
    for place, name in places.items():
        path = path.replace(f"{{{place}}}", name)
    return path


def check(schema: Mapping[str, Any], value: Any) -> None:
    """Fail unless the value is as the schema wants it."""
    errors = [
        f"{error.json_path}: {error.message}" for error in validator(json.dumps(schema)).iter_errors(value)
    ]
    assert not errors, errors


def resolved(node: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in node:
        found: Any = document()
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        node = found
    return node


@cache
def validator(schema: str) -> Draft202012Validator:
    whole = DRAFT202012.create_resource(document())
    inner = json.loads(schema.replace('"#/', f'"{URI}#/'))
    return Draft202012Validator(inner, registry=Registry().with_resource(URI, whole))
