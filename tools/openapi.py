"""Write relay/web/openapi.json from the table of operations and the protos, or check that it is up to date.

python tools/openapi.py            write the document
python tools/openapi.py --check    exit 1, with a diff, if it has drifted
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.descriptor_pb2 import FileDescriptorSet

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from relay import __version__  # noqa: E402
from relay.core.validate import MAX_NAME_BYTES  # noqa: E402
from relay.web import forms, guard  # noqa: E402
from relay.web.operations import Operation  # noqa: E402
from relay.web.problems import MEDIA_TYPE, NAMES  # noqa: E402
from relay.web.routes import OPERATIONS  # noqa: E402
from tools.drift import write_or_check  # noqa: E402

DOCUMENT = ROOT / "relay" / "web" / "openapi.json"
BUF = Path(sys.executable).parent / "buf"

Schema = dict[str, Any]

INTEGERS: dict[int, Schema] = {
    Field.TYPE_INT32: {"type": "integer", "format": "int32"},
    Field.TYPE_UINT32: {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
    Field.TYPE_INT64: {"type": "string", "format": "int64", "pattern": "^-?[0-9]+$"},
}
SIMPLE: dict[int, Schema] = {
    Field.TYPE_STRING: {"type": "string"},
    Field.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    Field.TYPE_BOOL: {"type": "boolean"},
    Field.TYPE_DOUBLE: {"type": "number"},
    **INTEGERS,
}
DURATION = {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$"}
SECONDS = {"type": "number", "minimum": 0, "description": "The same as a number of seconds."}
MESSAGE_IN = {
    "description": "In the place of payload: text as it is (text/plain), unless content_type says JSON; "
    "anything else as JSON (application/json)."
}
MESSAGE_OUT = {"description": "The payload as JSON or text, where content_type says that it is one."}


def without(*names: str) -> Schema:
    """A schema that none of these fields fits."""
    return {"not": {"anyOf": [{"required": [name]} for name in names]}}


LIMITS = ("at_most", "at_most_sec")
BESIDE_DEBOUNCE = (
    ("expire_time", "expire_after", "expire_after_sec"),
    ("spread", "spread_sec", "condition", "on_conflict"),
)
ONE_TIME = [
    *({"required": [name], **without(*LIMITS)} for name in ("due_time", "delay", "delay_sec")),
    *({"required": [name], **without(*chain(*BESIDE_DEBOUNCE))} for name in ("debounce", "debounce_sec")),
]
ONE_WORD = {"not": {"required": ["mode", "on_conflict"]}}
SOMETIMES = ("payload", "headers", "content_type", "message", "seal_with")
"""Fields of what is read that a listing leaves out."""

PROBLEMS = {
    400: "The body is not JSON, or Relay-Timeout is not a number of seconds.",
    403: "The Host is not one of this relay's.",
    404: "There is no such timer, recurrence, or dead letter.",
    408: "The body did not come in time.",
    409: "A key of the topic in Redis holds something else: somebody has to look.",
    412: "The condition does not hold, or the recurrence has another version; nothing was changed.",
    413: "The body has more than api.max_body_bytes.",
    415: "The body is not said to be JSON.",
    422: "A field is wrong, and named.",
    429: "The caller is over a bound of the policy (over-bound), and nothing was done. Or the topic holds "
    "max_waiting timers. Or too many deliveries are waited for, or not settled.",
    500: "The relay could not do it; its log says why.",
    503: "Redis is away, or the call's time is over (out-of-time). Nothing is known to be stored, and from "
    "now on nothing will be: repeat the call, if it names its timer. Or the relay stops.",
    507: "Redis is full; nothing was stored.",
}
TIMEOUT = {
    "name": guard.TIMEOUT,
    "in": "header",
    "description": "For how many seconds you wait for the answer; without it, call_timeout counts. "
    "When they are over, the answer is 503 (out-of-time), and the call has no effect from then on.",
    "schema": {"type": "number", "exclusiveMinimum": 0, "maximum": guard.MOST_TIMEOUT},
}
ALWAYS = (403, 409, 422, 429, 500, 503)
WITH_BODY = (400, 408, 413, 415)
WAITS = (429, 503, 507)


@cache
def comments() -> dict[str, str]:
    """What the protos say of each message, field and enum, by full name."""
    image = subprocess.run([BUF, "build", "--output", "-"], cwd=ROOT, check=True, capture_output=True).stdout
    found: dict[str, str] = {}
    for file in FileDescriptorSet.FromString(image).file:
        if file.package == "relay.v1":
            said = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}
            for name, path in _places(file):
                found[name] = " ".join(said.get(path, "").split())
    return found


def _places(file: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    for number, message in enumerate(file.message_type):
        yield f"{file.package}.{message.name}", (4, number)
        for inner, field in enumerate(message.field):
            yield f"{file.package}.{message.name}.{field.name}", (4, number, 2, inner)
    for number, enum in enumerate(file.enum_type):
        yield f"{file.package}.{enum.name}", (5, number)


class Schemas:
    """The schemas of messages, made as they are asked for."""

    def __init__(self) -> None:
        self.made: dict[str, Schema] = {}
        self._taken: dict[str, bool] = {}

    def of(self, descriptor: Any, *, taken: bool) -> Schema:
        """A reference to the schema of a message that is `taken` in, or given out. A message that is both has
        two."""
        name = descriptor.name
        if self._taken.setdefault(name, taken) is not taken:
            name += "In" if taken else "Out"
        if name not in self.made:
            self.made[name] = {}  # so that a cycle ends
            self.made[name] = self.object(descriptor, taken=taken)
        return {"$ref": f"#/components/schemas/{name}"}

    def object(self, descriptor: Any, *, taken: bool, without: tuple[str, ...] = ()) -> Schema:
        """The schema itself, without some fields."""
        properties: dict[str, Schema] = {}
        required = []
        pairs = []
        for field in descriptor.fields:
            if field.name in without:
                continue
            properties[field.name] = self.field(field, taken=taken)
            twin = _twin(field)
            if taken and twin:
                properties[twin] = MESSAGE_IN if twin == forms.MESSAGE else SECONDS
                pairs.append({"not": {"required": [field.name, twin]}})
            if not taken and not field.has_presence and field.name not in SOMETIMES:
                required.append(field.name)
        if not taken and "payload" in properties:
            properties["message"] = MESSAGE_OUT
        schema: Schema = {
            "description": comments()[descriptor.full_name],
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
        }
        if required:
            schema["required"] = required
        if pairs:
            schema["allOf"] = pairs
        return schema

    def field(self, field: Any, *, taken: bool) -> Schema:
        """The schema of a field's value."""
        nested = field.message_type
        about = {"description": comments()[field.full_name]}
        if nested is not None and nested.GetOptions().map_entry:
            return {**about, "type": "object", "additionalProperties": {"type": "string"}}
        if nested is None:
            value = _plain(field, taken=taken)
        elif nested.full_name == forms.TIMESTAMP:
            value = {"type": "string", "format": "date-time"}
        elif nested.full_name == forms.DURATION:
            value = DURATION
        else:
            value = self.of(nested, taken=taken)
        if field.is_repeated:
            return {**about, "type": "array", "items": value}
        return {**about, **value}


