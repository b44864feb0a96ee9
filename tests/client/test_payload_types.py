"""Handlers and topics whose payloads have a type: in memory, and once beside a real relay."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, assert_type
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypedDict

from relay.client import (
    AckPolicy,
    Delivery,
    InvalidArgument,
    NewTimer,
    PushHandlers,
    RelayClient,
    ScheduledTimer,
    SyncRelayClient,
    SyncTypedTopic,
    TypedTopic,
    UsageError,
)
from relay.client.handling.invocation import Invocation
from relay.client.payloads.schema import VERSION_HEADER
from relay.client.testing import InMemoryRelay, Outcome, SyncInMemoryRelay

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay import client as unimported

SECRET = "4111-1111"


class Line(BaseModel):
    amount: int


class Invoice(BaseModel):
    model_config = ConfigDict(extra="forbid")
    to: str
    lines: list[Line] = []
    tags: dict[str, int] = {}
    kind: str = Field(default="plain", alias="invoiceKind")

    @field_validator("to")
    @classmethod
    def _has_an_at(cls, to: str) -> str:
        if "@" not in to:
            raise ValueError(f"{to} is no address")
        return to


class Colour(Enum):
    RED = "red"


@dataclass
class Order:
    number: UUID
    total: Decimal
    at: datetime
    colour: Colour = Colour.RED


class Row(TypedDict):
    number: int


class Paid(msgspec.Struct, forbid_unknown_fields=True):
    number: int
    tags: dict[str, int] = {}


class Opaque:
    """No payload can be read as this."""


ORDER = Order(UUID(int=7), Decimal("10.10"), datetime(2030, 1, 31, 9, tzinfo=UTC))
got: list[Any] = []


async def takes_invoice(invoice: Invoice) -> None:
    got.append(invoice)


async def takes_both(delivery: Delivery, order: Order) -> None:
    got.append((delivery.timer_id, order))


def takes_row(row: Row, delivery: unimported.Delivery) -> None:
    got.append((row, delivery.timer_id))


async def takes_struct(paid: Paid) -> None:
    got.append(paid)


async def takes_dict(body: dict[str, Any]) -> None:
    got.append(body)


async def takes_text(text: str, factor: int = 3) -> None:
    got.append((text, factor))


def takes_bytes(raw: bytes) -> None:
    got.append(raw)


class Handler:
    """Bound methods and objects that are called are handlers, too."""

    async def method(self, invoice: Invoice) -> None:
        got.append(invoice)

    async def __call__(self, row: Row) -> None:
        got.append(row)


@pytest.fixture(autouse=True)
def _nothing_yet() -> None:
    got.clear()


async def test_each_kind_of_type_makes_the_way_from_schedule_to_handler() -> None:
    client, push = RelayClient(), PushHandlers()
    invoice = Invoice(to="a@example.org", lines=[Line(amount=1)], invoiceKind="ü")
    sent: dict[str, tuple[TypedTopic[Any], Callable[..., Any], Any, Any]] = {
        "invoices": (client.topic("invoices", Invoice), takes_invoice, invoice, invoice),
        "orders": (client.topic("orders", Order), takes_both, ORDER, ("orders", ORDER)),
        "rows": (client.topic("rows", Row), takes_row, {"number": 1}, ({"number": 1}, "rows")),
        "paid": (client.topic("paid", Paid), takes_struct, Paid(1, {"x": 2}), Paid(1, {"x": 2})),
        "dicts": (client.topic("dicts", dict[str, Any]), takes_dict, {"a": [1, "ü"]}, {"a": [1, "ü"]}),
        "texts": (client.topic("texts", str), takes_text, "grüß", ("grüß", 3)),
        "raw": (client.topic("raw", bytes), takes_bytes, b"\xff", b"\xff"),
        "methods": (client.topic("methods", Invoice), Handler().method, invoice, invoice),
        "objects": (client.topic("objects", Row), Handler(), {"number": 2}, {"number": 2}),
    }
    for number, (name, (topic, handler, _, _)) in enumerate(sent.items()):
        if number % 2:  # by the annotation, by the topic; by a stream, by push
            push.on(name)(handler)
        else:
            topic.on()(handler)
    async with InMemoryRelay(client, push) as relay:
        for name, (topic, _, value, wanted) in sent.items():
            await topic.schedule(value, delay=0, timer_id=name)
            (delivered,) = await relay.run_due()
            assert (delivered.topic, delivered.outcome) == (name, Outcome.ACK)
            assert got.pop() == wanted
        await client.topic("dicts", dict).schedule({}, delay=9, timer_id="1")
        stored = await client.get("dicts", "1")
        assert stored is not None
        assert (stored.payload, stored.content_type, stored.headers) == (b"{}", "application/json", {})


UNFIT: list[tuple[Callable[..., Any], bytes, str, str]] = [
    (takes_invoice, b'{"to": 41111111}', "", "payload is not Invoice: to (string_type)"),
    (takes_invoice, b'{"to": "4111-1111"}', "", "payload is not Invoice: to (value_error)"),
    (takes_invoice, b'{"lines": [{"amount": "4111-1111"}]}', "application/json; charset=utf-8",
     "payload is not Invoice: to (missing), lines[0].amount (int_parsing)"),
    (takes_invoice, b'{"to": "a@b", "4111-1111": 1, "tags": {"4111-1111": "x"}}', "application/vnd.a+json",
     "payload is not Invoice: tags.* (int_parsing), * (extra_forbidden)"),
    (takes_invoice, b"4111-1111", "", "payload is not Invoice: it is not JSON"),
    (takes_invoice, b'"4111-1111"', "", "payload is not Invoice: (model_type)"),
    (takes_invoice, b'{"to": "a@b"}', "text/4111-1111",
     "payload is not Invoice: its content type is not that of JSON"),
    (takes_struct, b'{"number": "4111-1111"}', "", "payload is not Paid: number (expected int, got str)"),
    (takes_struct, b'{"number": 1, "tags": {"4111-1111": "x"}}', "",
     "payload is not Paid: tags[...] (expected int, got str)"),
    (takes_struct, b'{"number": 1, "4111-1111": 1}', "", "payload is not Paid: (unknown field)"),
    (takes_struct, b"{}", "", "payload is not Paid: number (missing)"),
    (takes_struct, b"x4111-1111", "", "payload is not Paid: it is not JSON"),
    (takes_row, b"{}", "", "payload is not Row: number (missing)"),
    (takes_dict, b'["4111-1111"]', "", "payload is not dict: it is not an object of JSON"),
    (takes_dict, b"[" * 100_000, "", "payload is not dict: it is not JSON"),
    (takes_text, b"\xff4111-1111", "", "payload is not str: it is not UTF-8"),
]  # fmt: skip


async def test_what_does_not_fit_is_dead_at_once_and_never_quoted(caplog: pytest.LogCaptureFixture) -> None:
    """… under every policy, without a further attempt, and the handler is not called."""
    for policy in (AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL):
        for handler, payload, content_type, reason in UNFIT:
            if policy is AckPolicy.MANUAL and handler is takes_row:
                continue  # it is not async
            client = RelayClient()
            client.on("t", ack_policy=policy)(handler)
            async with InMemoryRelay(client) as relay:
                await client.schedule("t", payload, delay=0, timer_id="1", content_type=content_type)
                (delivered,) = await relay.advance(days=1)
                assert (delivered.outcome, delivered.reason) == (Outcome.REJECT, reason)
                assert [(dead.reason, dead.last_error) for dead in relay.dead] == [("rejected", reason)]
    assert got == []
    said = [record for record in caplog.records if record.name == "relay.client"]
    assert {record.levelno for record in said} == {logging.WARNING}
    assert all(record.exc_info is None for record in said)
    assert "timer_id=1 attempt=1>: payload is not Invoice: to (value_error)" in caplog.text
    assert SECRET not in caplog.text


REFUSED: list[tuple[Any, Any, str]] = [
    (Invoice, {"to": "a@b"}, "payload must be Invoice: it has the type dict"),
    (Invoice, Invoice.model_construct(to=SECRET), "payload must be Invoice: to (value_error)"),
    (Order, Order(SECRET, Decimal(1), ORDER.at), "payload must be Order: number (uuid_parsing)"),  # type: ignore[arg-type]
    (Order, Order(ORDER.number, object(), ORDER.at),  # type: ignore[arg-type]
     "payload must be Order: it holds what can't be written"),
    (Row, {"number": SECRET}, "payload must be Row: number (int_parsing)"),
    (Paid, Paid(SECRET), "payload must be Paid: number (expected int, got str)"),  # type: ignore[arg-type]
    (dict, {"a": {SECRET}}, "payload must be dict: it holds what can't be written"),
    (dict, {"a": float("nan")}, "payload must be dict: it holds what can't be written"),
    (str, b"4111-1111", "payload must be str: it has the type bytes"),
    (str, "\ud800", "payload must be str: it holds what can't be written"),
    (bytes, SECRET, "payload must be bytes: it has the type str"),
]  # fmt: skip


async def test_a_wrong_value_is_refused_before_anything_is_sent() -> None:
    client, timers = RelayClient(), SyncRelayClient()  # neither is open, and nothing listens
    for kind, value, words in REFUSED:
        topic = client.topic("t", kind)
        for refused in (
            topic.schedule(value, delay=1),
            lambda kind=kind, value=value: timers.topic("t", kind).schedule(value, delay=1),
            lambda topic=topic, value=value: topic.new_timer(value, delay=1),
        ):
            with pytest.raises(InvalidArgument) as failure:
                await refused if not callable(refused) else refused()
            assert (failure.value.message, failure.value.field) == (words, "payload")
            assert failure.value.__context__ is None  # the library's own error quotes the value
    with pytest.raises(InvalidArgument, match="content_type must be that of JSON for Invoice"):
        await client.topic("t", Invoice).schedule(Invoice(to="a@b"), delay=1, content_type="text/plain")
    with pytest.raises(InvalidArgument, match="timers must be of topic 't'"):
        await client.topic("t", dict).schedule_batch([NewTimer(topic="u", payload=b"", delay=1)])


def two_values(a: Invoice, b: Row) -> None: ...


def two_deliveries(a: Delivery, b: Delivery) -> None: ...


def opaque(a: Opaque) -> None: ...


def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def bare(a, b):  # type: ignore[no-untyped-def]
    ...


def without() -> None: ...


def by_name(a: Invoice, *, session: object) -> None: ...


def test_a_handler_that_cannot_be_called_is_refused_as_it_is_registered() -> None:
    client = RelayClient()
    refused: list[tuple[Callable[..., Any], str]] = [
        (two_values, "handler two_values, parameters a, b: at most one may be the payload's value"),
        (two_deliveries, "handler two_deliveries, parameters a, b: at most one may be"),
        (bare, "handler bare, parameters a, b: at most one"),
        (without, "handler without has no parameter; give it one for the Delivery"),
        (by_name, "handler by_name, parameter session can be filled by its name only; give it a default"),
        (opaque, "handler opaque, parameter a: Opaque can't be read from a payload"),
        (unknown, "handler unknown, parameter a: Nowhere is not known at run time; import or define it"),
    ]
    for handler, words in refused:
        with pytest.raises(InvalidArgument, match=words) as failure:
            client.on("t")(handler)
        assert failure.value.field == "handler"
    with pytest.raises(InvalidArgument, match="parameter row must have the topic's type, Invoice"):
        client.topic("t", Invoice).on()(takes_row)  # type: ignore[arg-type, call-overload, unused-ignore]
    with pytest.raises(InvalidArgument, match=r"parameter a has no annotation; annotate it with Invoice or"):
        client.topic("t", Invoice).on()(bare)
    with pytest.raises(InvalidArgument, match="of can't be read from a payload"):
        client.topic("t", Opaque)
    assert client.registrations == {}


async def test_older_versions_are_raised_and_newer_ones_wait() -> None:
    client = RelayClient()
    invoices = client.topic("invoices", Invoice, version=3)

    @invoices.upcast(1)
    def with_lines(old: dict[str, Any]) -> dict[str, Any]:
        return {"receiver": old["mail"], "lines": []}

    @invoices.upcast(2)
    def renamed(old: dict[str, Any]) -> dict[str, Any]:
        return {"to": old.pop("receiver"), **old}

    invoices.on()(takes_invoice)
    for wrong, kind in ((1, UsageError), (3, InvalidArgument), (0, InvalidArgument)):
        with pytest.raises(kind):
            invoices.upcast(wrong)(renamed)
    with pytest.raises(InvalidArgument, match="version needs a type that is written as JSON"):
        client.topic("t", bytes, version=2)
    async with InMemoryRelay(client) as relay:
        for version, payload in [("", b'{"mail": "1@b"}'), ("2", b'{"receiver": "2@b"}')]:
            headers = {VERSION_HEADER: version} if version else {}
            await client.schedule("invoices", payload, delay=0, headers=headers)
        await invoices.schedule(Invoice(to="3@b"), delay=0, timer_id="3", headers={"tenant": "north"})
        stored = await client.get("invoices", "3")
        assert stored is not None
        assert stored.headers == {"tenant": "north", "payload-version": "3"}
        batch = [invoices.new_timer(Invoice(to="4@b"), delay=0, timer_id=None)]
        assert [result.ok for result in await invoices.schedule_batch(batch)] == [True]
        assert {each.outcome for each in await relay.run_due()} == {Outcome.ACK}
        assert sorted(invoice.to for invoice in got) == ["1@b", "2@b", "3@b", "4@b"]

        await client.schedule("invoices", b"", delay=0, timer_id="new", headers={VERSION_HEADER: "4"})
        (waits,) = await relay.run_due()
        assert waits.outcome is Outcome.NACK
        assert waits.reason == "payload-version 4 is newer than 3, which is known here"
        assert await invoices.cancel("new")

        for version, payload, reason in [
            (SECRET, b"{}", "payload-version is not a whole number from 1 on"),
            ("2", b"[]", "it is not an object of JSON"),
            ("2", b'{"receiver": "a@b", "x": NaN}', "an upcaster returned what can't be written"),
        ]:
            await client.schedule("invoices", payload, delay=0, headers={VERSION_HEADER: version})
            (dead,) = await relay.run_due()
            assert (dead.outcome, dead.reason) == (Outcome.REJECT, f"payload is not Invoice: {reason}")
        await client.schedule("invoices", b'{"receive": 1}', delay=0, headers={VERSION_HEADER: "2"})
        (failed,) = await relay.run_due()
        assert (failed.outcome, failed.reason) == (Outcome.NACK, "KeyError")  # as a handler that fails

    old = RelayClient()
    old.topic("invoices", Invoice, version=2).on()(takes_invoice)
    async with InMemoryRelay(old) as relay:
        await old.schedule("invoices", b"{}", delay=0)
        (dead,) = await relay.run_due()
        assert dead.reason == "payload is not Invoice: payload-version 1 has no upcaster"


async def test_occurrences_have_the_value_and_the_version_of_their_recurrence() -> None:
    client, timers = RelayClient(), SyncRelayClient()
    invoices = client.topic("invoices", Invoice, version=2)
    invoices.on()(takes_invoice)
    monthly = timers.topic("invoices", Invoice, version=2)
    with pytest.raises(InvalidArgument, match="Row") as refused:
        await client.topic("rows", Row).recur("r", {"number": SECRET}, every=60)  # type: ignore[typeddict-item]
    assert SECRET not in str(refused.value)
    async with InMemoryRelay(client) as relay:
        put = await invoices.recur("r", Invoice(to="1@b"), every=60, headers={"tenant": "north"})
        assert put.version == 1
        (ran,) = await relay.advance(minutes=1)
        stored = await client.recurrences.get("invoices", "r")
        assert stored is not None
        assert (stored.headers, stored.content_type) == (
            {"tenant": "north", VERSION_HEADER: "2"},
            "application/json",
        )
    assert ran.outcome is Outcome.ACK
    with SyncInMemoryRelay(timers):
        assert monthly.recur("r", Invoice(to="2@b"), every=60).version == 1
        kept = timers.recurrences.get("invoices", "r")
        assert kept is not None
        assert kept.headers == {VERSION_HEADER: "2"}
    assert [invoice.to for invoice in got] == ["1@b"]


def test_the_blocking_client_has_the_same_topics() -> None:
    timers, push = SyncRelayClient(), PushHandlers()
    rows = timers.topic("rows", Row, version=2)
    handled = push.topic("rows", Row, version=2)
    handled.on()(takes_row)
    with SyncInMemoryRelay(timers, push) as relay:
        rows.schedule({"number": 1}, delay=0, timer_id="1")
        rows.schedule_batch([rows.new_timer({"number": 2}, delay=1, timer_id="2")])
        rows.schedule({"number": 3}, delay=1, timer_id="3")
        assert rows.cancel("3")
        assert [each.outcome for each in relay.advance(seconds=1)] == [Outcome.ACK] * 2
    assert got == [({"number": 1}, "1"), ({"number": 2}, "2")]
    assert repr(rows) == "<SyncTypedTopic 'rows' of Row, version 2>"


def test_a_handler_of_the_delivery_alone_is_called_as_it_is() -> None:
    """… and so is one of whose parameters nothing is known."""
    client = RelayClient()
    for handler in (lambda d: d, lambda *args: args, lambda d=None: d, print):
        client.registrations.clear()
        client.on("t")(handler)
        assert client.registrations["t"].call is handler

    async def alone(delivery: Delivery) -> None: ...

    client.on("u")(alone)
    assert Invocation(client.registrations["u"])._handler is alone


LIGHT = """
import sys
from dataclasses import dataclass
from relay.client import Delivery, RelayClient

