import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RedriveResult(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REDRIVE_RESULT_UNSPECIFIED: _ClassVar[RedriveResult]
    REDRIVE_RESULT_REDRIVEN: _ClassVar[RedriveResult]
    REDRIVE_RESULT_NOT_FOUND: _ClassVar[RedriveResult]
    REDRIVE_RESULT_CONFLICT: _ClassVar[RedriveResult]
REDRIVE_RESULT_UNSPECIFIED: RedriveResult
REDRIVE_RESULT_REDRIVEN: RedriveResult
REDRIVE_RESULT_NOT_FOUND: RedriveResult
REDRIVE_RESULT_CONFLICT: RedriveResult

class ListTopicsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "next_page_token")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    next_page_token: str
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("topic", "timers", "due", "next_claim_time", "dead", "oldest_death_time", "paused", "paused_until", "error", "dispatch", "ready", "processing", "entries", "groups", "partitions", "moving_to", "scheduled_here", "delivered_here")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIMERS_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CLAIM_TIME_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    OLDEST_DEATH_TIME_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    PAUSED_UNTIL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MOVING_TO_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_HERE_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_HERE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    timers: int
    due: int
    next_claim_time: _timestamp_pb2.Timestamp
    dead: int
    oldest_death_time: _timestamp_pb2.Timestamp
    paused: bool
    paused_until: _timestamp_pb2.Timestamp
    error: str
    dispatch: str
    ready: int
    processing: int
    entries: int
    groups: _containers.RepeatedCompositeFieldContainer[TopicGroup]
    partitions: int
    moving_to: int
    scheduled_here: int
    delivered_here: int
    def __init__(self, topic: _Optional[str] = ..., timers: _Optional[int] = ..., due: _Optional[int] = ..., next_claim_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., dead: _Optional[int] = ..., oldest_death_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., paused: bool = ..., paused_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., error: _Optional[str] = ..., dispatch: _Optional[str] = ..., ready: _Optional[int] = ..., processing: _Optional[int] = ..., entries: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[TopicGroup, _Mapping]]] = ..., partitions: _Optional[int] = ..., moving_to: _Optional[int] = ..., scheduled_here: _Optional[int] = ..., delivered_here: _Optional[int] = ...) -> None: ...

class TopicGroup(_message.Message):
    __slots__ = ("group", "pending", "unread", "waiting", "consumers")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    UNREAD_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    group: str
    pending: int
    unread: int
    waiting: int
    consumers: int
    def __init__(self, group: _Optional[str] = ..., pending: _Optional[int] = ..., unread: _Optional[int] = ..., waiting: _Optional[int] = ..., consumers: _Optional[int] = ...) -> None: ...

class GetTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class PauseTopicRequest(_message.Message):
    __slots__ = ("topic", "until", "duration", "durability", "note")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    until: _timestamp_pb2.Timestamp
    duration: _duration_pb2.Duration
    durability: str
    note: str
    def __init__(self, topic: _Optional[str] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., durability: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class PauseTopicResponse(_message.Message):
    __slots__ = ("topic", "reached")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    reached: str
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., reached: _Optional[str] = ...) -> None: ...

class ResumeTopicRequest(_message.Message):
    __slots__ = ("topic", "durability", "note")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    durability: str
    note: str
    def __init__(self, topic: _Optional[str] = ..., durability: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class ResumeTopicResponse(_message.Message):
    __slots__ = ("topic", "reached")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    reached: str
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., reached: _Optional[str] = ...) -> None: ...

class ReshardTopicRequest(_message.Message):
    __slots__ = ("topic", "partitions", "max_rate", "note")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_RATE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: int
    max_rate: int
    note: str
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[int] = ..., max_rate: _Optional[int] = ..., note: _Optional[str] = ...) -> None: ...

class ReshardTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class ForecastRequest(_message.Message):
    __slots__ = ("topic", "horizon", "resolution")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    horizon: _duration_pb2.Duration
    resolution: _duration_pb2.Duration
    def __init__(self, topic: _Optional[str] = ..., horizon: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., resolution: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ForecastResponse(_message.Message):
    __slots__ = ("topic", "as_of", "overdue", "leased", "intervals", "later", "occurrences_until", "unread_recurrences", "cold")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    INTERVALS_FIELD_NUMBER: _ClassVar[int]
    LATER_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCES_UNTIL_FIELD_NUMBER: _ClassVar[int]
    UNREAD_RECURRENCES_FIELD_NUMBER: _ClassVar[int]
    COLD_FIELD_NUMBER: _ClassVar[int]
    topic: str
    as_of: _timestamp_pb2.Timestamp
    overdue: int
    leased: int
    intervals: _containers.RepeatedCompositeFieldContainer[ForecastInterval]
    later: int
    occurrences_until: _timestamp_pb2.Timestamp
    unread_recurrences: int
    cold: ColdForecast
    def __init__(self, topic: _Optional[str] = ..., as_of: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., overdue: _Optional[int] = ..., leased: _Optional[int] = ..., intervals: _Optional[_Iterable[_Union[ForecastInterval, _Mapping]]] = ..., later: _Optional[int] = ..., occurrences_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., unread_recurrences: _Optional[int] = ..., cold: _Optional[_Union[ColdForecast, _Mapping]] = ...) -> None: ...

class ColdForecast(_message.Message):
    __slots__ = ("count_time", "overdue", "later")
    COUNT_TIME_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_FIELD_NUMBER: _ClassVar[int]
    LATER_FIELD_NUMBER: _ClassVar[int]
    count_time: _timestamp_pb2.Timestamp
    overdue: int
    later: int
    def __init__(self, count_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., overdue: _Optional[int] = ..., later: _Optional[int] = ...) -> None: ...

class ForecastInterval(_message.Message):
    __slots__ = ("start_time", "end_time", "timers", "occurrences", "cold")
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    TIMERS_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCES_FIELD_NUMBER: _ClassVar[int]
    COLD_FIELD_NUMBER: _ClassVar[int]
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    timers: int
    occurrences: int
    cold: int
    def __init__(self, start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., timers: _Optional[int] = ..., occurrences: _Optional[int] = ..., cold: _Optional[int] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("topic", "timer_id", "dead_id", "reason", "attempts", "last_error", "due_time", "death_time", "occurrence_id", "payload", "headers", "content_type", "group", "content_withheld")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIMER_ID_FIELD_NUMBER: _ClassVar[int]
    DEAD_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    DEATH_TIME_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCE_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONTENT_WITHHELD_FIELD_NUMBER: _ClassVar[int]
    topic: str
    timer_id: str
    dead_id: str
    reason: str
    attempts: int
    last_error: str
    due_time: _timestamp_pb2.Timestamp
    death_time: _timestamp_pb2.Timestamp
    occurrence_id: str
    payload: bytes
    headers: _containers.ScalarMap[str, str]
    content_type: str
    group: str
    content_withheld: bool
    def __init__(self, topic: _Optional[str] = ..., timer_id: _Optional[str] = ..., dead_id: _Optional[str] = ..., reason: _Optional[str] = ..., attempts: _Optional[int] = ..., last_error: _Optional[str] = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., death_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., occurrence_id: _Optional[str] = ..., payload: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., content_type: _Optional[str] = ..., group: _Optional[str] = ..., content_withheld: bool = ...) -> None: ...

class ListDeadLettersRequest(_message.Message):
    __slots__ = ("topic", "filter", "page_size", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    filter: DeadLetterFilter
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., filter: _Optional[_Union[DeadLetterFilter, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class DeadLetterFilter(_message.Message):
    __slots__ = ("timer_id", "reason", "died_since", "died_before")
    TIMER_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DIED_SINCE_FIELD_NUMBER: _ClassVar[int]
    DIED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    timer_id: str
    reason: str
    died_since: _timestamp_pb2.Timestamp
    died_before: _timestamp_pb2.Timestamp
    def __init__(self, timer_id: _Optional[str] = ..., reason: _Optional[str] = ..., died_since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., died_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListDeadLettersResponse(_message.Message):
    __slots__ = ("dead_letters", "next_page_token")
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    dead_letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    next_page_token: str
    def __init__(self, dead_letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetDeadLetterRequest(_message.Message):
    __slots__ = ("topic", "dead_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEAD_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    dead_id: str
    def __init__(self, topic: _Optional[str] = ..., dead_id: _Optional[str] = ...) -> None: ...

class GetDeadLetterResponse(_message.Message):
    __slots__ = ("dead_letter",)
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    dead_letter: DeadLetter
    def __init__(self, dead_letter: _Optional[_Union[DeadLetter, _Mapping]] = ...) -> None: ...

class RedriveDeadLettersRequest(_message.Message):
    __slots__ = ("topic", "dead_ids", "durability", "note")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEAD_IDS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    dead_ids: _containers.RepeatedScalarFieldContainer[str]
    durability: str
    note: str
    def __init__(self, topic: _Optional[str] = ..., dead_ids: _Optional[_Iterable[str]] = ..., durability: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class RedriveDeadLettersResponse(_message.Message):
    __slots__ = ("results", "reached")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedScalarFieldContainer[RedriveResult]
    reached: str
    def __init__(self, results: _Optional[_Iterable[_Union[RedriveResult, str]]] = ..., reached: _Optional[str] = ...) -> None: ...

class PurgeDeadLettersRequest(_message.Message):
    __slots__ = ("topic", "dead_ids", "durability", "note")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEAD_IDS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    dead_ids: _containers.RepeatedScalarFieldContainer[str]
    durability: str
    note: str
    def __init__(self, topic: _Optional[str] = ..., dead_ids: _Optional[_Iterable[str]] = ..., durability: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class PurgeDeadLettersResponse(_message.Message):
    __slots__ = ("purged", "reached")
    PURGED_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    purged: int
    reached: str
    def __init__(self, purged: _Optional[int] = ..., reached: _Optional[str] = ...) -> None: ...

class ForgetSubjectRequest(_message.Message):
    __slots__ = ("topic", "subject", "durability", "note")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subject: str
    durability: str
    note: str
    def __init__(self, topic: _Optional[str] = ..., subject: _Optional[str] = ..., durability: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class ForgetSubjectResponse(_message.Message):
    __slots__ = ("forget_time", "reached")
    FORGET_TIME_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    forget_time: _timestamp_pb2.Timestamp
    reached: str
    def __init__(self, forget_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reached: _Optional[str] = ...) -> None: ...