def _twin(field: Any) -> str:
    """The friendlier name of a field, if it has one."""
    if field.name == forms.PAYLOAD:
        return forms.MESSAGE
    nested = field.message_type
    return field.name + forms.SECONDS if nested is not None and nested.full_name == forms.DURATION else ""


def _plain(field: Any, *, taken: bool) -> Schema:
    if field.enum_type is None:
        numbers = {"type": ["integer", "string"]} if taken and field.type == Field.TYPE_INT64 else {}
        return SIMPLE[field.type] | numbers
    names = list(field.enum_type.values_by_name)
    if taken:
        names = names[1:]
        names += [name.removeprefix(forms.prefix(field.enum_type)).lower() for name in names]
    return {"type": "string", "enum": names}


def body(operation: Operation, schemas: Schemas) -> Schema:
    """The schema of what an operation takes."""
    if operation.schema is not None:
        return dict(operation.schema)
    assert operation.body is not None
    descriptor: Any = operation.body.DESCRIPTOR
    if descriptor.name == "ScheduleRequest":  # the fields of the timer stand beside the others
        spec = descriptor.fields_by_name["timer"].message_type
        places = tuple(name for name in ("topic", "timer_id") if f"{{{name}}}" in operation.path)
        schema = schemas.object(spec, taken=True, without=places)
        rest = schemas.object(descriptor, taken=True, without=("timer",))
        schema["properties"] |= rest["properties"]
        return {**schema, "allOf": [*schema["allOf"], ONE_WORD], "oneOf": ONE_TIME}
    if descriptor.name == "PutRecurrenceRequest":  # so do those of the recurrence
        spec = descriptor.fields_by_name["recurrence"].message_type
        schema = schemas.object(spec, taken=True, without=("topic", "recurrence_id"))
        schema["properties"] |= schemas.object(descriptor, taken=True, without=("recurrence",))["properties"]
        return {**schema, "required": ["rule"]}
    if descriptor.name == "PutCalendarRequest":
        schema = schemas.object(
            descriptor.fields_by_name["calendar"].message_type, taken=True, without=("name",)
        )
        schema["properties"] |= schemas.object(descriptor, taken=True, without=("calendar",))["properties"]
        return schema
    elsewhere = ["timer_id", "recurrence_id", "received", "acknowledged"]
    if "{topic}" in operation.path:
        elsewhere.append("topic")
    places = tuple(name for name in elsewhere if name in descriptor.fields_by_name)
    schema = schemas.object(descriptor, taken=True, without=places)
    if descriptor.name == "ScheduleBatchRequest":
        spec = descriptor.fields_by_name["timers"].message_type
        item = schemas.object(spec, taken=True, without=("topic",))
        schema["properties"]["timers"]["items"] = {**item, "oneOf": ONE_TIME}
        schemas.made.pop("TimerSpec", None)
        schema["allOf"] = [ONE_WORD]
    return schema


