"""Bodies that are no JSON, or JSON of any other form: a problem that says so, from every operation."""

from __future__ import annotations

import logging

import pytest

from relay.web.operations import Operation
from relay.web.routes import OPERATIONS
from tests.web.described import filled
from tests.web.rig import MAX_BODY, Api

pytestmark = pytest.mark.anyio

NOT_JSON = {
    "noise": b"\xff\xfe\x00\x01",
    "half an object": b'{"timer_id": "a"',
    "UTF-16": '{"timer_id": "a"}'.encode("utf-16"),
    "NaN": b'{"delay_sec": NaN}',
    "a number of 10,000 digits": b'{"delay_sec": ' + b"9" * 10_000 + b"}",
    "too deep": b"[" * 30_000 + b"]" * 30_000,
    "a protobuf message": b"\x0a\x06orders",
    "a form": b"timer_id=a&delay_sec=5",
    "NUL": b"\x00" * 100,
    "a key that is half a character": b'{"\\ud800": 1}',
}
JSON = {
    "a list": b"[]",
    "text": b'"timer_id"',
    "a number": b"1e308",
    "null": b"null",
    "other types": b'{"timer_id": [{}], "topic": [{}], "delay_sec": [{}], "tokens": [{}], "timers": [{}]}',
    "no such field": b'{"no_such_field": 1}',
}
WITH_BODY = [operation for operation in OPERATIONS if operation.takes_body]


@pytest.mark.parametrize("operation", WITH_BODY, ids=lambda operation: operation.name)
async def test_no_body_is_an_error_of_the_relay(
    api: Api, operation: Operation, caplog: pytest.LogCaptureFixture
) -> None:
    """400 for what is no JSON, 413 for too much of it, and never a status of the relay's own fault."""
    path = filled(operation.path)
    assert "{" not in path
    for case, raw in NOT_JSON.items():
        answer = await api.call(operation.method, path, raw=raw)
        assert answer.status == 400, (case, answer.content)
        assert answer.value["type"] == "urn:relay:problem:not-json"
    for case, raw in JSON.items():
        answer = await api.call(operation.method, path, raw=raw)
        assert answer.status == 422, (case, answer.content)
    assert (await api.call(operation.method, path, raw=b" " * (MAX_BODY + 1))).status == 413
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
