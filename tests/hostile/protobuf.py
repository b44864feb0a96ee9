"""Messages that a producer, an application or a relay sends, and the same in JSON."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError, Message

from relay.api.columns import RequestColumns
from relay.api.recurring import values
from relay.api.specs import Specs
from relay.client.errors import RelayError
from relay.client.handling.delivery_columns import rows
from relay.core.errors import InvalidField
from relay.rules import compile_rule
from relay.v1 import delivery_service_pb2 as delivery
from relay.v1 import recurrence_service_pb2 as recurrences
from relay.v1 import timer_service_pb2 as timers
from relay.v1.timer_pb2 import TimerSpec
from relay.web import forms
from relay.web.operations import decoded, queried
from relay.web.routes import OPERATIONS

LIMIT = 1024

BODIES = (TimerSpec, recurrences.RecurrenceSpec, *(each.body for each in OPERATIONS if each.body is not None))


class NoMessage(Exception):
    """Bytes that protobuf itself refuses: `relay.rpc.unreadable` answers them."""


def _message(kind: type[Message], data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise NoMessage("not a message") from None


def _columns(data: bytes) -> None:
    request = _message(timers.ScheduleColumnsRequest, data)
    columns = RequestColumns(request, LIMIT, {})
    count = len(request.timer_ids)
    for begin in range(0, count, 3):
        columns.read(slice(begin, min(begin + 3, count)))
    if count:
        wrong = count - len(columns.timers)
        assert len(columns._failures) == wrong


def _batch(data: bytes) -> None:
    """A bad timer fails by itself."""
    request = _message(timers.ScheduleBatchRequest, data)
    specs = Specs(request.timers, lambda _: LIMIT, {})
    specs.read(slice(0, len(request.timers)))
    assert sum(map(len, specs.timers.values())) <= len(request.timers)
    assert len(specs._named) == len(request.timers)


def _rows(data: bytes) -> None:
    columns = _message(delivery.DeliveryColumns, data)
    assert len(rows(columns)) == len(columns.tokens)


def _recurrence(data: bytes) -> None:
    spec = _message(recurrences.RecurrenceSpec, data)
    compile_rule(values.wanted(spec, LIMIT, sealed=True).rule)


def _json(data: bytes) -> None:
    """A body of every operation."""
    body = forms.parse(data)
    said: list[str] = []
    for kind in BODIES:
        try:
            forms.read(kind(), body)
        except InvalidField as failure:
            said.append(str(failure))
    assert "object at" not in " ".join(said)
    " ".join(said).encode()
    if len(said) == len(BODIES):
        raise InvalidField("body", "is of no operation")


def _path_and_query(data: bytes) -> None:
    path, _, query = data.partition(b"?")
    found = decoded({"topic": path.decode("latin-1")})
    queried(query, ("limit", "page_token"))
    found["topic"].encode()


_ASKED = timers.ScheduleColumnsRequest(
    topic="t", timer_ids=["a", "b"], payloads=[b"1", b"2"], delays_us=[5, 6], headers={"a": "b"}
)
_BY_DUE = timers.ScheduleColumnsRequest(topic="t", timer_ids=["a"], payloads=[b"1"], due_times_us=[1 << 50])
_MANY = timers.ScheduleBatchRequest()
for _name in ("a", "b"):
    _spec = _MANY.timers.add(topic="t", timer_id=_name, payload=b"1", content_type="text/plain")
    _spec.delay.seconds = 5
    _spec.headers["a"] = "b"
_SENT = delivery.DeliveryColumns(
    topic="t",
    timer_ids=["a", "b"],
    payloads=[b"", b""],
    due_times_us=[1, 2],
    attempts=[1, 1],
    lease_deadlines_us=[5, 5],
    occurrence_ids=["x", "y"],
    tokens=[b"1", b"2"],
)
_SENT_ALIKE = delivery.DeliveryColumns()
_SENT_ALIKE.CopyFrom(_SENT)
_SENT_ALIKE.header_columns.add(name="h", values=["1", ""], without=[1])
_SPEC = recurrences.RecurrenceSpec(topic="t", recurrence_id="r", payload=b"p", headers={"a": "b"})
_SPEC.rule.cron, _SPEC.rule.zone = "0 3 * * *", "Europe/Berlin"
_EVERY = recurrences.RecurrenceSpec(topic="t", recurrence_id="r")
_EVERY.rule.every.seconds = 90

_WIRE = (b"\xff" * 9 + b"\x01", b"\xff" * 5, b"\x80\x80\x80\x80\x10", b"\x7f", b"\x0b", b"\x0c", b"\x12\x00")
_JSON_WORDS = (
    *(
        b"null",
        b"[]",
        b"{}",
        b"true",
        b'"x"',
        b"1e400",
        b"-0",
        b"1.5",
        b'"\\ud800"',
        b'"\\u0000"',
        b"NaN",
        b",",
    ),
    *(
        b"[" * 3_000,
        b'{"a":' * 3_000,
        b'"delay_sec":',
        b'"message":',
        b'"timers":[',
        b'"payload":"aGk="',
        b'"1s"',
    ),
)

TARGETS: dict[str, tuple[Any, ...]] = {
    "columns": (
        _columns,
        tuple(each.SerializeToString() for each in (_ASKED, _BY_DUE)),
        (InvalidField, NoMessage),
        _WIRE,
        3_000,
    ),
    "batch": (_batch, (_MANY.SerializeToString(),), (InvalidField, NoMessage), _WIRE, 3_000),
    "delivery_columns": (
        _rows,
        tuple(each.SerializeToString() for each in (_SENT, _SENT_ALIKE)),
        (RelayError, NoMessage),
        _WIRE,
        3_000,
    ),
    "recurrence": (
        _recurrence,
        tuple(each.SerializeToString() for each in (_SPEC, _EVERY)),
        (InvalidField, NoMessage),
        _WIRE,
        1_000,
        2.0,
    ),
    "json_body": (
        _json,
        (
            b'{"message": {"a": 1}, "delay_sec": 1.5, "timer_id": "a", "headers": {"a": "b"}}',
            b'{"timers": [{"topic": "t", "delay": "1s", "payload": "aGk="}]}',
            b'{"rule": {"cron": "* * * * *", "start_time": "2026-01-01T00:00:00Z"}, "overlap": "buffer"}',
            b'{"dead_ids": ["1-0"]}',
            b'{"due_time": "2026-01-01T00:00:00Z", "expire_after_sec": 5}',
        ),
        (InvalidField, forms.NotJson),
        _JSON_WORDS,
        600,
        2.0,
    ),
    "path_and_query": (
        _path_and_query,
        (b"a%2Fb?limit=5&page_token=x", b"t"),
        (InvalidField,),
        (b"%", b"%ff", b"%ed%a0%80", b"&", b"=", b"?", b";"),
        2_000,
    ),
}
