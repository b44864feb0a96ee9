"""New timers that come as columns: a request has what they share once, and an entry in every column for
each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relay.api import replies, translate
from relay.api.intents import debounced, on_conflict, spread
from relay.core import validate
from relay.core.errors import InvalidField, ServiceError
from relay.core.instants import LATEST, spread_of
from relay.core.timers import REPLACE, Intent, NewTimers, Scheduled
from relay.v1 import timer_pb2 as pb
from relay.v1 import timer_service_pb2 as service

MAX_SHARED = 16 << 20
"""The most bytes of headers and content types that one call stores: the default size limit of a message."""


class RequestColumns:
    """The timers of a request.

    `trace` is the caller's trace context, `sealed` whether the topic is. Raises `InvalidField` if the columns
    differ in length, or if what the timers share is wrong.
    """

    def __init__(
        self,
        request: service.ScheduleColumnsRequest,
        max_payload_bytes: int,
        trace: Mapping[str, str],
        *,
        sealed: bool = False,
    ) -> None:
        said = on_conflict(request)
        debounce = debounced(request, said)
        self._intent: Intent = said or REPLACE
        self._spread = spread(request)
        self._names, self._payloads = request.timer_ids, request.payloads
        count = len(self._names)
        self._times, self._delayed = _times(request)
        if debounce is not None:
            delay, self._intent = debounce
            self._times, self._delayed = [delay] * count, True
        _check_length("payloads", len(self._payloads), count)
        _check_length("delays_us" if self._delayed else "due_times_us", len(self._times), count)
        self._subjects, self._sealed = request.seal_with, sealed
        if self._subjects:
            _check_length("seal_with", len(self._subjects), count)
        self._occurrence_ids = request.occurrence_ids
        if self._occurrence_ids:
            _check_length("occurrence_ids", len(self._occurrence_ids), count)
        self._headers, self._kind = translate.shared(request, trace)
        self._check_shared(count)
        self._limit = max_payload_bytes
        self._read: list[NewTimers] = []
        self._failures: dict[int, InvalidField] = {}

    def _check_shared(self, timers: int) -> None:
        """Limit what the timers share: it is stored for each, so a small request could fill Redis."""
        words = (*self._headers, *self._headers.values(), self._kind)
        each = sum(len(word.encode()) for word in words)
        if each * timers > MAX_SHARED:
            raise InvalidField(
                "headers",
                f"would be stored {timers} times, which is {each * timers} bytes; at most {MAX_SHARED} are "
                "allowed in a call: send fewer timers in each",
            )

    def read(self, part: slice) -> None:
        """Read the timers of this part; the next part begins where it ends."""
        names, payloads, times = self._names[part], self._payloads[part], self._times[part]
        subjects, wrong = self._subjects[part], dict[int, InvalidField]()
        timers = self._timers(names, payloads, self._spread_out(names, times), subjects)
        if self._occurrence_ids:
            timers.occurrences, wrong = self._occurrences(part)
        # A check of all together takes a fifth of the time, and hardly ever is one of them wrong.
        if not (
            validate.plain_names(names)
            and validate.times(times)
            and (not self._spread or max(times) + self._spread <= LATEST)
            and max(map(len, payloads)) <= self._limit
            and not subjects  # each is looked at by itself
        ):
            wrong |= self._wrong(names, payloads, times, subjects)
        if wrong:
            timers = timers.only([place for place in range(len(names)) if place not in wrong])
            self._failures |= {part.start + place: failure for place, failure in wrong.items()}
        self._read.append(timers)

    def _spread_out(self, names: Sequence[str], times: Sequence[int]) -> Sequence[int]:
        if not self._spread:
            return times
        return [time + spread_of(name, self._spread) for name, time in zip(names, times, strict=True)]

    @property
    def timers(self) -> NewTimers:
        """The timers that were read and are valid."""
        return NewTimers.joined(self._read)

    def outcomes(self, stored: Sequence[Scheduled | ServiceError]) -> Sequence[Scheduled | ServiceError]:
        """Yield the results of all that were read, given the results of the valid ones."""
        if not self._failures:
            return stored
        results = iter(stored)
        count = len(stored) + len(self._failures)
        return [self._failures.get(place) or next(results) for place in range(count)]

    def _wrong(
        self, names: Sequence[str], payloads: Sequence[bytes], times: Sequence[int], subjects: Sequence[str]
    ) -> dict[int, InvalidField]:
        wrong = {}
        for place, (name, payload, time) in enumerate(zip(names, payloads, times, strict=True)):
            try:
                validate.name("timer_id", name)
                check = validate.delay if self._delayed else validate.due
                check(check(time) + spread_of(name, self._spread))
                validate.payload(payload, self._limit)
                if subjects:
                    validate.seal_with(subjects[place], sealed=self._sealed)
            except InvalidField as failure:
                wrong[place] = failure
        return wrong

    def _occurrences(self, part: slice) -> tuple[list[bytes], dict[int, InvalidField]]:
        found, wrong = [], {}
        pairs = zip(self._occurrence_ids[part], self._names[part], strict=True)
        for place, (occurrence_id, name) in enumerate(pairs):
            try:
                found.append(validate.occurrence_id(occurrence_id, name))
            except InvalidField as failure:
                found.append(b"")
                wrong[place] = failure
        return found, wrong

    def _timers(  # see 0062
        self, names: list[str], payloads: list[bytes], times: Sequence[int], subjects: list[str]
    ) -> NewTimers:
        count = len(names)
        given: dict[str, Any] = {"delays" if self._delayed else "dues": times}
        if subjects:
            given["seal_with"] = subjects
        return NewTimers.filled(
            names,
            payloads=payloads,
            headers=[self._headers] * count,
            content_types=[self._kind] * count,
            intents=[self._intent] * count,
            **given,
        )


def tell(response: service.ScheduleColumnsResponse, outcomes: Sequence[Scheduled | ServiceError]) -> None:
    """Add the results of the next timers."""
    first = len(response.results)
    dues, results, under_way = [], [], []
    for place, outcome in enumerate(outcomes, first):
        if isinstance(outcome, ServiceError):
            response.errors[place].CopyFrom(replies.item_error(outcome))
            dues.append(0)
            results.append(pb.CHANGE_RESULT_UNSPECIFIED)
        else:
            dues.append(outcome.due or 0)
            results.append(replies.RESULTS[outcome.change])
            if outcome.delivery_under_way:
                under_way.append(place)
    response.due_times_us.extend(dues)
    response.results.extend(results)
    response.deliveries_under_way.extend(under_way)


def _times(request: service.ScheduleColumnsRequest) -> tuple[Sequence[int], bool]:
    """The times, and whether they are delays."""
    delayed = bool(request.delays_us)
    if delayed and request.due_times_us:
        raise InvalidField("due_times_us", "has entries beside delays_us; fill one of the two")
    return request.delays_us if delayed else request.due_times_us, delayed


def _check_length(field: str, entries: int, timers: int) -> None:
    if entries != timers:
        raise InvalidField(field, f"has {entries} entries for {timers} timer_ids; give one for each")
