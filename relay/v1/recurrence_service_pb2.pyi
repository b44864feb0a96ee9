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

class GapPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GAP_POLICY_UNSPECIFIED: _ClassVar[GapPolicy]
    GAP_POLICY_SHIFT: _ClassVar[GapPolicy]
    GAP_POLICY_SKIP: _ClassVar[GapPolicy]

class FoldPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FOLD_POLICY_UNSPECIFIED: _ClassVar[FoldPolicy]
    FOLD_POLICY_FIRST: _ClassVar[FoldPolicy]
    FOLD_POLICY_SECOND: _ClassVar[FoldPolicy]
    FOLD_POLICY_BOTH: _ClassVar[FoldPolicy]

class OverlapPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OVERLAP_POLICY_UNSPECIFIED: _ClassVar[OverlapPolicy]
    OVERLAP_POLICY_SKIP: _ClassVar[OverlapPolicy]
    OVERLAP_POLICY_BUFFER: _ClassVar[OverlapPolicy]
    OVERLAP_POLICY_ALLOW: _ClassVar[OverlapPolicy]
    OVERLAP_POLICY_CANCEL: _ClassVar[OverlapPolicy]

class CatchUpPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CATCH_UP_POLICY_UNSPECIFIED: _ClassVar[CatchUpPolicy]
    CATCH_UP_POLICY_LATEST: _ClassVar[CatchUpPolicy]
    CATCH_UP_POLICY_ALL: _ClassVar[CatchUpPolicy]
    CATCH_UP_POLICY_NONE: _ClassVar[CatchUpPolicy]

