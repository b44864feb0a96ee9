"""Reads a whole topic in parallel: each partition is split by rank into even parts, and each of those is read
page by page.

A part is bounded by two places in the timeline, not by ranks: a timer that stays where it is is read once, by
one part, however many come and go meanwhile. A timer that moves while the topic is read (because it is
claimed, retried or replaced) may be read twice, or not at all if it moves towards the front. A timer is read
whole: its place, record and envelope belong together.

A topic whose partitions change is not read. A part names its partition with the layout by which the topic was
split, and a partition that has seen a newer one refuses it. Those that a move takes timers from, or brings
them to, have seen the newer one before the first timer goes: so a part that is read to its end has all that
was there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from relay.core.errors import InvalidField, OtherLayout, WrongKeyType
from relay.core.instants import to_score
from relay.core.partitions import layout_of
from relay.store.bulk.layouts import still_moves
from relay.store.bulk.store import BATCH, BulkStore
from relay.store.codec import lease_record
from relay.store.server.blocking import checked, is_refused
from relay.store.verbs import timeline
from relay.store.verbs.terms import Words

PAGE_BYTES = 1 << 20
"""The approximate limit of envelope bytes in one call: a claim beside it waits that long."""

CHANGED = "{!r} has got another number of partitions while it was read: read it again"

LEAST = 2000
"""The number of timers below which a further part costs more than it gains."""

Place = tuple[float, bytes]
"""Score and timer_id, in the order of the timeline."""


class TopicSlice(NamedTuple):
    """The part of a partition behind `after` and not behind `until`; None means the start or the end.
    `partition` is its name, or that of a topic without a layout.

    With `due`, lowest and first too late in microseconds, it is instead what is due then and does not stand
    there: leased timers, retries.
    """

    partition: str
    after: Place | None = None
    until: Place | None = None
    due: tuple[int, int] | None = None

    @property
    def topic(self) -> str:
        """The topic that it is of."""
        return layout_of(self.partition).topic


class TimerColumns(NamedTuple):
    """Timers as columns of equal length.

    `records` are as the scripts see them; `envelopes` None where none were asked for, or one is missing.
    """

    timer_ids: list[bytes]
    scores: list[float]
    records: list[bytes]
    envelopes: list[bytes | None]


def cut(
    store: BulkStore, topic: str, parts: int, *, low: int = 0, high: int | None = None
) -> list[TopicSlice]:
    """The topic, as far as due from `low` (microseconds) until before `high`: each partition in even
    parts, of which there are at most `parts` together, or one for each partition.

    Raises `StoreError`, and `InvalidField` for a topic that moves.
    """
    layout = store.layouts.look_up(topic)
    if layout.towards:
        raise still_moves(layout)
    each = max(parts // layout.count, 1)
    return [part for name in layout.partitions for part in _cut(store, name, each, low, high)]


def _cut(store: BulkStore, partition: str, parts: int, low: int, high: int | None) -> list[TopicSlice]:
    key = store.server.keys.key("timeline", partition)
    first = _count(store, key, low) if low > 0 else 0
    last = store.server.ask("ZCARD", key) if high is None else _count(store, key, high)
    start: Place | None = (to_score(low), b"") if low > 0 else None
    end: Place | None = None if high is None else (to_score(high), b"")
    size = max(last - first, 0)
    count = max(1, min(parts, size // LEAST))
    places: list[Place | None] = [start]
    for n in range(1, count):
        rank = first + n * size // count - 1
        found = store.server.ask("ZRANGE", key, rank, rank, "WITHSCORES")
        if found:  # else it has become shorter
            places.append((float(found[1]), found[0]))
    places.append(end)
    cuts = [TopicSlice(partition, places[n], places[n + 1]) for n in range(len(places) - 1)]
    if high is not None:
        cuts.append(TopicSlice(partition, due=(low, high)))
    return cuts


def _count(store: BulkStore, key: str, before: int) -> int:
    count: int = store.server.ask("ZCOUNT", key, "-inf", f"({to_score(before)!r}")
    return count


def read(store: BulkStore, part: TopicSlice, *, envelopes: bool) -> Iterator[TimerColumns]:
    """Its timers, page by page. Raises `StoreError`, and `InvalidField` if the topic's partitions have
    changed since it was cut."""
    try:
        if part.due is not None:
            yield from _elsewhere(store, part.partition, *part.due, envelopes=envelopes)
        else:
            yield from _in_order(store, part, envelopes=envelopes)
    except (OtherLayout, WrongKeyType) as failure:  # a layout in the place of lease records is a wrong type
        if isinstance(failure, WrongKeyType) and not store.layouts.look_up(part.topic).epoch:
            raise
        raise InvalidField("topic", CHANGED.format(part.topic)) from None


def _in_order(store: BulkStore, part: TopicSlice, *, envelopes: bool) -> Iterator[TimerColumns]:
    size, width = (PAGE_BYTES, 4) if envelopes else (None, 3)
    call = timeline.page(part.partition, BATCH, *_after(part.after), size)
    reply = store.call(call)
    while True:
        more, *flat = reply
        scores = [float(score) for score in flat[1::width]]
        ids = flat[0::width]
        end = len(ids)
        if part.until is not None:
            while end and (scores[end - 1], ids[end - 1]) > part.until:
                end -= 1
        last = not more or end < len(ids)
        if not last:  # Redis looks for the next page while this one is worked on
            call = timeline.page(part.partition, BATCH, *_after((scores[-1], ids[-1])), size)
            store.server.send(store.server.prepare(call).command())
        if end:
            held = flat[3::width] if envelopes else [None] * len(ids)
            yield TimerColumns(ids[:end], scores[:end], flat[2::width][:end], held[:end])
        if last:
            return
        (reply,) = store.server.receive(1)
        reply = store.call(call) if is_refused(reply) else checked(reply)


def _after(place: Place | None) -> tuple[str, bytes]:
    """As `timeline/list.lua` takes it."""
    return (repr(place[0]), place[1]) if place else ("", b"")


def together(pages: Iterator[TimerColumns], *, timers: int, size: int) -> Iterator[TimerColumns]:
    """Join pages until they have at least `timers` timers or `size` bytes of envelopes; the last may have
    less."""
    held, held_size = TimerColumns([], [], [], []), 0
    for page in pages:
        held.timer_ids.extend(page.timer_ids)
        held.scores.extend(page.scores)
        held.records.extend(page.records)
        held.envelopes.extend(page.envelopes)
        held_size += sum(len(each) for each in page.envelopes if each)
        if len(held.timer_ids) >= timers or held_size >= size:
            yield held
            held, held_size = TimerColumns([], [], [], []), 0
    if held.timer_ids:
        yield held


def _elsewhere(
    store: BulkStore, partition: str, low: int, high: int, *, envelopes: bool
) -> Iterator[TimerColumns]:
    """What is due from `low` until before `high` and stands behind that: only what has a record can."""
    leases = store.server.keys.key("leases", partition)
    bound = to_score(high)
    seen: set[bytes] = set()  # HSCAN may answer one twice
    for flat in store.server.scan("HSCAN", leases, BATCH):
        wanted = [
            timer_id
            for timer_id, raw in zip(flat[::2], flat[1::2], strict=True)
            if timer_id not in seen and (due := lease_record.due_of(raw)) is not None and low <= due < high
        ]
        found = TimerColumns([], [], [], [])
        for timer_id, reply in zip(wanted, _get(store, partition, wanted), strict=True):
            if not reply or float(reply[0]) < bound:
                continue
            due = lease_record.due_of(reply[1])
            if due is not None and low <= due < high:
                seen.add(timer_id)
                found.timer_ids.append(timer_id)
                found.scores.append(float(reply[0]))
                found.records.append(reply[1])
                found.envelopes.append(reply[2] if envelopes else None)
        if found.timer_ids:
            yield found
    _get(store, partition, [b""])  # records that had gone elsewhere were not seen: then this is refused


def _get(store: BulkStore, partition: str, timer_ids: list[bytes]) -> list[Words]:
    """What `timeline/get.lua` answers of each, in one pipeline."""
    return store.server.each([timeline.get(partition, timer_id) for timer_id in timer_ids])
