"""What the two doubles of a relay say alike: the commands' in tests/cli, and the client's scripted relay.

tests/contract/test_doubles.py holds both to a real relay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped, unused-ignore]

M = TypeVar("M", bound=Message)


def without_content(whole: M) -> M:
    """A timer or a dead letter as lists and answers to changes have it."""
    bare = type(whole)()
    bare.CopyFrom(whole)
    for content in ("payload", "headers", "content_type"):
        bare.ClearField(content)
    return bare


def bad_field(field: str, message: str) -> Message:
    """The detail of an INVALID_ARGUMENT that names a field."""
    violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=message)
    detail: Message = error_details_pb2.BadRequest(field_violations=[violation])
    return detail


def trailers(
    code: grpc.StatusCode, message: str, details: Sequence[Message]
) -> tuple[tuple[str, bytes], ...]:
    """The trailing metadata of a status that has these details."""
    status = status_pb2.Status(code=code.value[0], message=message)
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return (("grpc-status-details-bin", status.SerializeToString()),)
