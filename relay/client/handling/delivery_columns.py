"""Deliveries as they came, as columns or as messages: both become rows, whose times are microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import grpc

from relay.client import arguments, errors
from relay.v1 import delivery_service_pb2 as pb


class Shared(NamedTuple):
    """What the deliveries of a frame have in common."""

    topic: str
    headers: Mapping[str, str]
    content_type: str
    due_time_approximate: bool = False


class Row(NamedTuple):
    """One delivery, whether it came as a column or as a message. It keeps nothing of its neighbours alive."""

    shared: Shared
    timer_id: str
    payload: bytes
    due_time_us: int
    attempt: int
    lease_deadline_us: int
    occurrence_id: str
    token: bytes

    def __repr__(self) -> str:  # a tuple's own would show the payload
        return f"<Row topic={self.topic} timer_id={self.timer_id} attempt={self.attempt}>"

    @property
    def topic(self) -> str:
        return self.shared.topic

    @property
    def headers(self) -> Mapping[str, str]:
        return self.shared.headers


def row(message: pb.Delivery) -> Row:
    """Return a delivery that came as a message."""
    return Row(
        shared=Shared(
            message.topic, dict(message.headers), message.content_type, message.due_time_approximate
        ),
        timer_id=message.timer_id,
        payload=message.payload,
        due_time_us=arguments.micros_of(message.due_time),
        attempt=message.attempt,
        lease_deadline_us=arguments.micros_of(message.lease_deadline),
        occurrence_id=message.occurrence_id,
        token=message.token,
    )


def rows(columns: pb.DeliveryColumns) -> list[Row]:
    """The deliveries of a frame, in their order. Raises `CallError` where columns differ in length."""
    shared = Shared(columns.topic, dict(columns.headers), columns.content_type)
    try:
        return list(
            map(
                Row._make,
                zip(
                    [shared] * len(columns.tokens),
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
    except ValueError:
        raise errors.make(grpc.StatusCode.INTERNAL, "the relay sent columns of different lengths") from None
