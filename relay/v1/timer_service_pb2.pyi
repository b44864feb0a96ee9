import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from relay.v1 import timer_pb2 as _timer_pb2
from relay.v1 import timer_history_pb2 as _timer_history_pb2
from relay.v1 import topic_service_pb2 as _topic_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ScheduleMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCHEDULE_MODE_UNSPECIFIED: _ClassVar[ScheduleMode]
    SCHEDULE_MODE_REPLACE: _ClassVar[ScheduleMode]
    SCHEDULE_MODE_CREATE: _ClassVar[ScheduleMode]

class OnConflict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_CONFLICT_UNSPECIFIED: _ClassVar[OnConflict]
    ON_CONFLICT_REPLACE: _ClassVar[OnConflict]
    ON_CONFLICT_KEEP_EARLIEST: _ClassVar[OnConflict]
    ON_CONFLICT_KEEP_LATEST: _ClassVar[OnConflict]
    ON_CONFLICT_KEEP_EXISTING: _ClassVar[OnConflict]
SCHEDULE_MODE_UNSPECIFIED: ScheduleMode
SCHEDULE_MODE_REPLACE: ScheduleMode
SCHEDULE_MODE_CREATE: ScheduleMode
ON_CONFLICT_UNSPECIFIED: OnConflict
ON_CONFLICT_REPLACE: OnConflict
ON_CONFLICT_KEEP_EARLIEST: OnConflict
ON_CONFLICT_KEEP_LATEST: OnConflict
ON_CONFLICT_KEEP_EXISTING: OnConflict

class ScheduleRequest(_message.Message):
    __slots__ = ("timer", "mode", "condition", "on_conflict", "durability", "expected_load")
    TIMER_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    ON_CONFLICT_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_LOAD_FIELD_NUMBER: _ClassVar[int]
    timer: _timer_pb2.TimerSpec
    mode: ScheduleMode
    condition: _timer_pb2.Condition
    on_conflict: OnConflict
    durability: str
    expected_load: bool
    def __init__(self, timer: _Optional[_Union[_timer_pb2.TimerSpec, _Mapping]] = ..., mode: _Optional[_Union[ScheduleMode, str]] = ..., condition: _Optional[_Union[_timer_pb2.Condition, _Mapping]] = ..., on_conflict: _Optional[_Union[OnConflict, str]] = ..., durability: _Optional[str] = ..., expected_load: bool = ...) -> None: ...

class ScheduleResponse(_message.Message):
    __slots__ = ("timer", "replaced", "result", "delivery_under_way", "reached", "sealed_with_subject", "expected_load")
    TIMER_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    SEALED_WITH_SUBJECT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_LOAD_FIELD_NUMBER: _ClassVar[int]
    timer: _timer_pb2.Timer
    replaced: bool
    result: _timer_pb2.ChangeResult
    delivery_under_way: bool
    reached: str
    sealed_with_subject: bool
    expected_load: ExpectedLoad
    def __init__(self, timer: _Optional[_Union[_timer_pb2.Timer, _Mapping]] = ..., replaced: bool = ..., result: _Optional[_Union[_timer_pb2.ChangeResult, str]] = ..., delivery_under_way: bool = ..., reached: _Optional[str] = ..., sealed_with_subject: bool = ..., expected_load: _Optional[_Union[ExpectedLoad, _Mapping]] = ...) -> None: ...

class ExpectedLoad(_message.Message):
    __slots__ = ("lateness", "rate", "timers_in_minute", "as_of")
    LATENESS_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    TIMERS_IN_MINUTE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    lateness: _duration_pb2.Duration
    rate: float
    timers_in_minute: int
    as_of: _timestamp_pb2.Timestamp
    def __init__(self, lateness: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., rate: _Optional[float] = ..., timers_in_minute: _Optional[int] = ..., as_of: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ScheduleBatchRequest(_message.Message):
    __slots__ = ("timers", "mode", "on_conflict", "durability")
    TIMERS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    ON_CONFLICT_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    timers: _containers.RepeatedCompositeFieldContainer[_timer_pb2.TimerSpec]
    mode: ScheduleMode
    on_conflict: OnConflict
    durability: str
    def __init__(self, timers: _Optional[_Iterable[_Union[_timer_pb2.TimerSpec, _Mapping]]] = ..., mode: _Optional[_Union[ScheduleMode, str]] = ..., on_conflict: _Optional[_Union[OnConflict, str]] = ..., durability: _Optional[str] = ...) -> None: ...

class ScheduleBatchResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ScheduleResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ScheduleResult, _Mapping]]] = ...) -> None: ...

