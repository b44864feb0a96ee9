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

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_ACK: _ClassVar[Outcome]
    OUTCOME_NACK: _ClassVar[Outcome]
    OUTCOME_REJECT: _ClassVar[Outcome]
    OUTCOME_EXTEND: _ClassVar[Outcome]
    OUTCOME_RESCHEDULE: _ClassVar[Outcome]

class ProblemReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROBLEM_REASON_UNSPECIFIED: _ClassVar[ProblemReason]
    PROBLEM_REASON_UNKNOWN_TOKEN: _ClassVar[ProblemReason]
    PROBLEM_REASON_DUPLICATE: _ClassVar[ProblemReason]
    PROBLEM_REASON_STALE: _ClassVar[ProblemReason]
    PROBLEM_REASON_GONE: _ClassVar[ProblemReason]
    PROBLEM_REASON_INVALID: _ClassVar[ProblemReason]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_ACK: Outcome
OUTCOME_NACK: Outcome
OUTCOME_REJECT: Outcome
OUTCOME_EXTEND: Outcome
OUTCOME_RESCHEDULE: Outcome
PROBLEM_REASON_UNSPECIFIED: ProblemReason
PROBLEM_REASON_UNKNOWN_TOKEN: ProblemReason
PROBLEM_REASON_DUPLICATE: ProblemReason
PROBLEM_REASON_STALE: ProblemReason
PROBLEM_REASON_GONE: ProblemReason
PROBLEM_REASON_INVALID: ProblemReason

