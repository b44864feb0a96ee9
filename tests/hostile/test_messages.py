"""Damaged messages on every method: a status that is documented, and a relay that stays well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor

from relay.api.errors import INTERNAL, KINDS
from relay.core.errors import MOST_BYTES
from relay.rpc.errors import CODES
from relay.v1 import recurrence_service_pb2 as pb
from tests.hostile.conftest import GROUP
from tests.hostile.filling import filled
from tests.hostile.mutation import damaged
from tests.hostile.targets import INTERNALS
from tests.rpc.test_unreadable import METHODS, hostile
from tests.worlds.relay.processes import CHANNEL, Relay

pytestmark = GROUP

DOCUMENTED = {CODES[each.code] for each in KINDS.values()} - {CODES[INTERNAL.code]}
"""The statuses of errors; see docs/reference/protocol.md."""

VARIANTS = 4
INPUTS = 80
SOON = 30.0
"""Seconds within which a call ends, on a machine that is busy with other things."""

WORDS = (
    *(
        b"\xff" * 9 + b"\x01",
        b"\xff\xff\xff\xff\x0f",
        b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
        b"\x0b\x0c",
    ),
    *(
        b"\x0a\xff\xff\xff\xff\x07",
        b"\x12\x80\x80\x80\x80\x08",
        b"\x0a\x02\xc3\x28",
        b"\xfa\xff\xff\xff\x0f\x01x",
    ),
    *(b"\x0a\x03a\x00b", b"\x0a\x01{", b"\x0a\x81\x02" + b"n" * 257, b"\x1a\x00"),
)


@pytest.fixture(scope="module")
def channel(relay: Relay) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(relay.target, options=CHANNEL) as channel:
        yield channel


def inputs(method: MethodDescriptor) -> Iterator[bytes]:
    yield from hostile(method)
    valid = [filled(method.input_type, variant).SerializeToString() for variant in range(VARIANTS)]
    yield from damaged(method.full_name, valid, WORDS, INPUTS)


def ended(channel: Any, method: MethodDescriptor, raw: bytes) -> tuple[grpc.StatusCode, str]:
    """How a call with these bytes ends. A stream that goes on is left, and that counts as OK."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.client_streaming:
            for _ in channel.stream_stream(path)(iter([raw]), timeout=SOON):
                pass
        elif method.server_streaming:
            stream = channel.unary_stream(path)(raw, timeout=SOON)
            next(stream, None)
            stream.cancel()
        else:
            channel.unary_unary(path)(raw, timeout=SOON)
    except grpc.RpcError as error:
        call: Any = error
        return call.code(), call.details() or ""
    return grpc.StatusCode.OK, ""


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.full_name)
def test_every_method_answers_damaged_messages(
    relay: Relay, channel: grpc.Channel, method: MethodDescriptor
) -> None:
    """Flipped bits, cut messages, wire types of others, lengths without end: OK or a status that is
    documented, never UNKNOWN, INTERNAL or silence, and with words that fit into a trailer."""
    codes: Counter[grpc.StatusCode] = Counter()
    for raw in inputs(method):
        code, words = ended(channel, method, raw)
        codes[code] += 1
        assert code is grpc.StatusCode.OK or code in DOCUMENTED, (raw, code, words)
        assert len(words.encode()) <= MOST_BYTES, (raw, words)
        assert not INTERNALS.search(words), (raw, words)
    assert codes[grpc.StatusCode.INVALID_ARGUMENT], codes
    assert relay.health() == "SERVING"


@pytest.mark.parametrize(
    "rule",
    [
        {"cron": "@every " + "1s" * 400_000},
        {"cron": "0 3 * * *", "zone": "Europe/" + "Berlin" * 200_000},
        {"cron": "0 3 * * *", "leave_out": ["x" * 200_000]},
        {"rrule": "FREQ=DAILY;BYHOUR=" + "ä" * 9_000},
    ],
    ids=["length", "zone", "date", "rrule"],
)
def test_what_is_far_too_long_is_refused_soon(channel: grpc.Channel, rule: dict[str, Any]) -> None:
    """The caller gets the status, whose message is far shorter than what it sent."""
    request = pb.PreviewRecurrenceRequest(rule=pb.RecurrenceRule(**rule))
    (method,) = [each for each in METHODS if each.name == "PreviewRecurrence"]
    code, words = ended(channel, method, request.SerializeToString())
    assert code is grpc.StatusCode.INVALID_ARGUMENT, words
    assert words.startswith("rule.")
