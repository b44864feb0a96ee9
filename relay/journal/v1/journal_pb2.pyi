from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    KIND_SCHEDULED: _ClassVar[Kind]
    KIND_REPLACED: _ClassVar[Kind]
    KIND_CLAIMED: _ClassVar[Kind]
    KIND_RECEIVED: _ClassVar[Kind]
    KIND_EXTENDED: _ClassVar[Kind]
    KIND_ACKED: _ClassVar[Kind]
    KIND_NACKED: _ClassVar[Kind]
    KIND_RELEASED: _ClassVar[Kind]
    KIND_RESCHEDULED: _ClassVar[Kind]
    KIND_DEAD: _ClassVar[Kind]
    KIND_EXPIRED: _ClassVar[Kind]
    KIND_REDRIVEN: _ClassVar[Kind]
    KIND_CANCELLED: _ClassVar[Kind]
    KIND_RUN: _ClassVar[Kind]
    KIND_PARKED: _ClassVar[Kind]
    KIND_ORPHANED: _ClassVar[Kind]
    KIND_TAKEN: _ClassVar[Kind]
    KIND_REPAIRED: _ClassVar[Kind]
    KIND_STALE: _ClassVar[Kind]
    KIND_GONE: _ClassVar[Kind]
    KIND_PURGED: _ClassVar[Kind]
    KIND_TRIMMED: _ClassVar[Kind]
    KIND_PAUSED: _ClassVar[Kind]
    KIND_RESUMED: _ClassVar[Kind]
    KIND_PROMOTED: _ClassVar[Kind]
    KIND_LEFT: _ClassVar[Kind]
    KIND_ARRIVED: _ClassVar[Kind]
    KIND_RETURNED: _ClassVar[Kind]
    KIND_TICKED: _ClassVar[Kind]
    KIND_CHANGED: _ClassVar[Kind]

class Adoption(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ADOPTION_UNSPECIFIED: _ClassVar[Adoption]
    ADOPTION_INTENT: _ClassVar[Adoption]
    ADOPTION_LEASE: _ClassVar[Adoption]
KIND_UNSPECIFIED: Kind
KIND_SCHEDULED: Kind
KIND_REPLACED: Kind
KIND_CLAIMED: Kind
KIND_RECEIVED: Kind
KIND_EXTENDED: Kind
KIND_ACKED: Kind
KIND_NACKED: Kind
KIND_RELEASED: Kind
KIND_RESCHEDULED: Kind
KIND_DEAD: Kind
KIND_EXPIRED: Kind
KIND_REDRIVEN: Kind
KIND_CANCELLED: Kind
KIND_RUN: Kind
KIND_PARKED: Kind
KIND_ORPHANED: Kind
KIND_TAKEN: Kind
KIND_REPAIRED: Kind
KIND_STALE: Kind
KIND_GONE: Kind
KIND_PURGED: Kind
KIND_TRIMMED: Kind
KIND_PAUSED: Kind
KIND_RESUMED: Kind
KIND_PROMOTED: Kind
KIND_LEFT: Kind
KIND_ARRIVED: Kind
KIND_RETURNED: Kind
KIND_TICKED: Kind
KIND_CHANGED: Kind
ADOPTION_UNSPECIFIED: Adoption
ADOPTION_INTENT: Adoption
ADOPTION_LEASE: Adoption

class Batch(_message.Message):
    __slots__ = ("version", "time", "first", "last", "nonce", "score", "changes", "hand_over", "principal", "relay")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    HAND_OVER_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    RELAY_FIELD_NUMBER: _ClassVar[int]
    version: int
    time: int
    first: int
    last: int
    nonce: bytes
    score: float
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    hand_over: str
    principal: str
    relay: str
    def __init__(self, version: _Optional[int] = ..., time: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., nonce: _Optional[bytes] = ..., score: _Optional[float] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., hand_over: _Optional[str] = ..., principal: _Optional[str] = ..., relay: _Optional[str] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("kind", "timer_id", "nonce", "occurrence", "due", "score", "attempts", "claims", "received", "suspect", "approximate", "expires", "previous_due", "reason", "refused", "adopted", "dead_id", "count", "previous_dead_id", "error")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TIMER_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCE_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_FIELD_NUMBER: _ClassVar[int]
    APPROXIMATE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_DUE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ADOPTED_FIELD_NUMBER: _ClassVar[int]
    DEAD_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_DEAD_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    kind: Kind
    timer_id: bytes
    nonce: bytes
    occurrence: bytes
    due: float
    score: float
    attempts: int
    claims: int
    received: bool
    suspect: bool
    approximate: bool
    expires: float
    previous_due: float
    reason: str
    refused: Kind
    adopted: Adoption
    dead_id: str
    count: int
    previous_dead_id: str
    error: bytes
    def __init__(self, kind: _Optional[_Union[Kind, str]] = ..., timer_id: _Optional[bytes] = ..., nonce: _Optional[bytes] = ..., occurrence: _Optional[bytes] = ..., due: _Optional[float] = ..., score: _Optional[float] = ..., attempts: _Optional[int] = ..., claims: _Optional[int] = ..., received: bool = ..., suspect: bool = ..., approximate: bool = ..., expires: _Optional[float] = ..., previous_due: _Optional[float] = ..., reason: _Optional[str] = ..., refused: _Optional[_Union[Kind, str]] = ..., adopted: _Optional[_Union[Adoption, str]] = ..., dead_id: _Optional[str] = ..., count: _Optional[int] = ..., previous_dead_id: _Optional[str] = ..., error: _Optional[bytes] = ...) -> None: ...