client = RelayClient()
@client.on("a")
async def a(delivery: Delivery, body: dict): ...
@client.on("b")
async def b(text: str): ...
client.topic("c", bytes)
assert not {"pydantic", "pydantic_core", "msgspec"} & set(sys.modules), "imported"

@dataclass
class Order: number: int
sys.modules["pydantic"] = None  # as if it were not installed
try:
    @client.on("d")
    def d(order: Order): ...
except Exception as error:
    print(type(error).__name__, error)
"""


def test_libraries_are_imported_when_a_type_needs_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "InvalidArgument INVALID_ARGUMENT: handler d, parameter order: Order can't be"
    )
    assert "pip install 'pydantic>=2'" in done.stdout


async def test_checkers_know_the_types() -> None:
    """mypy runs over this, too: where it would take a wrong value, it complains of an unused comment."""
    client = RelayClient()
    rows, orders = client.topic("rows", Row), SyncRelayClient().topic("orders", Order)
    assert_type(rows, TypedTopic[Row])
    assert_type(orders, SyncTypedTopic[Order])
    with pytest.raises(InvalidArgument):
        orders.schedule({"number": 1}, delay=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        await rows.schedule({"number": "one"}, delay=1)  # type: ignore[typeddict-item]
    with pytest.raises(InvalidArgument):
        rows.on()(takes_invoice)  # type: ignore[arg-type]
    handler = rows.on()(takes_row)
    assert_type(handler, "Callable[[Row, Delivery], None]")
    async with InMemoryRelay(client):
        assert_type(await rows.schedule({"number": 1}, delay=1), ScheduledTimer)
