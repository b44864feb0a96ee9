"""Of a task's rows of a timer one is made, which does what all of them do in their order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.pipeline.rows.folding import Gathered
from relay.pipeline.rows.packing import Group

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = tuple[str, str, int]
"""What it does, its timer, its due time. The payload of the n-th row that schedules is n."""


def group(rows: Sequence[Row], first: int = 0, topic: str = "t") -> Group:
    ops, ids, due = zip(*rows, strict=True)
    return Group(
        topic,
        pa.array(ids, pa.string()),
        np.array(due, dtype=np.int64),
        pa.array([b"%d" % n for n in range(first, first + len(rows))], pa.large_binary()),
        np.full(len(rows), -1, dtype=np.int64),
        np.frombuffer("".join(ops).encode(), dtype=np.uint8),
    )


def folded(*parts: Sequence[Row]) -> list[tuple[str, str, int, bytes]]:
    gathered, first = Gathered(), 0
    for part in parts:
        gathered.put(group(part, first))
        first += len(part)
    return [
        (chr(op), timer_id, due, envelope)
        for each in gathered.folded()
        for op, timer_id, due, envelope in zip(
            each.ops.tolist() if each.ops is not None else [],
            each.timer_ids.to_pylist(),
            each.due.tolist(),
            each.envelopes.to_pylist(),
            strict=True,
        )
    ]


@pytest.mark.parametrize(
    ("ops", "one"),
    [
        ("ss", ("s", 2, b"1")),
        ("sc", ("c", 2, b"1")),
        ("cs", ("s", 2, b"1")),
        ("sm", ("s", 2, b"0")),
        ("smm", ("s", 3, b"0")),
        ("sms", ("s", 3, b"2")),
        ("cm", ("c", 1, b"0")),
        ("mc", ("c", 2, b"1")),
        ("mm", ("m", 2, b"1")),
        ("ms", ("s", 2, b"1")),
        ("scm", ("c", 2, b"1")),
    ],
)
def test_one_timer(ops: str, one: tuple[str, int, bytes]) -> None:
    """In one part of the task, and in as many parts as there are rows."""
    rows = [(op, "a", n) for n, op in enumerate(ops, 1)]
    op, due, envelope = one
    assert folded(rows) == [(op, "a", due, envelope)]
    assert folded(*([row] for row in rows)) == [(op, "a", due, envelope)]


rows = st.lists(st.tuples(st.sampled_from("scm"), st.sampled_from("abc"), st.integers(1, 99)), min_size=1)


@given(st.lists(rows, min_size=1, max_size=4), st.sampled_from(["", "a", "abc"]))
def test_the_same_as_row_by_row(parts: list[list[Row]], there: str) -> None:
    """Whatever lives before: what is left is the same."""
    one_by_one = dict.fromkeys(there, (0, b"old"))
    number = 0
    for part in parts:
        for op, timer_id, due in part:
            change(one_by_one, op, timer_id, due, b"%d" % number)
            number += 1
    at_once = dict.fromkeys(there, (0, b"old"))
    made = folded(*parts)
    assert len({timer_id for _, timer_id, _, _ in made}) == len(made)
    for op, timer_id, due, envelope in made:
        change(at_once, op, timer_id, due, envelope)
    assert at_once == one_by_one


def of_versions(rows: Sequence[tuple[str, str, int, int]]) -> list[tuple[str, int, bytes, int, int]]:
    """Rows with their versions: what is made of those of one timer."""
    plain = group([(op, name, due) for op, name, due, _ in rows])
    gathered = Gathered()
    gathered.put(replace(plain, versions=np.array([version for *_, version in rows], dtype=np.int64)))
    (made,) = gathered.folded()
    assert made.ops is not None
    assert made.versions is not None
    assert made.moves is not None
    envelopes = made.envelopes.to_pylist()
    columns = made.ops.tolist(), made.due.tolist(), envelopes, made.versions.tolist(), made.moves.tolist()
    return [(chr(op), *rest) for op, *rest in zip(*columns, strict=True)]


@pytest.mark.parametrize(
    ("versions", "one"),
    [
        ("s3 s1 s2", ("s", 3, b"0", 3, -1)),
        ("c3 s1", ("c", 3, b"0", 3, -1)),
        ("s3 c1", ("s", 3, b"0", 3, -1)),
        ("m3 s1", ("s", 3, b"1", 1, 3)),
        ("m3 c1 m2", ("c", 3, b"1", 1, 3)),
        ("m3 m1", ("m", 3, b"0", 3, -1)),
        ("m1 s2 m3", ("s", 3, b"1", 2, 3)),
        ("s2 s2", ("s", 2, b"1", 2, -1)),
    ],
)
def test_in_the_order_of_versions(versions: str, one: tuple[str, int, bytes, int, int]) -> None:
    """The due time of each row is its version. Of equal ones the last counts."""
    rows = [(text[0], "a", int(text[1]), int(text[1])) for text in versions.split()]
    assert of_versions(rows) == [one]


def change(timers: dict[str, tuple[int, bytes]], op: str, timer_id: str, due: int, envelope: bytes) -> None:
    """What a row does."""
    if op == "s":
        timers[timer_id] = due, envelope
    elif op == "c":
        timers.pop(timer_id, None)
    elif timer_id in timers:
        timers[timer_id] = due, timers[timer_id][1]
