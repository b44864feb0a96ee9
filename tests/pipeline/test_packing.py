"""Batches that are packed by the column say what packing row by row would have said."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from relay.core.instants import EXACT, LATEST, to_score
from relay.pipeline.rows.packing import Group, pack_group, pack_rows
from relay.store.bulk.columns_call import Buffer, LoadRows, PackedRows
from relay.store.bulk.store import BATCH, BATCH_BYTES

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
TIMERS = st.lists(
    st.tuples(TEXTS, st.integers(0, 10**7) | st.integers(0, EXACT - 1), st.binary(max_size=120)),
    min_size=1,
    max_size=20,
)


def group(rows: list[tuple[str, int, bytes]], expires: int = -1, topic: str = "t") -> Group:
    ids, due, stored = zip(*rows, strict=True)
    ends = np.full(len(rows), expires, dtype=np.int64)
    return Group(
        topic, pa.array(ids), np.array(due, dtype=np.int64), pa.array(stored, pa.large_binary()), ends
    )


STAGED = st.lists(
    st.tuples(
        TEXTS,
        st.integers(0, EXACT - 1) | st.integers(EXACT - 2, LATEST),
        st.binary(max_size=120),
        st.sampled_from([7, 8, 2**60]),
        st.none() | st.integers(1, LATEST),
    ),
    min_size=1,
    max_size=12,
)


def cold(rows: list[tuple[str, int, bytes, int, int | None]]) -> pa.RecordBatch:
    """Rows as the cold store has them."""
    kinds = (pa.string(), pa.int64(), pa.binary(), pa.int64(), pa.int64())
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(
        columns, names=["timer_id", "due_us", "envelope", "version", "expires_us"]
    )


@given(rows=STAGED, most=st.integers(1, 5), cut=st.integers(0, 3))
def test_staged_batches_are_as_packed_singly(
    rows: list[tuple[str, int, bytes, int, int | None]], most: int, cut: int
) -> None:
    """A staged row holds what the store would say of its timers; numbers count up, and nothing is lost."""
    found = list(pack_rows(cold([("before", 1, b"x", 1, 5)] * cut + rows).slice(cut), most))
    assert [part.batch for part in found] == list(range(len(found)))
    assert [part.size for part in found[:-1]] == [most] * (len(found) - 1)
    done = 0
    for part in found:
        ids, due, envelopes, versions, expires = zip(*rows[done : done + part.size], strict=True)
        done += part.size
        singly = PackedRows.of(LoadRows(part.batch, ids, due, envelopes, versions, expires))
        assert [float(text) for text in _texts(part.scores)] == [to_score(each) for each in due]
        assert (bytes(part.timer_ids), bytes(part.envelopes)) == (singly.timer_ids, singly.envelopes)
        assert _texts(part.timer_ids) == [each.encode() for each in ids]
        assert _texts(part.envelopes) == list(envelopes)
        assert (part.size, part.first, *part[6:]) == (singly.size, due[0], *singly[6:])
    assert done == len(rows)


@given(
    rows=TIMERS,
    most=st.integers(1, 4),
    expires=st.sampled_from([-1, LATEST - 5]),
    cut=st.integers(0, 3),
    last=st.booleans(),
)
def test_a_loads_batches_are_as_packed_singly(
    rows: list[tuple[str, int, bytes]], most: int, expires: int, cut: int, last: bool
) -> None:
    """Each timer once, with its first or its last row; nothing else is lost."""
    kept, done = once(rows, last=last), 0
    longer = group([("before", 1, b"x")] * cut + rows, expires)
    sliced = Group(
        "t", longer.timer_ids[cut:], longer.due[cut:], longer.envelopes[cut:], longer.expires[cut:]
    )
    for part in pack_group(sliced.distinct(last=last), most):
        ids, due, envelopes = zip(*kept[done : done + part.size], strict=True)
        done += part.size
        ends = [expires] * part.size if expires >= 0 else [None] * part.size
        singly = PackedRows.of(LoadRows(0, ids, due, envelopes, [], ends))
        assert [float(text) for text in _texts(part.scores)] == [to_score(each) for each in due]
        assert (bytes(part.timer_ids), bytes(part.envelopes)) == (singly.timer_ids, singly.envelopes)
        assert (part.size, *part[6:]) == (singly.size, *singly[6:])
        assert part.size == most or done == len(kept)
    assert done == len(kept)


def once(rows: list[tuple[str, int, bytes]], *, last: bool) -> list[tuple[str, int, bytes]]:
    """Of each id the first row or the last, where it stands."""
    places = {row[0]: n for n, row in reversed(list(enumerate(rows)))}
    if last:
        places = {row[0]: n for n, row in enumerate(rows)}
    return [rows[n] for n in sorted(places.values())]


def _texts(column: Buffer) -> list[bytes]:
    """What is in it. That Redis reads the same is tested with bulk/guarded_load.lua."""
    data, texts, start = bytes(column), [], 0
    while start < len(data):
        width = {0xDA: 2, 0xDB: 4}.get(data[start], 0)
        size = int.from_bytes(data[start + 1 : start + 1 + width]) if width else data[start] & 0x1F
        start += 1 + width
        texts.append(data[start : start + size])
        start += size
    return texts


def test_texts_of_any_length() -> None:
    """Each has the head that its length asks for, whatever lengths are beside it."""
    sizes = [*range(1, 70), 255, 256, 65_535, 65_536]
    ids, envelopes = ["i" * min(size, 256) for size in sizes], [bytes(size) for size in sizes]
    rows = cold([(*each, 1, None) for each in zip(ids, [0] * len(ids), envelopes, strict=True)])
    (found,) = pack_rows(rows)
    singly = PackedRows.of(LoadRows(0, ids, [0] * len(ids), envelopes, [1]))
    assert (bytes(found.timer_ids), bytes(found.envelopes)) == (singly.timer_ids, singly.envelopes)
    assert _texts(found.envelopes) == envelopes


@given(st.integers(0, EXACT - 1))
@example(EXACT - 1)
@example(999_999)
@example(EXACT)
@example(LATEST)
def test_scores_as_text(due: int) -> None:
    """What Redis reads is the score that everybody else computes."""
    (part,) = pack_group(group([("a", due, b"")]))
    assert [float(text) for text in _texts(part.scores)] == [to_score(due)]


def test_batches_are_bounded() -> None:
    """By timers and by bytes, and each has one timer at least."""
    big = [(f"t-{n}", n, bytes(BATCH_BYTES // 2 - 100)) for n in range(4)]
    assert [part.size for part in pack_group(group(big))] == [2, 2]
    huge = [(f"t-{n}", n, bytes(2 * BATCH_BYTES)) for n in range(2)]
    assert [part.size for part in pack_group(group(huge))] == [1, 1]
    assert [part.size for part in pack_group(group([("t", 1, b"")] * (BATCH + 1)))] == [BATCH, 1]


def test_staged_batches_are_bounded_by_bytes() -> None:
    """A call has no more than a MiB or one timer: claims beside it wait so long."""
    sizes = [BATCH_BYTES // 2 - 50, BATCH_BYTES // 2 - 50, 200, BATCH_BYTES + 1, 5]
    rows = cold([(f"{n}", n, bytes(size), 1, None) for n, size in enumerate(sizes)])
    assert [part.size for part in pack_rows(rows)] == [2, 1, 1, 1]
    assert [part.versions for part in pack_rows(rows.slice(0, 2))] == [f"{1:019d}"]
