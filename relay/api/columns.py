"""Timers that are said by columns: what they share once, and for each an entry of every column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relay.api import translate
from relay.core import validate
from relay.core.errors import InvalidField, RelayError
from relay.core.timers import NewTimer, Scheduled
from relay.v1 import timer_pb2 as pb
from relay.v1 import timer_service_pb2 as service

MAX_SHARED = 16 << 20
"""Bytes of headers and content types that one call stores at most: as many as a message has by default."""


class Columns:
    """The timers of a request.

    `trace` is the caller's trace context. Raises `InvalidField` where the columns differ in length, or what
    the timers share is wrong.
    """

    def __init__(
        self,
        request: service.ScheduleColumnsRequest,
        max_payload_bytes: int,
        trace: Mapping[str, str],
        *,
        create: bool,
    ) -> None:
        delayed = bool(request.delays_us)
        if delayed and request.due_times_us:
            raise InvalidField("due_times_us", "has entries beside delays_us; fill one of the two")
        self._names, self._payloads = request.timer_ids, request.payloads
        self._times, self._delayed = request.delays_us if delayed else request.due_times_us, delayed
        _check_length("payloads", len(self._payloads), len(self._names))
        _check_length("delays_us" if delayed else "due_times_us", len(self._times), len(self._names))
        self._headers = translate.headers(request.headers, trace)
        self._content_type = validate.content_type(request.content_type)
        self._check_shared(len(self._names))
        self._limit = max_payload_bytes
        self._create = create

    def _check_shared(self, timers: int) -> None:
        """What is said once is stored for each: a small request could fill Redis."""
        words = (*self._headers, *self._headers.values(), self._content_type)
        each = sum(len(word.encode()) for word in words)
        if each * timers > MAX_SHARED:
            raise InvalidField(
                "headers",
                f"would be stored {timers} times, which is {each * timers} bytes; at most {MAX_SHARED} are "
                "allowed in a call: send fewer timers in each",
            )

    def read(self, part: slice) -> list[NewTimer | InvalidField]:
        """The timers of this part, or what is wrong with each."""
        names, payloads, times = self._names[part], self._payloads[part], self._times[part]
        columns = zip(names, payloads, times, strict=True)
        # Together they are looked at in a fifth of the time, and hardly ever anything is wrong.
        if validate.plain_names(names) and validate.times(times) and max(map(len, payloads)) <= self._limit:
            return [self._timer(*each) for each in columns]
        read: list[NewTimer | InvalidField] = []
        for name, payload, time in columns:
            try:
                validate.name("timer_id", name)
                (validate.delay if self._delayed else validate.due)(time)
                validate.payload(payload, self._limit)
            except InvalidField as failure:
                read.append(failure)
            else:
                read.append(self._timer(name, payload, time))
        return read

    def _timer(self, name: str, payload: bytes, time: int) -> NewTimer:
        due, delay = (None, time) if self._delayed else (time, None)
        return NewTimer(name, payload, due, delay, self._headers, self._content_type, create=self._create)


def tell(response: service.ScheduleColumnsResponse, outcomes: Sequence[Scheduled | RelayError]) -> None:
    """Add what became of the next timers."""
    first = len(response.results)
    dues, results = [], []
    for place, outcome in enumerate(outcomes, first):
        if isinstance(outcome, RelayError):
            response.errors[place].CopyFrom(translate.item_error(outcome))
            dues.append(0)
            results.append(pb.CHANGE_RESULT_UNSPECIFIED)
        else:
            dues.append(outcome.due or 0)
            results.append(translate.RESULTS[outcome.change])
    response.due_times_us.extend(dues)
    response.results.extend(results)


def _check_length(field: str, entries: int, timers: int) -> None:
    if entries != timers:
        raise InvalidField(field, f"has {entries} entries for {timers} timer_ids; give one for each")