class DeliverRequest(_message.Message):
    __slots__ = ("open", "settle", "drain")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    open: Open
    settle: Settle
    drain: Drain
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., settle: _Optional[_Union[Settle, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ...) -> None: ...

class DeliverResponse(_message.Message):
    __slots__ = ("opened", "deliveries", "problems", "drain", "columns")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    opened: Opened
    deliveries: DeliveryBatch
    problems: Problems
    drain: Drain
    columns: DeliveryColumns
    def __init__(self, opened: _Optional[_Union[Opened, _Mapping]] = ..., deliveries: _Optional[_Union[DeliveryBatch, _Mapping]] = ..., problems: _Optional[_Union[Problems, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., columns: _Optional[_Union[DeliveryColumns, _Mapping]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("topics", "max_outstanding", "slow_outstanding", "columns", "header_columns", "handlers")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTSTANDING_FIELD_NUMBER: _ClassVar[int]
    SLOW_OUTSTANDING_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    HEADER_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    HANDLERS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    max_outstanding: int
    slow_outstanding: int
    columns: bool
    header_columns: bool
    handlers: _containers.RepeatedCompositeFieldContainer[HandlerSettings]
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., max_outstanding: _Optional[int] = ..., slow_outstanding: _Optional[int] = ..., columns: bool = ..., header_columns: bool = ..., handlers: _Optional[_Iterable[_Union[HandlerSettings, _Mapping]]] = ...) -> None: ...

class HandlerSettings(_message.Message):
    __slots__ = ("topic", "max_attempts", "backoff", "timeout")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    max_attempts: int
    backoff: Backoff
    timeout: _duration_pb2.Duration
    def __init__(self, topic: _Optional[str] = ..., max_attempts: _Optional[int] = ..., backoff: _Optional[_Union[Backoff, _Mapping]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Backoff(_message.Message):
    __slots__ = ("initial", "multiplier", "max")
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    initial: _duration_pb2.Duration
    multiplier: float
    max: _duration_pb2.Duration
    def __init__(self, initial: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., multiplier: _Optional[float] = ..., max: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("acknowledged", "handlers")
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    HANDLERS_FIELD_NUMBER: _ClassVar[int]
    acknowledged: bool
    handlers: _containers.RepeatedCompositeFieldContainer[HandlerSettings]
    def __init__(self, acknowledged: bool = ..., handlers: _Optional[_Iterable[_Union[HandlerSettings, _Mapping]]] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeliveryBatch(_message.Message):
    __slots__ = ("deliveries",)
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("topic", "timer_id", "payload", "headers", "content_type", "due_time", "due_time_approximate", "attempt", "lease_deadline", "occurrence_id", "token")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIMER_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    DUE_TIME_APPROXIMATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LEASE_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCE_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    timer_id: str
    payload: bytes
    headers: _containers.ScalarMap[str, str]
    content_type: str
    due_time: _timestamp_pb2.Timestamp
    due_time_approximate: bool
    attempt: int
    lease_deadline: _timestamp_pb2.Timestamp
    occurrence_id: str
    token: bytes
    def __init__(self, topic: _Optional[str] = ..., timer_id: _Optional[str] = ..., payload: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., content_type: _Optional[str] = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., due_time_approximate: bool = ..., attempt: _Optional[int] = ..., lease_deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., occurrence_id: _Optional[str] = ..., token: _Optional[bytes] = ...) -> None: ...

class DeliveryColumns(_message.Message):
    __slots__ = ("topic", "timer_ids", "payloads", "due_times_us", "attempts", "lease_deadlines_us", "occurrence_ids", "tokens", "headers", "content_type", "header_columns")
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
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_DEADLINES_US_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCE_IDS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    HEADER_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    timer_ids: _containers.RepeatedScalarFieldContainer[str]
    payloads: _containers.RepeatedScalarFieldContainer[bytes]
    due_times_us: _containers.RepeatedScalarFieldContainer[int]
    attempts: _containers.RepeatedScalarFieldContainer[int]
    lease_deadlines_us: _containers.RepeatedScalarFieldContainer[int]
    occurrence_ids: _containers.RepeatedScalarFieldContainer[str]
    tokens: _containers.RepeatedScalarFieldContainer[bytes]
    headers: _containers.ScalarMap[str, str]
    content_type: str
    header_columns: _containers.RepeatedCompositeFieldContainer[HeaderColumn]
    def __init__(self, topic: _Optional[str] = ..., timer_ids: _Optional[_Iterable[str]] = ..., payloads: _Optional[_Iterable[bytes]] = ..., due_times_us: _Optional[_Iterable[int]] = ..., attempts: _Optional[_Iterable[int]] = ..., lease_deadlines_us: _Optional[_Iterable[int]] = ..., occurrence_ids: _Optional[_Iterable[str]] = ..., tokens: _Optional[_Iterable[bytes]] = ..., headers: _Optional[_Mapping[str, str]] = ..., content_type: _Optional[str] = ..., header_columns: _Optional[_Iterable[_Union[HeaderColumn, _Mapping]]] = ...) -> None: ...

class HeaderColumn(_message.Message):
    __slots__ = ("name", "values", "without")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    name: str
    values: _containers.RepeatedScalarFieldContainer[str]
    without: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., values: _Optional[_Iterable[str]] = ..., without: _Optional[_Iterable[int]] = ...) -> None: ...

class Settle(_message.Message):
    __slots__ = ("received", "settlements", "acknowledged")
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    SETTLEMENTS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    received: _containers.RepeatedScalarFieldContainer[bytes]
    settlements: _containers.RepeatedCompositeFieldContainer[Settlement]
    acknowledged: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, received: _Optional[_Iterable[bytes]] = ..., settlements: _Optional[_Iterable[_Union[Settlement, _Mapping]]] = ..., acknowledged: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Settlement(_message.Message):
    __slots__ = ("token", "outcome", "retry_after", "reason", "retryable", "reschedule")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    RESCHEDULE_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    outcome: Outcome
    retry_after: _duration_pb2.Duration
    reason: str
    retryable: bool
    reschedule: Reschedule
    def __init__(self, token: _Optional[bytes] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., reason: _Optional[str] = ..., retryable: bool = ..., reschedule: _Optional[_Union[Reschedule, _Mapping]] = ...) -> None: ...

class Reschedule(_message.Message):
    __slots__ = ("due_time", "delay", "payload")
    DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    due_time: _timestamp_pb2.Timestamp
    delay: _duration_pb2.Duration
    payload: bytes
    def __init__(self, due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., payload: _Optional[bytes] = ...) -> None: ...

class Problems(_message.Message):
    __slots__ = ("problems",)
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    def __init__(self, problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("token", "reason", "message")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    reason: ProblemReason
    message: str
    def __init__(self, token: _Optional[bytes] = ..., reason: _Optional[_Union[ProblemReason, str]] = ..., message: _Optional[str] = ...) -> None: ...