def responses(operation: Operation, schemas: Schemas) -> dict[str, Schema]:
    """What an operation may answer, by status."""
    found: dict[str, Schema] = {}
    for status, words in operation.statuses.items():
        answer = {"application/json": {"schema": answer_schema(operation, schemas)}}
        found[str(status)] = {"description": words, "content": answer}
        if status == 201:
            found["201"]["headers"] = {
                "Location": {"description": "Where it is.", "schema": {"type": "string"}}
            }
    problems = {*ALWAYS, *operation.problems, *(WITH_BODY if operation.takes_body else ())}
    if not operation.has_own_time:
        problems.add(400)
    if operation.answer is None:
        problems = {403, 422}
    for status in sorted(problems):
        found[str(status)] = {"$ref": f"#/components/responses/{status}"}
    return found


def answer_schema(operation: Operation, schemas: Schemas) -> Schema:
    if operation.answer is None:
        return {"type": "object", "description": "This document."}
    return schemas.of(operation.answer.DESCRIPTOR, taken=False)


def parameters(operation: Operation, schemas: Schemas) -> list[Schema]:
    """What stands in the path, in the query and in the header."""
    name = {"type": "string", "minLength": 1, "maxLength": MAX_NAME_BYTES}
    found: list[Schema] = [
        {"name": place, "in": "path", "required": True, "schema": name} for place in operation.places
    ]
    for query, message in operation.query.items():
        schema = schemas.field(message.DESCRIPTOR.fields_by_name[query], taken=True)
        words = schema.pop("description")
        found.append({"name": query, "in": "query", "description": words, "schema": schema})
    if not operation.has_own_time:
        found.append({"$ref": "#/components/parameters/Timeout"})
    return found


def document() -> Schema:
    """The whole of it."""
    schemas = Schemas()
    paths: dict[str, Schema] = {}
    for operation in OPERATIONS:
        said: Schema = {
            "operationId": operation.name,
            "summary": operation.summary,
            "tags": [operation.name.partition("_")[0]],
            "parameters": parameters(operation, schemas),
            "responses": responses(operation, schemas),
        }
        if operation.takes_body:
            content = {"application/json": {"schema": body(operation, schemas)}}
            said["requestBody"] = {"required": True, "content": content}
        paths.setdefault(operation.path, {})[operation.method.lower()] = said
    schemas.made["ProblemDetails"] = problem()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Relay",
            "version": __version__,
            "description": "Timers over HTTP, for those without a gRPC client. See docs/reference/http.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:7453"}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.made.items())),
            "parameters": {"Timeout": TIMEOUT},
            "responses": {str(status): refusal(status) for status in PROBLEMS},
        },
    }


def problem() -> Schema:
    """RFC 9457, as this API has it."""
    return {
        "description": "Problem details (RFC 9457).",
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": sorted(NAMES)},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string", "description": "What is wrong, and what to do."},
            "instance": {"type": "string", "description": "The path that was called."},
            "field": {"type": "string", "description": "The field that is wrong, where one is."},
            "answer": {"type": "object", "description": "With 412: what the call found."},
        },
        "required": ["type", "title", "status", "detail", "instance"],
        "additionalProperties": False,
    }


def refusal(status: int) -> Schema:
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    found: Schema = {"description": PROBLEMS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
    if status in WAITS:
        found["headers"] = {
            "Retry-After": {
                "description": "Seconds after which it may be better.",
                "required": True,
                "schema": {"type": "integer"},
            }
        }
    return found


def text() -> str:
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    write_or_check(DOCUMENT, text(), "what the operations say", "tools/openapi.py")


if __name__ == "__main__":
    main()