class ScheduleResult(_message.Message):
    __slots__ = ("scheduled", "error")
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    scheduled: ScheduleResponse
    error: ItemError
    def __init__(self, scheduled: _Optional[_Union[ScheduleResponse, _Mapping]] = ..., error: _Optional[_Union[ItemError, _Mapping]] = ...) -> None: ...

class ItemError(_message.Message):
    __slots__ = ("code", "message", "field", "reason")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    field: str
    reason: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., field: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ScheduleColumnsRequest(_message.Message):
    __slots__ = ("topic", "timer_ids", "payloads", "due_times_us", "delays_us", "headers", "content_type", "mode", "on_conflict", "debounce", "at_most", "spread", "durability", "seal_with", "occurrence_ids")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIMER_IDS_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    DUE_TIMES_US_FIELD_NUMBER: _ClassVar[int]
    DELAYS_US_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    ON_CONFLICT_FIELD_NUMBER: _ClassVar[int]
    DEBOUNCE_FIELD_NUMBER: _ClassVar[int]
    AT_MOST_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    SEAL_WITH_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCE_IDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    timer_ids: _containers.RepeatedScalarFieldContainer[str]
    payloads: _containers.RepeatedScalarFieldContainer[bytes]
    due_times_us: _containers.RepeatedScalarFieldContainer[int]
    delays_us: _containers.RepeatedScalarFieldContainer[int]
    headers: _containers.ScalarMap[str, str]
    content_type: str
    mode: ScheduleMode
    on_conflict: OnConflict
    debounce: _duration_pb2.Duration
    at_most: _duration_pb2.Duration
    spread: _duration_pb2.Duration
    durability: str
    seal_with: _containers.RepeatedScalarFieldContainer[str]
    occurrence_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., timer_ids: _Optional[_Iterable[str]] = ..., payloads: _Optional[_Iterable[bytes]] = ..., due_times_us: _Optional[_Iterable[int]] = ..., delays_us: _Optional[_Iterable[int]] = ..., headers: _Optional[_Mapping[str, str]] = ..., content_type: _Optional[str] = ..., mode: _Optional[_Union[ScheduleMode, str]] = ..., on_conflict: _Optional[_Union[OnConflict, str]] = ..., debounce: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., at_most: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., spread: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., durability: _Optional[str] = ..., seal_with: _Optional[_Iterable[str]] = ..., occurrence_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ScheduleColumnsResponse(_message.Message):
    __slots__ = ("due_times_us", "results", "errors", "deliveries_under_way", "reached", "sealed_with_subject")
    class ErrorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: ItemError
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[ItemError, _Mapping]] = ...) -> None: ...
    DUE_TIMES_US_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    SEALED_WITH_SUBJECT_FIELD_NUMBER: _ClassVar[int]
    due_times_us: _containers.RepeatedScalarFieldContainer[int]
    results: _containers.RepeatedScalarFieldContainer[_timer_pb2.ChangeResult]
    errors: _containers.MessageMap[int, ItemError]
    deliveries_under_way: _containers.RepeatedScalarFieldContainer[int]
    reached: str
    sealed_with_subject: bool
    def __init__(self, due_times_us: _Optional[_Iterable[int]] = ..., results: _Optional[_Iterable[_Union[_timer_pb2.ChangeResult, str]]] = ..., errors: _Optional[_Mapping[int, ItemError]] = ..., deliveries_under_way: _Optional[_Iterable[int]] = ..., reached: _Optional[str] = ..., sealed_with_subject: bool = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("topic", "timer_id", "condition", "durability")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIMER_ID_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    timer_id: str
    condition: _timer_pb2.Condition
    durability: str
    def __init__(self, topic: _Optional[str] = ..., timer_id: _Optional[str] = ..., condition: _Optional[_Union[_timer_pb2.Condition, _Mapping]] = ..., durability: _Optional[str] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("cancelled", "result", "message", "delivery_under_way", "reached")
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    cancelled: bool
    result: _timer_pb2.ChangeResult
    message: str
    delivery_under_way: bool
    reached: str
    def __init__(self, cancelled: bool = ..., result: _Optional[_Union[_timer_pb2.ChangeResult, str]] = ..., message: _Optional[str] = ..., delivery_under_way: bool = ..., reached: _Optional[str] = ...) -> None: ...

class RunTimerRequest(_message.Message):
    __slots__ = ("topic", "timer_id", "durability", "note")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIMER_ID_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    timer_id: str
    durability: str
    note: str
    def __init__(self, topic: _Optional[str] = ..., timer_id: _Optional[str] = ..., durability: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class RunTimerResponse(_message.Message):
    __slots__ = ("result", "delivery_under_way", "reached")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    result: _timer_pb2.ChangeResult
    delivery_under_way: bool
    reached: str
    def __init__(self, result: _Optional[_Union[_timer_pb2.ChangeResult, str]] = ..., delivery_under_way: bool = ..., reached: _Optional[str] = ...) -> None: ...

class GetTimerRequest(_message.Message):
    __slots__ = ("topic", "timer_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIMER_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    timer_id: str
    def __init__(self, topic: _Optional[str] = ..., timer_id: _Optional[str] = ...) -> None: ...

class GetTimerResponse(_message.Message):
    __slots__ = ("timer",)
    TIMER_FIELD_NUMBER: _ClassVar[int]
    timer: _timer_pb2.Timer
    def __init__(self, timer: _Optional[_Union[_timer_pb2.Timer, _Mapping]] = ...) -> None: ...

class ListTimersRequest(_message.Message):
    __slots__ = ("topic", "state", "page_size", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    state: _timer_pb2.TimerState
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., state: _Optional[_Union[_timer_pb2.TimerState, str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTimersResponse(_message.Message):
    __slots__ = ("timers", "next_page_token")
    TIMERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    timers: _containers.RepeatedCompositeFieldContainer[_timer_pb2.Timer]
    next_page_token: str
    def __init__(self, timers: _Optional[_Iterable[_Union[_timer_pb2.Timer, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetTimerHistoryRequest(_message.Message):
    __slots__ = ("topic", "timer_id", "page_size", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIMER_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    timer_id: str
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., timer_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class GetTimerHistoryResponse(_message.Message):
    __slots__ = ("standing", "timer", "dead_letters", "as_of_time", "paused_until_time", "events", "next_page_token", "events_missing")
    STANDING_FIELD_NUMBER: _ClassVar[int]
    TIMER_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    AS_OF_TIME_FIELD_NUMBER: _ClassVar[int]
    PAUSED_UNTIL_TIME_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EVENTS_MISSING_FIELD_NUMBER: _ClassVar[int]
    standing: _timer_history_pb2.TimerStanding
    timer: _timer_pb2.Timer
    dead_letters: _containers.RepeatedCompositeFieldContainer[_topic_service_pb2.DeadLetter]
    as_of_time: _timestamp_pb2.Timestamp
    paused_until_time: _timestamp_pb2.Timestamp
    events: _containers.RepeatedCompositeFieldContainer[_timer_history_pb2.TimerEvent]
    next_page_token: str
    events_missing: str
    def __init__(self, standing: _Optional[_Union[_timer_history_pb2.TimerStanding, str]] = ..., timer: _Optional[_Union[_timer_pb2.Timer, _Mapping]] = ..., dead_letters: _Optional[_Iterable[_Union[_topic_service_pb2.DeadLetter, _Mapping]]] = ..., as_of_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., paused_until_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., events: _Optional[_Iterable[_Union[_timer_history_pb2.TimerEvent, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., events_missing: _Optional[str] = ...) -> None: ...
