"""Deliveries by columns, from a relay that knows them; what handlers see is in `test_handlers`."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from relay.client import Delivery, RelayClient
from relay.client.handling.delivery_columns import rows
from relay.v1 import delivery_service_pb2 as pb
from tests.client.scripted_relay import Link, ScriptedRelay, in_columns, names


@pytest.fixture
def columns() -> bool:
    return True


def said(link: Link) -> tuple[list[bytes], list[bytes]]:
    """What was acknowledged as a list, and what by settlements."""
    settles = [request.settle for request in link.requests]
    listed = [token for each in settles for token in each.acknowledged]
    return listed, [one.token for each in settles for one in each.settlements]


async def nothing(_: Delivery) -> None: ...


async def test_asks_for_columns_and_acknowledges_by_the_list(
    relay: ScriptedRelay, client: RelayClient
) -> None:
    """Without a word from the application."""
    client.on("t")(nothing)
    async with client:
        link = await relay.link()
        await link.deliver("a", "b")
        await link.settled("a", "b")
    assert link.requests[0].open.columns
    assert link.requests[0].open.header_columns
    assert said(link) == ([b"a", b"b"], [])


async def test_an_older_relay_behind_the_next_stream_gets_settlements(
    relay: ScriptedRelay, client: RelayClient
) -> None:
    """The race: a relay is rolled back under a client that lives on. The list would be passed over, and all
    of it delivered again."""
    client.on("t")(nothing)
    async with client:
        newer = await relay.link()
        await newer.deliver("a")
        await newer.settled("a")
        relay.columns = False
        newer.break_off()
        older = await relay.link(1)
        await older.deliver("b")
        await older.settled("b")
    assert said(newer) == ([b"a"], [])
    assert said(older) == ([], [b"b"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"timer_ids": ["a"]},
        {"header_columns": [pb.HeaderColumn(name="k", values=["v"])]},
        {"header_columns": [pb.HeaderColumn(name="k", values=["v", ""], without=[2])]},
    ],
    ids=["column", "header", "place"],
)
async def test_columns_of_different_lengths_break_the_stream_off(
    relay: ScriptedRelay, client: RelayClient, caplog: pytest.LogCaptureFixture, wrong: dict[str, Any]
) -> None:
    """It is opened again, like any that breaks."""
    client.on("t")(nothing)
    async with client:
        first = await relay.link()
        message = in_columns([pb.Delivery(topic="t", timer_id=each, token=each.encode()) for each in "ab"])
        for field, entries in wrong.items():
            message.ClearField(field)
            getattr(message, field).extend(entries)
        await first.send(columns=message)
        second = await relay.link(1)
        await second.deliver("a")
        await second.settled("a")
    assert said(first) == ([], [])
    (line,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert "columns of different lengths" in line


def test_what_rows_share_is_their_own() -> None:
    """No row holds the message, with all payloads, and none shows its own."""
    message = in_columns(
        [pb.Delivery(timer_id=each, token=b"t", payload=b"secret", headers={"k": "v"}) for each in names(2)]
    )
    one, two = rows(message)
    message.Clear()
    assert one.headers == two.headers == {"k": "v"}
    assert "secret" not in f"{one!r} {one}"


def test_headers_that_differ_are_read_by_the_row() -> None:
    """Each has those that all share, and its own; an empty one is there, and one that it lacks is not."""
    message = in_columns(
        [pb.Delivery(timer_id=each, token=b"t", headers={"tenant": "Søren"}) for each in names(3)]
    )
    message.header_columns.add(name="traceparent", values=["1", "2", "3"])
    message.header_columns.add(name="more", values=["", "", "x"], without=[0])
    assert [row.headers for row in rows(message)] == [
        {"tenant": "Søren", "traceparent": "1"},
        {"tenant": "Søren", "traceparent": "2", "more": ""},
        {"tenant": "Søren", "traceparent": "3", "more": "x"},
    ]


async def test_headers_are_a_copy_for_each_handler(relay: ScriptedRelay, client: RelayClient) -> None:
    """What one handler writes into them, its neighbour doesn't read."""
    seen: list[dict[str, str]] = []

    @client.on("t", concurrency=1)
    async def handler(delivery: Delivery) -> None:
        seen.append(dict(delivery.headers))
        delivery.headers["k"] = delivery.timer_id

    async with client:
        link = await relay.link()
        await link.deliver("a", "b", headers={"k": "v"})
        await link.settled("a", "b")
    assert seen == [{"k": "v"}] * 2
