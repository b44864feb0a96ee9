from relay.journal.v1 import journal_pb2 as _journal_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Entry(_message.Message):
    __slots__ = ("id", "batch", "topic")
    ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    id: str
    batch: _journal_pb2.Batch
    topic: str
    def __init__(self, id: _Optional[str] = ..., batch: _Optional[_Union[_journal_pb2.Batch, _Mapping]] = ..., topic: _Optional[str] = ...) -> None: ...
