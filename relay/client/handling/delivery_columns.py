"""Deliveries that came as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import NamedTuple

import grpc

from relay.client import errors
from relay.v1 import delivery_service_pb2 as pb


class Shared(NamedTuple):
    """What the deliveries of a frame have in common. `names` are those of the headers that differ."""

    topic: str
    headers: Mapping[str, str]
    content_type: str
    names: tuple[str, ...]


class Row(NamedTuple):
    """One of them, with the attributes of a `pb.Delivery`, but for times, which are microseconds.

    It keeps nothing of its neighbours alive. `own` are the values of its own headers, by `shared.names`; None
    is a header that it doesn't have.
    """

    shared: Shared
    own: tuple[str | None, ...]
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
    def headers(self) -> Mapping[str, str]:
        shared = self.shared
        if not self.own:
            return shared.headers
        named = zip(shared.names, self.own, strict=True)
        own = {name: value for name, value in named if value is not None}
        return {**shared.headers, **own} if shared.headers else own

    @property
    def content_type(self) -> str:
        return self.shared.content_type

    @property
    def due_time_approximate(self) -> bool:
        return False


def rows(columns: pb.DeliveryColumns) -> list[Row]:
    """The deliveries of a frame, in their order. Raises `CallError` where columns differ in length."""
    names = tuple(column.name for column in columns.header_columns)
    shared = Shared(columns.topic, dict(columns.headers), columns.content_type, names)
    count = len(columns.tokens)
    try:
        return list(
            map(
                Row._make,
                zip(
                    repeat(shared, count),
                    _own(columns.header_columns, count),
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


def _own(columns: Iterable[pb.HeaderColumn], count: int) -> Iterable[tuple[str | None, ...]]:
    """The values of each of `count` deliveries. Raises `IndexError` for a place behind the last one."""
    values: list[list[str | None]] = []
    for column in columns:
        entries: list[str | None] = list(column.values)
        for place in column.without:
            entries[place] = None
        values.append(entries)
    return zip(*values, strict=True) if values else repeat((), count)
