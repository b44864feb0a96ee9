"""Packs timers by the column: Arrow builds the bytes of a batch, instead of Python timer by timer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.core.instants import EXACT, SECOND, to_score
from relay.core.partitions import partition_numbers
from relay.store.bulk.columns_call import (
    PackedRows,
    each_version_text,
    expiries_text,
    text_head,
    versions_text,
)
from relay.store.bulk.store import BATCH, BATCH_BYTES

Parts = list[tuple[int, int]]
"""Numbers of partitions, each with how many of the rows are its; one behind the other."""

SCHEDULE, CANCEL, MOVE = b"scm"

_NOTHING = pa.scalar(b"", pa.large_binary())


@dataclass(frozen=True, slots=True)
class Group:
    """Timers of one topic, as columns of equal length in Arrow and numpy. `due` and `expires` are in
    microseconds; an `expires` of -1 means never. `ops` are bytes, one of `SCHEDULE`, `CANCEL` and `MOVE` for
    each row; None if all are scheduled. `versions` are those of the rows, if they have any, and `moves` those
    of later rows that move a timer, -1 for none. `subjects` are the names of those whom rows that are not
    sealed yet are about, empty for nobody; None if no row is."""

    topic: str
    timer_ids: pa.Array
    due: np.ndarray[Any, Any]
    envelopes: pa.Array
    expires: np.ndarray[Any, Any]
    ops: np.ndarray[Any, Any] | None = None
    versions: np.ndarray[Any, Any] | None = None
    moves: np.ndarray[Any, Any] | None = None
    subjects: np.ndarray[Any, Any] | None = None

    def __len__(self) -> int:
        return len(self.due)

    def ids(self) -> list[bytes]:
        """Return the timer_ids as Redis gets them."""
        found: list[bytes] = self.timer_ids.cast(pa.binary()).to_pylist()
        return found

    @property
    def size(self) -> int:
        """Roughly the bytes that it takes."""
        return int(self.timer_ids.nbytes + self.envelopes.nbytes) + 16 * len(self)

    @classmethod
    def joined(cls, groups: Sequence[Group]) -> Group:
        """Return the rows of groups of one topic, in their order."""
        if len(groups) == 1:
            return groups[0]
        return cls(
            groups[0].topic,
            pa.concat_arrays([each.timer_ids for each in groups]),
            np.concatenate([each.due for each in groups]),
            pa.concat_arrays([each.envelopes for each in groups]),
            np.concatenate([each.expires for each in groups]),
            *(_joined([getattr(each, name) for each in groups]) for name in _MAY_BE_MISSING),
        )

    def divided(self, count: int) -> tuple[Group, Parts]:
        """Return the rows with those of each of `count` partitions together, in the order that they had, and
        where which partition begins."""
        if count == 1:
            return self, [(0, len(self))]
        places, parts = divided(self.timer_ids, count)
        order = pa.array(places)
        return self._made(self.timer_ids.take(order), self.envelopes.take(order), places), parts

    def cut(self, start: int, end: int) -> Group:
        """Return the rows from one place until before another, without a copy."""
        size = end - start
        return self._made(
            self.timer_ids.slice(start, size), self.envelopes.slice(start, size), slice(start, end)
        )

    def distinct(self, *, last: bool = False) -> Group:
        """Return the group with one row for each id: the first that has it, or the last."""
        if len(pc.unique(self.timer_ids)) == len(self):
            return self
        codes = self.timer_ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        kept = np.zeros(len(self), dtype=bool)
        if last:
            kept[len(self) - 1 - np.unique(codes[::-1], return_index=True)[1]] = True
        else:
            kept[np.unique(codes, return_index=True)[1]] = True
        return self.where(kept)

    def where(self, mask: np.ndarray[Any, Any]) -> Group:
        """Return some of the rows."""
        if mask.all():
            return self
        kept = pa.array(mask)
        return self._made(self.timer_ids.filter(kept), self.envelopes.filter(kept), mask)

    def _made(self, timer_ids: pa.Array, envelopes: pa.Array, places: Any) -> Group:
        columns = (getattr(self, name) for name in _MAY_BE_MISSING)
        more = [None if each is None else each[places] for each in columns]
        return Group(self.topic, timer_ids, self.due[places], envelopes, self.expires[places], *more)


_MAY_BE_MISSING = ("ops", "versions", "moves", "subjects")


def _joined(columns: Sequence[np.ndarray[Any, Any] | None]) -> np.ndarray[Any, Any] | None:
    there = [each for each in columns if each is not None]
    return np.concatenate(there) if there else None


def divided(timer_ids: pa.Array, count: int) -> tuple[np.ndarray[Any, Any], Parts]:
    """Return the places of timers, those of one of `count` partitions together, and how many each has."""
    ids = timer_ids.cast(pa.binary()).to_pylist()
    numbers = np.array(partition_numbers(ids, count), dtype=np.int16)
    sizes = np.bincount(numbers, minlength=count)
    found = np.flatnonzero(sizes)
    parts = list(zip(found.tolist(), sizes[found].tolist(), strict=True))
    return np.argsort(numbers, kind="stable"), parts


def pack_group(group: Group, most: int = BATCH, parts: Parts | None = None) -> Iterator[PackedRows]:
    """Yield a group that has each timer once, in batches of at most `most` timers, and as many bytes as one
    call takes, numbered from 0. None has timers of two `parts`."""
    ending = group.expires.tolist() if len(group) and int(group.expires.max()) >= 0 else []
    expires = [None if each < 0 else each for each in ending]
    whole, start = [(0, len(group))], 0
    columns = group.due, group.timer_ids, group.envelopes
    for rows in _packed(*columns, [], expires, most, parts or whole):
        part = slice(start, start + rows.size)
        start += rows.size
        yield rows._replace(
            ops="" if group.ops is None else _ops_text(group.ops[part]),
            versions="" if group.versions is None else each_version_text(group.versions[part].tolist()),
            moves="" if group.moves is None else each_version_text(group.moves[part].tolist()),
        )


def _ops_text(ops: np.ndarray[Any, Any]) -> str:
    return ops.tobytes().decode() if (ops != SCHEDULE).any() else ""


def pack_rows(rows: pa.RecordBatch, most: int = BATCH, partitions: int = 1) -> Iterator[PackedRows]:
    """Yield rows of the cold store likewise, with their versions, each batch for one of the partitions."""
    parts = [(0, len(rows))]
    if partitions > 1:
        places, parts = divided(rows.column("timer_id"), partitions)
        rows = rows.take(pa.array(places))
    expires = rows.column("expires_us")
    yield from _packed(
        rows.column("due_us").to_numpy(),
        rows.column("timer_id"),
        rows.column("envelope"),
        rows.column("version").to_pylist(),
        expires.to_pylist() if expires.null_count < len(expires) else [],
        most,
        parts,
    )


def _packed(
    due: np.ndarray[Any, Any],
    timer_ids: pa.Array,
    stored: pa.Array,
    versions: Sequence[int],
    expires: Sequence[int | None],
    most: int,
    parts: Parts,
) -> Iterator[PackedRows]:
    scores, ids, envelopes = _texts(_scores(due)), _texts(timer_ids), _texts(stored)
    start = number = last = 0
    for partition, size in parts:
        last += size
        while start < last:
            end = envelopes.end(start, min(start + most, last), BATCH_BYTES)
            yield PackedRows(
                number,
                end - start,
                int(due[start]),
                scores.cut(start, end),
                ids.cut(start, end),
                envelopes.cut(start, end),
                versions_text(versions[start:end]),
                expiries_text(expires[start:end]),
                partition,
            )
            start, number = end, number + 1


def _scores(due: np.ndarray[Any, Any]) -> pa.Array:
    """Write scores as texts, of which Redis reads what `to_score` says: seconds with six decimals, which is
    the nearest double, and doubles if far ahead."""
    if len(due) and int(due.max()) >= EXACT:
        return pa.array([repr(to_score(each)).encode() for each in due.tolist()], pa.large_binary())
    seconds, micros = np.divmod(due, SECOND)
    digits = pc.utf8_lpad(pa.array(micros).cast(pa.string()), 6, "0")
    return pc.binary_join_element_wise(pa.array(seconds).cast(pa.string()), digits, ".").cast(
        pa.large_binary()
    )


def _texts(column: pa.Array) -> _Flat:
    """Write each value as a text in MessagePack. A head is made once for each length, of which there are
    few."""
    raw = column.cast(pa.large_binary())
    sizes = pc.binary_length(raw).dictionary_encode()
    heads = pa.array(map(text_head, sizes.dictionary.to_pylist()), pa.large_binary()).take(sizes.indices)
    return _Flat(pc.binary_join_element_wise(heads, raw, _NOTHING))


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
