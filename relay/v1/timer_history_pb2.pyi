import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TimerStanding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIMER_STANDING_UNSPECIFIED: _ClassVar[TimerStanding]
    TIMER_STANDING_WAITING: _ClassVar[TimerStanding]
    TIMER_STANDING_DUE: _ClassVar[TimerStanding]
    TIMER_STANDING_LEASED: _ClassVar[TimerStanding]
    TIMER_STANDING_DEAD: _ClassVar[TimerStanding]
    TIMER_STANDING_ABSENT: _ClassVar[TimerStanding]
TIMER_STANDING_UNSPECIFIED: TimerStanding
TIMER_STANDING_WAITING: TimerStanding
TIMER_STANDING_DUE: TimerStanding
TIMER_STANDING_LEASED: TimerStanding
TIMER_STANDING_DEAD: TimerStanding
TIMER_STANDING_ABSENT: TimerStanding

class TimerEvent(_message.Message):
    __slots__ = ("time", "kind", "relay", "principal", "due_time", "previous_due_time", "next_claim_time", "expire_time", "attempts", "claims", "received", "reason", "error", "lease", "occurrence_id", "dead_id", "adopted", "refused", "recurrence_id", "partition", "other_partition", "entry")
    TIME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RELAY_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    NEXT_CLAIM_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCE_ID_FIELD_NUMBER: _ClassVar[int]
    DEAD_ID_FIELD_NUMBER: _ClassVar[int]
    ADOPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    RECURRENCE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OTHER_PARTITION_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    kind: str
    relay: str
    principal: str
    due_time: _timestamp_pb2.Timestamp
    previous_due_time: _timestamp_pb2.Timestamp
    next_claim_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    attempts: int
    claims: int
    received: bool
    reason: str
    error: str
    lease: str
    occurrence_id: str
    dead_id: str
    adopted: str
    refused: str
    recurrence_id: str
    partition: int
    other_partition: int
    entry: str
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kind: _Optional[str] = ..., relay: _Optional[str] = ..., principal: _Optional[str] = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., previous_due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., next_claim_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attempts: _Optional[int] = ..., claims: _Optional[int] = ..., received: bool = ..., reason: _Optional[str] = ..., error: _Optional[str] = ..., lease: _Optional[str] = ..., occurrence_id: _Optional[str] = ..., dead_id: _Optional[str] = ..., adopted: _Optional[str] = ..., refused: _Optional[str] = ..., recurrence_id: _Optional[str] = ..., partition: _Optional[int] = ..., other_partition: _Optional[int] = ..., entry: _Optional[str] = ...) -> None: ...
