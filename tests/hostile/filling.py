"""Messages with something in each field, made from the protos: a method that is added has them at once."""

from __future__ import annotations

from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

WORDS = {
    "topic": "t",
    "timer_id": "a",
    "recurrence_id": "r",
    "cron": "0 3 * * *",
    "zone": "Europe/Berlin",
    "rrule": "FREQ=DAILY;BYHOUR=3",
    "name": "calendar",
    "dates": "2026-12-24",
    "content_type": "text/plain",
    "dead_id": "1-0",
    "dead_ids": "1-0",
}
_WHOLE = {
    *(FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT32),
    *(FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_FIXED64),
}
_DEEPEST = 5


def filled(kind: Descriptor, variant: int, depth: int = 0) -> Message:
    """A message with all its fields; of each `oneof` the field with the number `variant`, counted round."""
    message = message_factory.GetMessageClass(kind)()
    for field in kind.fields:
        alternatives = field.containing_oneof.fields if field.containing_oneof else [field]
        if alternatives[variant % len(alternatives)] is not field and len(alternatives) > 1:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["a"] = "b"
        elif field.message_type is not None:
            if depth < _DEEPEST:
                inner = filled(field.message_type, variant, depth + 1)
                held = getattr(message, field.name)
                (held.add() if field.is_repeated else held).CopyFrom(inner)
        elif field.is_repeated:
            getattr(message, field.name).extend([_value(field, variant)] * (1 + variant))
        else:
            setattr(message, field.name, _value(field, variant))
    return message


def _value(field: FieldDescriptor, variant: int) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return WORDS.get(field.name, "")
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b"x"
    if field.type == FieldDescriptor.TYPE_BOOL:
        return bool(variant % 2)
    if field.type == FieldDescriptor.TYPE_ENUM:
        assert field.enum_type is not None
        values = field.enum_type.values
        return values[variant % len(values)].number
    return 1 if field.type in _WHOLE else 1.0