class PutResult(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PUT_RESULT_UNSPECIFIED: _ClassVar[PutResult]
    PUT_RESULT_CREATED: _ClassVar[PutResult]
    PUT_RESULT_REPLACED: _ClassVar[PutResult]
    PUT_RESULT_UNCHANGED: _ClassVar[PutResult]

class OccurrenceOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OCCURRENCE_OUTCOME_UNSPECIFIED: _ClassVar[OccurrenceOutcome]
    OCCURRENCE_OUTCOME_WAITING: _ClassVar[OccurrenceOutcome]
    OCCURRENCE_OUTCOME_LEASED: _ClassVar[OccurrenceOutcome]
    OCCURRENCE_OUTCOME_ACKED: _ClassVar[OccurrenceOutcome]
    OCCURRENCE_OUTCOME_DEAD: _ClassVar[OccurrenceOutcome]
    OCCURRENCE_OUTCOME_EXPIRED: _ClassVar[OccurrenceOutcome]
    OCCURRENCE_OUTCOME_CANCELLED: _ClassVar[OccurrenceOutcome]
    OCCURRENCE_OUTCOME_PROMOTED: _ClassVar[OccurrenceOutcome]
    OCCURRENCE_OUTCOME_REMOVED: _ClassVar[OccurrenceOutcome]
    OCCURRENCE_OUTCOME_UNKNOWN: _ClassVar[OccurrenceOutcome]
GAP_POLICY_UNSPECIFIED: GapPolicy
GAP_POLICY_SHIFT: GapPolicy
GAP_POLICY_SKIP: GapPolicy
FOLD_POLICY_UNSPECIFIED: FoldPolicy
FOLD_POLICY_FIRST: FoldPolicy
FOLD_POLICY_SECOND: FoldPolicy
FOLD_POLICY_BOTH: FoldPolicy
OVERLAP_POLICY_UNSPECIFIED: OverlapPolicy
OVERLAP_POLICY_SKIP: OverlapPolicy
OVERLAP_POLICY_BUFFER: OverlapPolicy
OVERLAP_POLICY_ALLOW: OverlapPolicy
OVERLAP_POLICY_CANCEL: OverlapPolicy
CATCH_UP_POLICY_UNSPECIFIED: CatchUpPolicy
CATCH_UP_POLICY_LATEST: CatchUpPolicy
CATCH_UP_POLICY_ALL: CatchUpPolicy
CATCH_UP_POLICY_NONE: CatchUpPolicy
PUT_RESULT_UNSPECIFIED: PutResult
PUT_RESULT_CREATED: PutResult
PUT_RESULT_REPLACED: PutResult
PUT_RESULT_UNCHANGED: PutResult
OCCURRENCE_OUTCOME_UNSPECIFIED: OccurrenceOutcome
OCCURRENCE_OUTCOME_WAITING: OccurrenceOutcome
OCCURRENCE_OUTCOME_LEASED: OccurrenceOutcome
OCCURRENCE_OUTCOME_ACKED: OccurrenceOutcome
OCCURRENCE_OUTCOME_DEAD: OccurrenceOutcome
OCCURRENCE_OUTCOME_EXPIRED: OccurrenceOutcome
OCCURRENCE_OUTCOME_CANCELLED: OccurrenceOutcome
OCCURRENCE_OUTCOME_PROMOTED: OccurrenceOutcome
OCCURRENCE_OUTCOME_REMOVED: OccurrenceOutcome
OCCURRENCE_OUTCOME_UNKNOWN: OccurrenceOutcome

class RecurrenceRule(_message.Message):
    __slots__ = ("cron", "rrule", "every", "anchor_time", "zone", "gap", "fold", "start_time", "end_time", "leave_out", "calendars")
    CRON_FIELD_NUMBER: _ClassVar[int]
    RRULE_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_TIME_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    FOLD_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    LEAVE_OUT_FIELD_NUMBER: _ClassVar[int]
    CALENDARS_FIELD_NUMBER: _ClassVar[int]
    cron: str
    rrule: str
    every: _duration_pb2.Duration
    anchor_time: _timestamp_pb2.Timestamp
    zone: str
    gap: GapPolicy
    fold: FoldPolicy
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    leave_out: _containers.RepeatedScalarFieldContainer[str]
    calendars: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cron: _Optional[str] = ..., rrule: _Optional[str] = ..., every: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., anchor_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., zone: _Optional[str] = ..., gap: _Optional[_Union[GapPolicy, str]] = ..., fold: _Optional[_Union[FoldPolicy, str]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., leave_out: _Optional[_Iterable[str]] = ..., calendars: _Optional[_Iterable[str]] = ...) -> None: ...

class RecurrenceSpec(_message.Message):
    __slots__ = ("topic", "recurrence_id", "rule", "payload", "headers", "content_type", "overlap", "catch_up", "catch_up_window", "jitter", "expire_after", "max_runs", "seal_with")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECURRENCE_ID_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_WINDOW_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_AFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNS_FIELD_NUMBER: _ClassVar[int]
    SEAL_WITH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    recurrence_id: str
    rule: RecurrenceRule
    payload: bytes
    headers: _containers.ScalarMap[str, str]
    content_type: str
    overlap: OverlapPolicy
    catch_up: CatchUpPolicy
    catch_up_window: _duration_pb2.Duration
    jitter: _duration_pb2.Duration
    expire_after: _duration_pb2.Duration
    max_runs: int
    seal_with: str
    def __init__(self, topic: _Optional[str] = ..., recurrence_id: _Optional[str] = ..., rule: _Optional[_Union[RecurrenceRule, _Mapping]] = ..., payload: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., content_type: _Optional[str] = ..., overlap: _Optional[_Union[OverlapPolicy, str]] = ..., catch_up: _Optional[_Union[CatchUpPolicy, str]] = ..., catch_up_window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., jitter: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., expire_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_runs: _Optional[int] = ..., seal_with: _Optional[str] = ...) -> None: ...

class Recurrence(_message.Message):
    __slots__ = ("spec", "version", "next_time", "last_timer_id", "last_time", "last_waits", "runs", "left_out", "buffered_time", "pause_time", "pause_note", "tzdata", "to_fill", "missing_calendars", "content_withheld", "forgotten")
    class LeftOutEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SPEC_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NEXT_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_TIMER_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_WAITS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    BUFFERED_TIME_FIELD_NUMBER: _ClassVar[int]
    PAUSE_TIME_FIELD_NUMBER: _ClassVar[int]
    PAUSE_NOTE_FIELD_NUMBER: _ClassVar[int]
    TZDATA_FIELD_NUMBER: _ClassVar[int]
    TO_FILL_FIELD_NUMBER: _ClassVar[int]
    MISSING_CALENDARS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_WITHHELD_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    spec: RecurrenceSpec
    version: int
    next_time: _timestamp_pb2.Timestamp
    last_timer_id: str
    last_time: _timestamp_pb2.Timestamp
    last_waits: bool
    runs: int
    left_out: _containers.ScalarMap[str, int]
    buffered_time: _timestamp_pb2.Timestamp
    pause_time: _timestamp_pb2.Timestamp
    pause_note: str
    tzdata: str
    to_fill: int
    missing_calendars: _containers.RepeatedScalarFieldContainer[str]
    content_withheld: bool
    forgotten: bool
    def __init__(self, spec: _Optional[_Union[RecurrenceSpec, _Mapping]] = ..., version: _Optional[int] = ..., next_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_timer_id: _Optional[str] = ..., last_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_waits: bool = ..., runs: _Optional[int] = ..., left_out: _Optional[_Mapping[str, int]] = ..., buffered_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., pause_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., pause_note: _Optional[str] = ..., tzdata: _Optional[str] = ..., to_fill: _Optional[int] = ..., missing_calendars: _Optional[_Iterable[str]] = ..., content_withheld: bool = ..., forgotten: bool = ...) -> None: ...

class PutRecurrenceRequest(_message.Message):
    __slots__ = ("recurrence", "if_version", "durability", "note")
    RECURRENCE_FIELD_NUMBER: _ClassVar[int]
    IF_VERSION_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    recurrence: RecurrenceSpec
    if_version: int
    durability: str
    note: str
    def __init__(self, recurrence: _Optional[_Union[RecurrenceSpec, _Mapping]] = ..., if_version: _Optional[int] = ..., durability: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class PutRecurrenceResponse(_message.Message):
    __slots__ = ("recurrence", "result", "reached", "sealed_with_subject")
    RECURRENCE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    SEALED_WITH_SUBJECT_FIELD_NUMBER: _ClassVar[int]
    recurrence: Recurrence
    result: PutResult
    reached: str
    sealed_with_subject: bool
    def __init__(self, recurrence: _Optional[_Union[Recurrence, _Mapping]] = ..., result: _Optional[_Union[PutResult, str]] = ..., reached: _Optional[str] = ..., sealed_with_subject: bool = ...) -> None: ...

class GetRecurrenceRequest(_message.Message):
    __slots__ = ("topic", "recurrence_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECURRENCE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    recurrence_id: str
    def __init__(self, topic: _Optional[str] = ..., recurrence_id: _Optional[str] = ...) -> None: ...

class GetRecurrenceResponse(_message.Message):
    __slots__ = ("recurrence",)
    RECURRENCE_FIELD_NUMBER: _ClassVar[int]
    recurrence: Recurrence
    def __init__(self, recurrence: _Optional[_Union[Recurrence, _Mapping]] = ...) -> None: ...

class ListRecurrencesRequest(_message.Message):
    __slots__ = ("topic", "prefix", "paused", "page_size", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    prefix: str
    paused: bool
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., prefix: _Optional[str] = ..., paused: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRecurrencesResponse(_message.Message):
    __slots__ = ("recurrences", "next_page_token")
    RECURRENCES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    recurrences: _containers.RepeatedCompositeFieldContainer[Recurrence]
    next_page_token: str
    def __init__(self, recurrences: _Optional[_Iterable[_Union[Recurrence, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PreviewRecurrenceRequest(_message.Message):
    __slots__ = ("rule", "count", "after_time", "topic")
    RULE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    AFTER_TIME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    rule: RecurrenceRule
    count: int
    after_time: _timestamp_pb2.Timestamp
    topic: str
    def __init__(self, rule: _Optional[_Union[RecurrenceRule, _Mapping]] = ..., count: _Optional[int] = ..., after_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., topic: _Optional[str] = ...) -> None: ...

class NominalInstant(_message.Message):
    __slots__ = ("time", "local_time", "left_out", "shifted")
    TIME_FIELD_NUMBER: _ClassVar[int]
    LOCAL_TIME_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    SHIFTED_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    local_time: str
    left_out: str
    shifted: _duration_pb2.Duration
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., local_time: _Optional[str] = ..., left_out: _Optional[str] = ..., shifted: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class PreviewRecurrenceResponse(_message.Message):
    __slots__ = ("instants", "tzdata")
    INSTANTS_FIELD_NUMBER: _ClassVar[int]
    TZDATA_FIELD_NUMBER: _ClassVar[int]
    instants: _containers.RepeatedCompositeFieldContainer[NominalInstant]
    tzdata: str
    def __init__(self, instants: _Optional[_Iterable[_Union[NominalInstant, _Mapping]]] = ..., tzdata: _Optional[str] = ...) -> None: ...

class PauseRecurrenceRequest(_message.Message):
    __slots__ = ("topic", "recurrence_id", "note", "durability")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECURRENCE_ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    recurrence_id: str
    note: str
    durability: str
    def __init__(self, topic: _Optional[str] = ..., recurrence_id: _Optional[str] = ..., note: _Optional[str] = ..., durability: _Optional[str] = ...) -> None: ...

class PauseRecurrenceResponse(_message.Message):
    __slots__ = ("recurrence", "reached")
    RECURRENCE_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    recurrence: Recurrence
    reached: str
    def __init__(self, recurrence: _Optional[_Union[Recurrence, _Mapping]] = ..., reached: _Optional[str] = ...) -> None: ...

class ResumeRecurrenceRequest(_message.Message):
    __slots__ = ("topic", "recurrence_id", "durability", "note")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECURRENCE_ID_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    recurrence_id: str
    durability: str
    note: str
    def __init__(self, topic: _Optional[str] = ..., recurrence_id: _Optional[str] = ..., durability: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class ResumeRecurrenceResponse(_message.Message):
    __slots__ = ("recurrence", "reached")
    RECURRENCE_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    recurrence: Recurrence
    reached: str
    def __init__(self, recurrence: _Optional[_Union[Recurrence, _Mapping]] = ..., reached: _Optional[str] = ...) -> None: ...

class TriggerRecurrenceRequest(_message.Message):
    __slots__ = ("topic", "recurrence_id", "durability", "note")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECURRENCE_ID_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    recurrence_id: str
    durability: str
    note: str
    def __init__(self, topic: _Optional[str] = ..., recurrence_id: _Optional[str] = ..., durability: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class TriggerRecurrenceResponse(_message.Message):
    __slots__ = ("timer_id", "reached")
    TIMER_ID_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    timer_id: str
    reached: str
    def __init__(self, timer_id: _Optional[str] = ..., reached: _Optional[str] = ...) -> None: ...

class BackfillRecurrenceRequest(_message.Message):
    __slots__ = ("topic", "recurrence_id", "start_time", "end_time", "interval", "overlap", "durability", "note")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECURRENCE_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    recurrence_id: str
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    interval: _duration_pb2.Duration
    overlap: OverlapPolicy
    durability: str
    note: str
    def __init__(self, topic: _Optional[str] = ..., recurrence_id: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., overlap: _Optional[_Union[OverlapPolicy, str]] = ..., durability: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class BackfillRecurrenceResponse(_message.Message):
    __slots__ = ("occurrences", "first_time", "last_time", "waiting", "reached")
    OCCURRENCES_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    occurrences: int
    first_time: _timestamp_pb2.Timestamp
    last_time: _timestamp_pb2.Timestamp
    waiting: int
    reached: str
    def __init__(self, occurrences: _Optional[int] = ..., first_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., waiting: _Optional[int] = ..., reached: _Optional[str] = ...) -> None: ...

class DeleteRecurrenceRequest(_message.Message):
    __slots__ = ("topic", "recurrence_id", "cancel_waiting", "durability", "note")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECURRENCE_ID_FIELD_NUMBER: _ClassVar[int]
    CANCEL_WAITING_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    recurrence_id: str
    cancel_waiting: bool
    durability: str
    note: str
    def __init__(self, topic: _Optional[str] = ..., recurrence_id: _Optional[str] = ..., cancel_waiting: bool = ..., durability: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class DeleteRecurrenceResponse(_message.Message):
    __slots__ = ("deleted", "cancelled", "reached")
    DELETED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    deleted: bool
    cancelled: int
    reached: str
    def __init__(self, deleted: bool = ..., cancelled: _Optional[int] = ..., reached: _Optional[str] = ...) -> None: ...

class GetRecurrenceHistoryRequest(_message.Message):
    __slots__ = ("topic", "recurrence_id", "limit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECURRENCE_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    recurrence_id: str
    limit: int
    def __init__(self, topic: _Optional[str] = ..., recurrence_id: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class PastInstant(_message.Message):
    __slots__ = ("time", "timer_id", "left_out", "lateness", "outcome", "reason", "attempts", "end_time")
    TIME_FIELD_NUMBER: _ClassVar[int]
    TIMER_ID_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    LATENESS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    timer_id: str
    left_out: str
    lateness: _duration_pb2.Duration
    outcome: OccurrenceOutcome
    reason: str
    attempts: int
    end_time: _timestamp_pb2.Timestamp
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., timer_id: _Optional[str] = ..., left_out: _Optional[str] = ..., lateness: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., outcome: _Optional[_Union[OccurrenceOutcome, str]] = ..., reason: _Optional[str] = ..., attempts: _Optional[int] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetRecurrenceHistoryResponse(_message.Message):
    __slots__ = ("instants", "outcomes_missing")
    INSTANTS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_MISSING_FIELD_NUMBER: _ClassVar[int]
    instants: _containers.RepeatedCompositeFieldContainer[PastInstant]
    outcomes_missing: str
    def __init__(self, instants: _Optional[_Iterable[_Union[PastInstant, _Mapping]]] = ..., outcomes_missing: _Optional[str] = ...) -> None: ...

class Calendar(_message.Message):
    __slots__ = ("name", "dates")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATES_FIELD_NUMBER: _ClassVar[int]
    name: str
    dates: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., dates: _Optional[_Iterable[str]] = ...) -> None: ...

class PutCalendarRequest(_message.Message):
    __slots__ = ("calendar", "durability", "note")
    CALENDAR_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    calendar: Calendar
    durability: str
    note: str
    def __init__(self, calendar: _Optional[_Union[Calendar, _Mapping]] = ..., durability: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class PutCalendarResponse(_message.Message):
    __slots__ = ("calendar", "result", "reached")
    CALENDAR_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    calendar: Calendar
    result: PutResult
    reached: str
    def __init__(self, calendar: _Optional[_Union[Calendar, _Mapping]] = ..., result: _Optional[_Union[PutResult, str]] = ..., reached: _Optional[str] = ...) -> None: ...

class GetCalendarRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetCalendarResponse(_message.Message):
    __slots__ = ("calendar",)
    CALENDAR_FIELD_NUMBER: _ClassVar[int]
    calendar: Calendar
    def __init__(self, calendar: _Optional[_Union[Calendar, _Mapping]] = ...) -> None: ...

class ListCalendarsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListCalendarsResponse(_message.Message):
    __slots__ = ("calendars",)
    CALENDARS_FIELD_NUMBER: _ClassVar[int]
    calendars: _containers.RepeatedCompositeFieldContainer[Calendar]
    def __init__(self, calendars: _Optional[_Iterable[_Union[Calendar, _Mapping]]] = ...) -> None: ...

class DeleteCalendarRequest(_message.Message):
    __slots__ = ("name", "durability", "note")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    name: str
    durability: str
    note: str
    def __init__(self, name: _Optional[str] = ..., durability: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class DeleteCalendarResponse(_message.Message):
    __slots__ = ("deleted", "reached")
    DELETED_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    deleted: bool
    reached: str
    def __init__(self, deleted: bool = ..., reached: _Optional[str] = ...) -> None: ...
