"""Rows and columns of one declaration: what is in one of the two only is refused as a module is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest

from relay.core.batch import Batch, columns_of
from relay.core.timers import (
    KEEP_EXISTING,
    ClaimedTimer,
    ClaimedTimers,
    Content,
    NewTimer,
    NewTimers,
    StoredTimer,
    TimerState,
)


class _Row(NamedTuple):
    timer_id: str
    size: int = 7


def test_columns_are_the_fields_of_the_row_in_lists() -> None:
    @columns_of(_Row)
    @dataclass(slots=True)
    class _Columns(Batch[_Row]):
        timer_ids: list[str]
        sizes: list[int]

    columns = _Columns.filled(["a", "b"])
    assert list(columns) == [_Row("a"), _Row("b")]
    assert columns.only([1])[0] == _Row("b", 7)
    assert list(_Columns.joined([columns, _Columns.of([_Row("c", 1)])])) == [*columns, _Row("c", 1)]
    assert list(_Columns.of([])) == []


def test_a_field_without_a_column_is_refused() -> None:
    @dataclass(slots=True)
    class _Columns(Batch[_Row]):
        timer_ids: list[str]

    with pytest.raises(TypeError, match="_Columns has 1 columns for 2 fields"):
        columns_of(_Row)(_Columns)


def test_columns_in_another_order_are_refused() -> None:
    @dataclass(slots=True)
    class _Columns(Batch[_Row]):
        sizes: list[int]
        timer_ids: list[str]

    with pytest.raises(TypeError, match=r"_Columns\.sizes is not the column of _Row\.timer_id"):
        columns_of(_Row)(_Columns)


def test_a_column_of_another_type_is_refused() -> None:
    @dataclass(slots=True)
    class _Columns(Batch[_Row]):
        timer_ids: list[str]
        sizes: list[str]

    with pytest.raises(TypeError, match=r"_Columns\.sizes is not the column of _Row\.size"):
        columns_of(_Row)(_Columns)


def test_a_column_that_is_missing_without_a_default_is_refused() -> None:
    with pytest.raises(TypeError, match="payloads"):
        NewTimers.filled(["a"])
    with pytest.raises(TypeError, match="paylods"):
        NewTimers.filled(["a"], payloads=[b""], paylods=[b""])


def test_rows_come_back_as_they_went_in() -> None:
    new = NewTimer("a", b"x", delay=3, headers={"k": "v"}, content_type="text/plain", intent=KEEP_EXISTING)
    assert NewTimers.of([new, new])[1] == new
    claimed = ClaimedTimer("a", b"x", {}, "", due=1, attempt=2, occurrence_id="a/0", suspect=True, proof=b"p")
    assert list(ClaimedTimers.of([claimed])) == [claimed]


def test_content_is_taken_from_what_has_it() -> None:
    content = Content(b"x", {"k": "v"}, "text/plain")
    stored = StoredTimer("a", TimerState.PENDING, 1, 1, 0, **content.fields())
    assert Content.of(stored) == content
    assert Content.of(NewTimer("a", **content.fields())) == content
