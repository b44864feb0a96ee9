import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from relay.v1 import delivery_service_pb2 as _delivery_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TimerHandlerDeliverRequest(_message.Message):
    __slots__ = ("delivery",)
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    delivery: _delivery_service_pb2.Delivery
    def __init__(self, delivery: _Optional[_Union[_delivery_service_pb2.Delivery, _Mapping]] = ...) -> None: ...

class TimerHandlerDeliverResponse(_message.Message):
    __slots__ = ("outcome", "retry_after", "reason", "retryable", "reschedule")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    RESCHEDULE_FIELD_NUMBER: _ClassVar[int]
    outcome: _delivery_service_pb2.Outcome
    retry_after: _duration_pb2.Duration
    reason: str
    retryable: bool
    reschedule: _delivery_service_pb2.Reschedule
    def __init__(self, outcome: _Optional[_Union[_delivery_service_pb2.Outcome, str]] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., reason: _Optional[str] = ..., retryable: bool = ..., reschedule: _Optional[_Union[_delivery_service_pb2.Reschedule, _Mapping]] = ...) -> None: ...

class TimerHandlerDeliverBatchRequest(_message.Message):
    __slots__ = ("deliveries",)
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[_delivery_service_pb2.Delivery]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[_delivery_service_pb2.Delivery, _Mapping]]] = ...) -> None: ...

class TimerHandlerDeliverBatchResponse(_message.Message):
    __slots__ = ("received", "settlements", "refused")
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    SETTLEMENTS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    received: _containers.RepeatedScalarFieldContainer[bytes]
    settlements: _containers.RepeatedCompositeFieldContainer[_delivery_service_pb2.Settlement]
    refused: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, received: _Optional[_Iterable[bytes]] = ..., settlements: _Optional[_Iterable[_Union[_delivery_service_pb2.Settlement, _Mapping]]] = ..., refused: _Optional[_Iterable[bytes]] = ...) -> None: ...
