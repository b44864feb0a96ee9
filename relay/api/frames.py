"""Writes deliveries: leases become the messages of streams, pushes and HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from relay.api.times import timestamp
from relay.core.instants import SECOND
from relay.engine.delivery.leases import Lease, Leases
from relay.v1 import delivery_service_pb2 as delivery
from relay.v1 import timer_handler_pb2 as handler

MOST_HEADER_COLUMNS = 16
"""The most different headers that the deliveries of a message may have, if it is to be one of columns: each
has an entry for each delivery, even one without the header."""


def deliveries(leases: Iterable[Lease]) -> delivery.DeliveryBatch:
    """Return a message for each problem."""
    frame = delivery.DeliveryBatch()
    _fill(frame.deliveries, leases)
    return frame


def frame(
    parts: Sequence[Leases], *, columns: bool, header_columns: bool = False
) -> delivery.DeliverResponse:
    """Return the message for a stream: columns if the application reads them and the deliveries are alike.

    With `header_columns`, their headers may differ.
    """
    response = delivery.DeliverResponse()
    if columns and _alike(parts):
        headers = list(chain.from_iterable(part.timers.headers for part in parts))
        if headers.count(headers[0]) == len(headers):
            _fill_columns(response.columns, parts)
            response.columns.headers.update(headers[0])
            return response
        names = dict.fromkeys(chain.from_iterable(headers))
        if header_columns and len(names) <= MOST_HEADER_COLUMNS:
            _fill_columns(response.columns, parts)
            for name in names:
                _add_header(response.columns, name, headers)
            return response
    _fill(response.deliveries.deliveries, chain.from_iterable(parts))
    return response


def _alike(parts: Sequence[Leases]) -> bool:
    """Whether the deliveries differ only in what has a column, and perhaps in their headers."""
    topic, content_type = parts[0].topic, parts[0].timers.content_types[0]
    return all(
        part.topic == topic
        and part.timers.content_types.count(content_type) == len(part)
        and not any(part.timers.approximate)
        for part in parts
    )


def _fill_columns(columns: delivery.DeliveryColumns, parts: Sequence[Leases]) -> None:
    columns.topic = parts[0].topic
    columns.content_type = parts[0].timers.content_types[0]
    for part in parts:
        timers = part.timers
        columns.timer_ids.extend(timers.timer_ids)
        columns.payloads.extend(timers.payloads)
        columns.due_times_us.extend(timers.dues)
        columns.attempts.extend(timers.attempts)
        columns.lease_deadlines_us.extend([part.deadline_time] * len(part))
        columns.occurrence_ids.extend(timers.occurrence_ids)
        columns.tokens.extend(part.tokens)


def _add_header(columns: delivery.DeliveryColumns, name: str, headers: Sequence[Mapping[str, str]]) -> None:
    """Add one header of the deliveries, which have these `headers`: once if all have the same value."""
    without = [place for place, each in enumerate(headers) if name not in each]
    values = [each.get(name, "") for each in headers]
    if not without and values.count(values[0]) == len(values):
        columns.headers[name] = values[0]
    else:
        columns.header_columns.add(name=name, values=values, without=without)


def pushed(lease: Lease) -> handler.TimerHandlerDeliverRequest:
    """Return the request for the application's `TimerHandler`."""
    return handler.TimerHandlerDeliverRequest(delivery=deliveries([lease]).deliveries[0])


def pushed_batch(leases: Iterable[Lease]) -> handler.TimerHandlerDeliverBatchRequest:
    """Return the request with many deliveries."""
    request = handler.TimerHandlerDeliverBatchRequest()
    _fill(request.deliveries, leases)
    return request


def _fill(messages: Any, leases: Iterable[Lease]) -> None:
    """Add deliveries. One message is filled again for each, and copied: most of it stays the same."""
    message = delivery.Delivery()
    due_time, deadline_time = message.due_time, None
    for those, place in leases:
        timers = those.timers
        if those.deadline_time != deadline_time:
            deadline_time = those.deadline_time
            message.lease_deadline.CopyFrom(timestamp(deadline_time))
        message.topic = those.topic
        message.timer_id = timers.timer_ids[place]
        message.payload = timers.payloads[place]
        due_time.seconds, rest = divmod(timers.dues[place], SECOND)
        due_time.nanos = rest * 1000
        message.attempt = timers.attempts[place]
        message.occurrence_id = timers.occurrence_ids[place]
        message.token = those.tokens[place]
        messages.append(message)
        if timers.headers[place]:
            messages[-1].headers.update(timers.headers[place])
        if timers.content_types[place]:
            messages[-1].content_type = timers.content_types[place]
        if timers.approximate[place]:
            messages[-1].due_time_approximate = True
