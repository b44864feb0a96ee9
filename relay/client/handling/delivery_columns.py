"""Deliveries that came as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import NamedTuple

import grpc

from relay.client import errors
from relay.v1 import delivery_service_pb2 as pb


class Shared(NamedTuple):
    """What the deliveries of a frame have in common."""

    topic: str
    content_type: str


class Row(NamedTuple):
    """One of them, with the attributes of a `pb.Delivery`, but for times, which are microseconds.

    It keeps nothing of its neighbours alive. Rows may share one dict of headers.
    """

    shared: Shared
    headers: Mapping[str, str]
    timer_id: str
    payload: bytes
    due_time: int
    attempt: int
    lease_deadline: int
    occurrence_id: str
    token: bytes

    def __repr__(self) -> str:  # a tuple's own would show the payload
        return f"<Row topic={self.topic} timer_id={self.timer_id} attempt={self.attempt}>"

    @property
    def topic(self) -> str:
        return self.shared.topic

    @property
    def content_type(self) -> str:
        return self.shared.content_type

    @property
    def due_time_approximate(self) -> bool:
        return False


def rows(columns: pb.DeliveryColumns) -> list[Row]:
    """The deliveries of a frame, in their order. Raises `CallError` where columns differ in length."""
    shared = Shared(columns.topic, columns.content_type)
    count = len(columns.tokens)
    try:
        return list(
            map(
                Row._make,
                zip(
                    repeat(shared, count),
                    _headers(columns, count),
                    columns.timer_ids,
                    columns.payloads,
                    columns.due_times_us,
                    columns.attempts,
                    columns.lease_deadlines_us,
                    columns.occurrence_ids,
                    columns.tokens,
                    strict=True,
                ),
            )
        )
    except (ValueError, IndexError):
        raise errors.make(grpc.StatusCode.INTERNAL, "the relay sent columns of different lengths") from None


def _headers(columns: pb.DeliveryColumns, count: int) -> Iterable[Mapping[str, str]]:
    """The headers of each of `count` deliveries. Raises `ValueError` where columns differ in length, and
    `IndexError` for a place behind the last one."""
    shared = dict(columns.headers)
    if not columns.header_columns:
        return repeat(shared, count)
    names = [column.name for column in columns.header_columns]
    values = zip(*(column.values for column in columns.header_columns), strict=True)
    headers = [dict(zip(names, each, strict=True)) for each in values]
    for column in columns.header_columns:
        for place in column.without:
            headers[place].pop(column.name, None)
    return [{**shared, **own} for own in headers] if shared else headers
