"""The OpenAPI document tells the truth: of each route, each status and each schema that it names.

Every answer in these tests is held to it besides, by `tests.web.described`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from relay.core.errors import (
    ServiceError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    TimerNotFound,
    TopicFull,
    WrongKeyType,
)
from relay.web import forms, guard
from relay.web.document import document
from relay.web.operations import Answer, ApiCall, Calls, Operation
from relay.web.routes import OPERATIONS
from tests.web.described import check, filled, resolved
from tests.web.rig import MAX_BODY, Api

pytestmark = pytest.mark.anyio

FAILURES: dict[str, type[ServiceError]] = {
    "404": TimerNotFound,
    "409": WrongKeyType,
    "429": TopicFull,
    "500": StoreRefused,
    "503": StoreUnavailable,
    "507": StoreFull,
}
"""What is raised to see these."""

GOOD = {"timers_schedule": {"delay_sec": 1}, "timers_put": {"delay_sec": 1}}
"""Bodies that are right, where `{}` is not."""


def said() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of each operation in the document."""
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


STATUSES = [
    (method, path, status, operation["operationId"])
    for method, path, operation in said()
    for status in operation["responses"]
]


def answering(
    monkeypatch: pytest.MonkeyPatch, api: Api, name: str, perform: Callable[..., Coroutine[Any, Any, Answer]]
) -> None:
    """Perform an operation in another way."""
    own = [
        (pattern, operation if operation.name != name else _replaced(operation, perform))
        for pattern, operation in api.app._routes
    ]
    monkeypatch.setattr(api.app, "_routes", own)


def _replaced(operation: Operation, perform: Any) -> Operation:
    changed = object.__new__(Operation)
    for field in Operation.__dataclass_fields__:
        object.__setattr__(changed, field, getattr(operation, field))
    object.__setattr__(changed, "handle", perform)
    return changed


def sample(operation: Operation) -> dict[str, Any]:
    """An answer with every field in it."""
    return {} if operation.answer is None else forms.write(_full(operation.answer.DESCRIPTOR))


def _full(descriptor: Any) -> Any:
    message = descriptor._concrete_class()
    for field in descriptor.fields:
        nested = field.message_type
        if nested is None or nested.GetOptions().map_entry or nested.full_name.startswith("google."):
            continue
        inner = _full(nested)
        if field.is_repeated:
            getattr(message, field.name).add().CopyFrom(inner)
        elif field.containing_oneof is None or not message.WhichOneof(field.containing_oneof.name):
            getattr(message, field.name).CopyFrom(inner)
    return message


