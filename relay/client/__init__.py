"""What a Python application imports to schedule timers and to handle them.

>>> from relay.client import Delivery, RelayClient
>>> client = RelayClient("127.0.0.1:7451")
>>> @client.on("invoices", concurrency=50)
... async def remind(delivery: Delivery) -> None:
...     ...     # returning is ACK; or raise Nack(retry_after=5), Reject("why"), Reschedule(delay=60)
>>> async def main() -> None:
...     async with client:
...         await client.schedule("invoices", b"42", delay=5.0)
...         await client.run()    # until SIGTERM or SIGINT
"""

from relay.client.calls.calendar_calls import Calendar
from relay.client.calls.change_values import ChangeResult, OnConflict, TimerChange
from relay.client.calls.channel import DEFAULT_TARGET
from relay.client.calls.recurrence_values import (
    Backfilled,
    DeletedRecurrence,
    NominalInstant,
    PastInstant,
    PutRecurrence,
    PutResult,
    Recurrence,
    RecurrenceHistory,
    RecurrenceInfo,
)
from relay.client.calls.timer_values import (
    ExpectedLoad,
    NewTimer,
    ScheduledTimer,
    ScheduleResult,
    Timer,
    TimerInfo,
    TimerState,
)
from relay.client.calls.topic_values import (
    ColdForecast,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterInfo,
    Forecast,
    ForecastInterval,
    GroupInfo,
    RedriveResult,
    TopicInfo,
)
from relay.client.client import RelayClient
from relay.client.credentials import Credentials
from relay.client.errors import (
    AlreadyExists,
    AlreadySettled,
    CallError,
    DeadlineExceeded,
    DeliveryLost,
    FailedPrecondition,
    InvalidArgument,
    NotDurable,
    NotFound,
    RelayError,
    ResourceExhausted,
    Unavailable,
    UsageError,
)
from relay.client.handling.delivery import (
    AckPolicy,
    Delivery,
    Nack,
    Reject,
    Reschedule,
    current_delivery,
)
from relay.client.handling.middleware import CallNext, Middleware
from relay.client.handling.options import Backoff
from relay.client.handling.signatures import Depends
from relay.client.push.push_handlers import PushHandlers
from relay.client.sync import SyncRelayClient
from relay.client.timer_history import TimerEvent, TimerHistory, TimerNow, TimerStanding
from relay.client.typed_topics import HandledTopic, SyncTypedTopic, TypedTopic

__all__ = [
    "DEFAULT_TARGET",
    "AckPolicy",
    "AlreadyExists",
    "AlreadySettled",
    "Backfilled",
    "Backoff",
    "Calendar",
    "CallError",
    "CallNext",
    "ChangeResult",
    "ColdForecast",
    "Credentials",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetterInfo",
    "DeadlineExceeded",
    "DeletedRecurrence",
    "Delivery",
    "DeliveryLost",
    "Depends",
    "ExpectedLoad",
    "FailedPrecondition",
    "Forecast",
    "ForecastInterval",
    "GroupInfo",
    "HandledTopic",
    "InvalidArgument",
    "Middleware",
    "Nack",
    "NewTimer",
    "NominalInstant",
    "NotDurable",
    "NotFound",
    "OnConflict",
    "PastInstant",
    "PushHandlers",
    "PutRecurrence",
    "PutResult",
    "Recurrence",
    "RecurrenceHistory",
    "RecurrenceInfo",
    "RedriveResult",
    "Reject",
    "RelayClient",
    "RelayError",
    "Reschedule",
    "ResourceExhausted",
    "ScheduleResult",
    "ScheduledTimer",
    "SyncRelayClient",
    "SyncTypedTopic",
    "Timer",
    "TimerChange",
    "TimerEvent",
    "TimerHistory",
    "TimerInfo",
    "TimerNow",
    "TimerStanding",
    "TimerState",
    "TopicInfo",
    "TypedTopic",
    "Unavailable",
    "UsageError",
    "current_delivery",
]
