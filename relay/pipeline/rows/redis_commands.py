"""Makes commands by the column: Arrow builds the bytes of a batch, instead of Python timer by timer.

hiredis takes 0.7 µs a timer for it, and Python as much again for lists; this takes a third of that. A test
holds the bytes equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.core.instants import EXACT, SECOND, to_score
from relay.store.bulk.columns_call import PackedRows, expiries_text, text_head, versions_text
from relay.store.bulk.store import BATCH, BATCH_BYTES, Packed, TimerBatch

_END = pa.scalar(b"\r\n", pa.large_binary())
_NOTHING = pa.scalar(b"", pa.large_binary())


@dataclass(frozen=True, slots=True)
class Group:
    """Timers of one topic: `store.bulk.store.TimerBatch` in Arrow and numpy. An `expires` of -1 means
    never."""

    topic: str
    timer_ids: pa.Array
    due: np.ndarray[Any, Any]
    envelopes: pa.Array
    expires: np.ndarray[Any, Any]

    def __len__(self) -> int:
        return len(self.due)

    @property
    def plain(self) -> bool:
        """Whether the group can be packed: nothing expires, and every score is the nearest double."""
        return len(self.due) > 0 and int(self.expires.max()) < 0 and int(self.due.max()) < EXACT

    def batch(self) -> TimerBatch:
        """Return the group as lists."""
        expires = self.expires.tolist()
        return TimerBatch(
            self.topic,
            self.timer_ids.to_numpy(zero_copy_only=False).tolist(),
            self.due.tolist(),
            self.envelopes.to_numpy(zero_copy_only=False).tolist(),
            () if max(expires, default=-1) < 0 else [None if each < 0 else each for each in expires],
        )

    def ids(self) -> list[bytes]:
        """Return the timer_ids as Redis gets them."""
        found: list[bytes] = self.timer_ids.cast(pa.binary()).to_pylist()
        return found

    def distinct(self) -> Group:
        """Return the group without rows whose id an earlier row has."""
        if len(pc.unique(self.timer_ids)) == len(self):
            return self
        codes = self.timer_ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        first = np.zeros(len(self), dtype=bool)
        first[np.unique(codes, return_index=True)[1]] = True
        return self.where(first)

    def where(self, mask: np.ndarray[Any, Any]) -> Group:
        """Return some of the rows."""
        if mask.all():
            return self
        kept = pa.array(mask)
        return Group(
            self.topic,
            self.timer_ids.filter(kept),
            self.due[mask],
            self.envelopes.filter(kept),
            self.expires[mask],
        )


def pack(group: Group, most: int = BATCH) -> Iterator[Packed]:
    """Yield a plain group in batches of at most `most` timers and the bytes of `relay.store.bulk.store`."""
    ids = _argument(group.timer_ids)
    timers = _Flat(_joined(*_argument(_scores(group.due)), *ids))
    stored = _Flat(_joined(*ids, *_argument(group.envelopes)))
    named = _Flat(_joined(*ids))
    start = 0
    while start < len(group):
        end = stored.end(start, min(start + most, len(group)), BATCH_BYTES)
        first = to_score(int(group.due[start:end].min()))
        yield Packed(
            end - start, timers.cut(start, end), named.cut(start, end), stored.cut(start, end), first
        )
        start = end


def pack_texts(group: Group, most: int = BATCH) -> Iterator[PackedRows]:
    """Yield a group as `bulk/insert.lua` takes it, in batches as `pack` makes them. Only the first row with
    an id is taken."""
    group = group.distinct()
    scores, ids, envelopes = _texts(_scores(group.due)), _texts(group.timer_ids), _texts(group.envelopes)
    ending = group.expires.tolist() if len(group) and int(group.expires.max()) >= 0 else []
    start = 0
    while start < len(group):
        end = envelopes.end(start, min(start + most, len(group)), BATCH_BYTES)
        yield PackedRows(
            0,
            end - start,
            int(group.due[start]),
            scores.cut(start, end),
            ids.cut(start, end),
            envelopes.cut(start, end),
            "",
            expiries_text([None if each < 0 else each for each in ending[start:end]]),
        )
        start = end


def pack_rows(rows: pa.RecordBatch, most: int = BATCH) -> Iterator[PackedRows]:
    """Yield rows of the cold store in batches of at most `most` timers, and as many bytes as one call takes,
    numbered from 0."""
    due = rows.column("due_us").to_numpy()
    scores, ids = _texts(_scores(due)), _texts(rows.column("timer_id"))
    envelopes = _texts(rows.column("envelope"))
    versions, expires = rows.column("version").to_pylist(), rows.column("expires_us")
    ending = expires.to_pylist() if expires.null_count < len(expires) else []
    start = number = 0
    while start < rows.num_rows:
        end = envelopes.end(start, min(start + most, rows.num_rows), BATCH_BYTES)
        yield PackedRows(
            number,
            end - start,
            int(due[start]),
            scores.cut(start, end),
            ids.cut(start, end),
            envelopes.cut(start, end),
            versions_text(versions[start:end]),
            expiries_text(ending[start:end]),
        )
        start, number = end, number + 1


def _scores(due: np.ndarray[Any, Any]) -> pa.Array:
    """Write scores as `relay.store.bulk.store` does: seconds with six decimals, and doubles if far ahead."""
    if len(due) and int(due.max()) >= EXACT:
        return pa.array([repr(to_score(each)).encode() for each in due.tolist()], pa.large_binary())
    seconds, micros = np.divmod(due, SECOND)
    digits = pc.utf8_lpad(pa.array(micros).cast(pa.string()), 6, "0")
    return pc.binary_join_element_wise(pa.array(seconds).cast(pa.string()), digits, ".").cast(
        pa.large_binary()
    )


def _argument(column: pa.Array) -> tuple[Any, ...]:
    """Write each value as one argument: its length, the value, line ends. They are joined later."""
    raw = column.cast(pa.large_binary())
    return _heads(raw, lambda size: b"$%d\r\n" % size), raw, _END


def _texts(column: pa.Array) -> _Flat:
    """Write each value as a text in MessagePack."""
    raw = column.cast(pa.large_binary())
    return _Flat(_joined(_heads(raw, text_head), raw))


def _heads(raw: pa.Array, head: Callable[[int], bytes]) -> pa.Array:
    """Return what stands before each value. It is made once for each length, of which there are few."""
    sizes = pc.binary_length(raw).dictionary_encode()
    return pa.array(map(head, sizes.dictionary.to_pylist()), pa.large_binary()).take(sizes.indices)


def _joined(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, _NOTHING)


class _Flat:
    """A column as one block of memory, in which neighbours are adjacent."""

    def __init__(self, column: pa.Array) -> None:
        _, offsets, data = column.buffers()
        self._bounds = np.frombuffer(offsets, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
        self._data = memoryview(data)

    def cut(self, start: int, end: int) -> memoryview:
        """Return the bytes from one row until before another."""
        return self._data[int(self._bounds[start]) : int(self._bounds[end])]

    def end(self, start: int, end: int, most: int) -> int:
        """Return the last row, up to `end`, until which there are at most `most` bytes; at least one row."""
        fits = int(np.searchsorted(self._bounds, self._bounds[start] + most, side="right")) - 1
        return min(max(fits, start + 1), end)
