import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ChangeResult(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHANGE_RESULT_UNSPECIFIED: _ClassVar[ChangeResult]
    CHANGE_RESULT_CREATED: _ClassVar[ChangeResult]
    CHANGE_RESULT_REPLACED: _ClassVar[ChangeResult]
    CHANGE_RESULT_UNCHANGED: _ClassVar[ChangeResult]
    CHANGE_RESULT_IN_FLIGHT: _ClassVar[ChangeResult]
    CHANGE_RESULT_CANCELLED: _ClassVar[ChangeResult]
    CHANGE_RESULT_NOT_FOUND: _ClassVar[ChangeResult]
    CHANGE_RESULT_RUN: _ClassVar[ChangeResult]

class TimerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIMER_STATE_UNSPECIFIED: _ClassVar[TimerState]
    TIMER_STATE_PENDING: _ClassVar[TimerState]
    TIMER_STATE_LEASED: _ClassVar[TimerState]
CHANGE_RESULT_UNSPECIFIED: ChangeResult
CHANGE_RESULT_CREATED: ChangeResult
CHANGE_RESULT_REPLACED: ChangeResult
CHANGE_RESULT_UNCHANGED: ChangeResult
CHANGE_RESULT_IN_FLIGHT: ChangeResult
CHANGE_RESULT_CANCELLED: ChangeResult
CHANGE_RESULT_NOT_FOUND: ChangeResult
CHANGE_RESULT_RUN: ChangeResult
TIMER_STATE_UNSPECIFIED: TimerState
TIMER_STATE_PENDING: TimerState
TIMER_STATE_LEASED: TimerState

class TimerSpec(_message.Message):
    __slots__ = ("topic", "timer_id", "due_time", "delay", "payload", "headers", "content_type", "expire_time", "expire_after", "debounce", "at_most", "spread", "seal_with", "occurrence_id")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIMER_ID_FIELD_NUMBER: _ClassVar[int]
    DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_AFTER_FIELD_NUMBER: _ClassVar[int]
    DEBOUNCE_FIELD_NUMBER: _ClassVar[int]
    AT_MOST_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    SEAL_WITH_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    timer_id: str
    due_time: _timestamp_pb2.Timestamp
    delay: _duration_pb2.Duration
    payload: bytes
    headers: _containers.ScalarMap[str, str]
    content_type: str
    expire_time: _timestamp_pb2.Timestamp
    expire_after: _duration_pb2.Duration
    debounce: _duration_pb2.Duration
    at_most: _duration_pb2.Duration
    spread: _duration_pb2.Duration
    seal_with: str
    occurrence_id: str
    def __init__(self, topic: _Optional[str] = ..., timer_id: _Optional[str] = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., payload: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., content_type: _Optional[str] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., debounce: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., at_most: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., spread: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., seal_with: _Optional[str] = ..., occurrence_id: _Optional[str] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("only_if_pending", "due_time", "only_if_leased")
    ONLY_IF_PENDING_FIELD_NUMBER: _ClassVar[int]
    DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    ONLY_IF_LEASED_FIELD_NUMBER: _ClassVar[int]
    only_if_pending: bool
    due_time: _timestamp_pb2.Timestamp
    only_if_leased: bool
    def __init__(self, only_if_pending: bool = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., only_if_leased: bool = ...) -> None: ...

class Timer(_message.Message):
    __slots__ = ("topic", "timer_id", "due_time", "payload", "headers", "content_type", "state", "attempts", "next_claim_time", "content_withheld")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIMER_ID_FIELD_NUMBER: _ClassVar[int]
    DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CLAIM_TIME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_WITHHELD_FIELD_NUMBER: _ClassVar[int]
    topic: str
    timer_id: str
    due_time: _timestamp_pb2.Timestamp
    payload: bytes
    headers: _containers.ScalarMap[str, str]
    content_type: str
    state: TimerState
    attempts: int
    next_claim_time: _timestamp_pb2.Timestamp
    content_withheld: bool
    def __init__(self, topic: _Optional[str] = ..., timer_id: _Optional[str] = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., payload: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., content_type: _Optional[str] = ..., state: _Optional[_Union[TimerState, str]] = ..., attempts: _Optional[int] = ..., next_claim_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., content_withheld: bool = ...) -> None: ...
