"""Deliveries over HTTP: one call takes some, another settles them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relay.api import frames
from relay.core.errors import InvalidField
from relay.v1 import delivery_service_pb2 as pb
from relay.web import forms
from relay.web.operations import Answer, ApiCall, Calls, Operation
from relay.web.problems import Refused

MAX_DELIVERIES = 500
MAX_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a body. A `default` of None means that the relay knows it."""

    low: float
    high: float
    default: float | None
    description: str
    whole: bool = False

    def read(self, name: str, value: Any) -> float | None:
        """Return the value, or the default. Raises `InvalidField`."""
        if value is None:
            return self.default
        kinds = int if self.whole else int | float
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise InvalidField(name, f"must be a {'whole ' if self.whole else ''}number")
        if not self.low <= value <= self.high:
            bounds = f"{self.low:g} to {self.high:g}" if self.high < math.inf else f"{self.low:g} or more"
            raise InvalidField(name, f"is {value}; give {bounds}")
        return value

    def schema(self) -> dict[str, Any]:
        """Return the field as JSON Schema."""
        found: dict[str, Any] = {
            "description": self.description,
            "type": "integer" if self.whole else "number",
            "minimum": self.low,
        }
        if self.high < math.inf:
            found["maximum"] = self.high
        if self.default is not None:
            found["default"] = self.default
        return found


RECEIVE = {
    "max_deliveries": Number(
        1,
        MAX_DELIVERIES,
        1,
        "The most deliveries to take. Those that come together count as received together.",
        whole=True,
    ),
    "wait_sec": Number(
        0,
        MAX_WAIT,
        20,
        "How long to wait for the first delivery; the answer is empty if none falls due. At least 0.5.",
    ),
    "visibility_sec": Number(
        0.1,
        math.inf,
        None,
        "The time after which a delivery without an outcome is given up, and its timer due again. The "
        "topic's "
        "delivery_timeout is both the maximum and the default.",
    ),
}


def _numbers(body: Any, fields: Mapping[str, Number]) -> dict[str, float | None]:
    if not isinstance(body, dict):
        raise InvalidField("body", "must be an object: {…}")
    for name in body:
        if name not in fields:
            raise InvalidField(name, f"is not known here; there are {', '.join(fields)}")
    return {name: number.read(name, body.get(name)) for name, number in fields.items()}


async def receive(calls: Calls, call: ApiCall) -> Answer:
    """Take deliveries. They count as received once the answer is written. Raises `InvalidField`, or `Refused`
    if the relay stops."""
    numbers = _numbers(call.body, RECEIVE)
    taken = await calls.consumers.receive(
        call.path["topic"],
        limit=int(numbers["max_deliveries"] or 1),
        wait=numbers["wait_sec"] or 0.0,
        visibility=numbers["visibility_sec"],
    )
    if taken is None:
        raise Refused(503, "draining", "The relay stops", "call another relay, or try again", retry_after="1")
    try:
        batch = frames.deliveries(taken.leases)
        deliveries = [
            forms.with_message(value, delivery.payload)
            for value, delivery in zip(forms.write(batch)["deliveries"], batch.deliveries, strict=True)
        ]
    except BaseException:
        taken.give_back()
        raise
    return Answer({"deliveries": deliveries}, taken=taken if deliveries else None)


async def settle(calls: Calls, call: ApiCall) -> Answer:
    """Settle deliveries, or extend their leases. Raises `InvalidField`."""
    request = pb.Settle()
    call.read(request, without=("received", "acknowledged"))
    if not 1 <= len(request.settlements) <= MAX_DELIVERIES:
        raise InvalidField(
            "settlements", f"has {len(request.settlements)} entries; give 1 to {MAX_DELIVERIES}"
        )
    problems = await calls.consumers.settle(call.path["topic"], request.settlements)
    return Answer(forms.write(pb.Problems(problems=problems)))


DELIVERIES = "/v1/topics/{topic}/deliveries"

OPERATIONS = (
    Operation(
        "POST",
        f"{DELIVERIES}:receive",
        receive,
        "Wait for due timers, and take some; settle them within visibility_sec.",
        pb.DeliveryBatch,
        schema={
            "type": "object",
            "properties": {name: number.schema() for name, number in RECEIVE.items()},
            "additionalProperties": False,
        },
        takes_deliveries=True,
        has_own_time=True,
        problems=(429,),
    ),
    Operation(
        "POST",
        f"{DELIVERIES}:settle",
        settle,
        "Settle deliveries. The answer names only outcomes that changed nothing.",
        pb.Problems,
        pb.Settle,
        has_own_time=True,
    ),
)