@pytest.mark.parametrize("status", sorted({status for _, _, status, _ in STATUSES}))
async def test_each_status_that_is_named_is_given(
    api: Api, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """By each operation that names it; `Api.call` compares the answer's form with what the document says."""
    for method, path, named, name in STATUSES:
        if named == status:
            with monkeypatch.context() as patch:
                await gives(api, patch, method, path, status, name)


async def gives(
    api: Api, monkeypatch: pytest.MonkeyPatch, method: str, path: str, status: str, name: str
) -> None:
    """An operation answers with this status, each in its way."""
    (operation,) = [each for each in OPERATIONS if each.name == name]
    where, headers, raw = filled(path), {}, forms.dump(GOOD.get(name, {}))
    if status in FAILURES:

        async def fail(_calls: Calls, _call: ApiCall) -> Answer:
            raise FAILURES[status]("words")

        answering(monkeypatch, api, name, fail)
    elif status in ("200", "201", "412"):

        async def work(_calls: Calls, _call: ApiCall) -> Answer:
            code = 200 if status == "412" else int(status)
            value = sample(operation)
            location = "/v1/topics/t/timers/a" if code == 201 else ""
            return Answer(value, code, location, held=status != "412")

        answering(monkeypatch, api, name, work)
    elif status == "403":
        headers["host"] = "evil.example"
    elif status == "408":
        monkeypatch.setattr(guard, "BODY_TIMEOUT", 0.05)
        headers["content-length"] = "100"  # and less comes
    elif status == "422":
        where += "?nonsense=1"
    elif status == "400" and not operation.takes_body:
        headers[guard.TIMEOUT] = "soon"
    else:
        raw = {"400": b"{", "413": b" " * (MAX_BODY + 1), "415": b"{}"}[status]
        headers = {"content-type": "text/plain"} if status == "415" else {}
    answer = await api.call(method, where, raw=raw if operation.takes_body else None, headers=headers)
    assert str(answer.status) == status, name


async def test_the_document_is_served(api: Api) -> None:
    answer = await api.call("GET", "/v1/openapi.json")
    assert answer.value == document()
    assert answer.value["openapi"].startswith("3.1.")


def test_it_has_every_operation_once() -> None:
    described = sorted((method, path) for method, path, _ in said())
    assert described == sorted((operation.method, operation.path) for operation in OPERATIONS)
    names = [operation["operationId"] for _, _, operation in said()]
    assert len(set(names)) == len(names)


def test_places_in_paths_are_described() -> None:
    for _, path, operation in said():
        places = {each["name"] for each in map(resolved, operation["parameters"]) if each["in"] == "path"}
        assert places == {part.partition("}")[0] for part in path.split("{")[1:]}


def test_every_schema_is_one() -> None:
    """And every reference leads somewhere."""
    for schema in document()["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for node in _nodes(document()):
        if "$ref" in node:
            assert resolved(node)


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _nodes(inner)


def test_nothing_is_described_in_vain() -> None:
    used = {node["$ref"].rpartition("/")[2] for node in _nodes(document()) if "$ref" in node}
    components = document()["components"]
    assert used == {*components["schemas"], *components["responses"], *components["parameters"]}


def _body(name: str) -> dict[str, Any]:
    (found,) = [operation for _, _, operation in said() if operation["operationId"] == name]
    schema: dict[str, Any] = found["requestBody"]["content"]["application/json"]["schema"]
    return schema


GIVEN = {"message": {"a": 1}, "delay_sec": 1.5}


@pytest.mark.parametrize(
    "body",
    [
        GIVEN,
        {"message": "x", "due_time": "2099-01-01T00:00:00Z", "timer_id": "a", "mode": "create"},
        {"payload": "aGk=", "delay": "1.5s", "headers": {"a": "b"}, "expire_after_sec": 1},
        {"delay_sec": 0, "condition": {"only_if_pending": True}},
        {"message": None, "delay_sec": 1},
        {"message": 1},
        {**GIVEN, "payload": "aGk="},
        {**GIVEN, "due_time": "2099-01-01T00:00:00Z"},
        {**GIVEN, "delay": "1s"},
        {**GIVEN, "delay_sec": -1},
        {**GIVEN, "delay_sec": "1"},
        {**GIVEN, "nonsense": 1},
        {**GIVEN, "topic": "t"},
        {**GIVEN, "mode": "upsert"},
        {**GIVEN, "headers": {"a": 1}},
        {**GIVEN, "timer_id": 1},
        {**GIVEN, "condition": {"if": 1}},
        {**GIVEN, "on_conflict": "keep_earliest", "spread_sec": 60},
        {**GIVEN, "on_conflict": "keep"},
        {**GIVEN, "on_conflict": "keep_existing", "mode": "create"},
        {**GIVEN, "at_most_sec": 60},
        {**GIVEN, "debounce_sec": 60},
        {"message": 1, "timer_id": "a", "debounce_sec": 30, "at_most": "300s"},
        {"message": 1, "timer_id": "a", "debounce": "30s", "mode": "replace"},
        {"message": 1, "timer_id": "a", "debounce": "30s", "debounce_sec": 30},
        {"message": 1, "timer_id": "a", "debounce": "30s", "spread_sec": 1},
        {"message": 1, "timer_id": "a", "debounce": "30s", "expire_after_sec": 1},
        {"message": 1, "timer_id": "a", "debounce": "30s", "on_conflict": "replace"},
        {"message": 1, "timer_id": "a", "debounce": "30s", "condition": {"only_if_pending": True}},
    ],
)
async def test_document_and_server_agree_on_what_is_right(api: Api, body: dict[str, Any]) -> None:
    """What the schema takes is stored or has no timer to hold a condition against; what it does not take is
    refused with 422."""
    try:
        check(_body("timers_schedule"), body)
        fits = True
    except AssertionError:
        fits = False
    answer = await api.call("POST", "/v1/topics/t/timers", body)
    assert answer.status in ((201, 404) if fits else (422,))
