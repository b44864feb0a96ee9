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

class TimerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIMER_STATE_UNSPECIFIED: _ClassVar[TimerState]
    TIMER_STATE_PENDING: _ClassVar[TimerState]
    TIMER_STATE_LEASED: _ClassVar[TimerState]
TIMER_STATE_UNSPECIFIED: TimerState
TIMER_STATE_PENDING: TimerState
TIMER_STATE_LEASED: TimerState

class TimerSpec(_message.Message):
    __slots__ = ("topic", "timer_id", "due_time", "delay", "payload", "headers", "content_type")
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
    topic: str
    timer_id: str
    due_time: _timestamp_pb2.Timestamp
    delay: _duration_pb2.Duration
    payload: bytes
    headers: _containers.ScalarMap[str, str]
    content_type: str
    def __init__(self, topic: _Optional[str] = ..., timer_id: _Optional[str] = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., payload: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., content_type: _Optional[str] = ...) -> None: ...

class Timer(_message.Message):
    __slots__ = ("topic", "timer_id", "due_time", "payload", "headers", "content_type", "state", "attempts", "next_claim_time")
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
    topic: str
    timer_id: str
    due_time: _timestamp_pb2.Timestamp
    payload: bytes
    headers: _containers.ScalarMap[str, str]
    content_type: str
    state: TimerState
    attempts: int
    next_claim_time: _timestamp_pb2.Timestamp
    def __init__(self, topic: _Optional[str] = ..., timer_id: _Optional[str] = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., payload: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., content_type: _Optional[str] = ..., state: _Optional[_Union[TimerState, str]] = ..., attempts: _Optional[int] = ..., next_claim_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
