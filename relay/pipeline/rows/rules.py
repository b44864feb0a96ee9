"""The rules of `relay.core.validate`, a column at a time. The mistake of a row is noted in `bad`, by its
number.

A few passes over a column find the usual rows. Only the others are checked one by one, by the rule itself,
which then says why a row is refused. The first reason counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.core import validate
from relay.core.errors import InvalidField
from relay.core.instants import LATEST, spread_of
from relay.pipeline.rows import packing
from relay.pipeline.rows.reading import Reading

_SCHEDULE = "schedule"
OPS = {_SCHEDULE: packing.SCHEDULE, "cancel": packing.CANCEL, "move": packing.MOVE}
"""The words of the column `op`, and the bytes that stand for them."""
NO_TIME = "due_time: is missing, or not a time"

_PLAIN = r"^[ -z|~]{1,256}$"
_LONGEST = 256
_PLAIN_BYTES = bytes(each for each in range(0x20, 0x7F) if each not in b"{}")
_MOST = validate.MAX_HEADER_BYTES


RefusesSubjects: TypeAlias = Callable[[str, Sequence[str]], Mapping[str, str]]
"""Says of a topic which of these subjects it does not take, and why not."""


def takes_all(_topic: str, _names: Sequence[str]) -> Mapping[str, str]:
    """Refuse no subject."""
    return {}


class TopicColumn(NamedTuple):
    """Each row's topic, as the index of its name; -1 if there is none."""

    names: list[str]
    codes: np.ndarray[Any, Any]

    def of(self, row: int) -> str:
        """Return one row's topic."""
        return self.names[int(self.codes[row])]


def topics(column: pa.Array, reading: Reading, bad: dict[int, str]) -> TopicColumn:
    """Return each row's topic. An invalid one, or one that is not admitted, is refused."""
    kinds = column.dictionary_encode()
    wrong: dict[int, str] = {}
    for n, topic in enumerate(kinds.dictionary.to_pylist()):
        try:
            reading.target.admit(topic)
        except InvalidField as refusal:
            wrong[n] = str(refusal)
    for n in _rows(pc.is_null(column)):
        bad.setdefault(n, "topic: is empty; give it 1 to 256 bytes")
    if wrong:
        for n, code in enumerate(kinds.indices.to_pylist()):
            if code in wrong:
                bad.setdefault(n, wrong[code])
    codes = pc.fill_null(kinds.indices, -1).to_numpy(zero_copy_only=False)
    return TopicColumn(kinds.dictionary.to_pylist(), codes)


def _rows(mask: pa.Array) -> list[int]:
    """Return the rows for which it is true."""
    rows: list[int] = np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist()
    return rows


def instants(column: pa.Array, name: str, bad: dict[int, str], *, needed: bool) -> np.ndarray[Any, Any]:
    """Return microseconds; -1 if there is none."""
    if needed:
        for n in _rows(pc.is_null(column)):
            bad.setdefault(n, NO_TIME)
    found = pc.fill_null(column.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    for n in np.flatnonzero(((found < 0) | (found > LATEST)) & column.is_valid().to_numpy(False)).tolist():
        try:
            validate.due(int(found[n]), name)
        except InvalidField as refusal:
            bad.setdefault(n, str(refusal))
    return np.asarray(found)


def expiry(due: np.ndarray[Any, Any], expires: np.ndarray[Any, Any], bad: dict[int, str]) -> None:
    """Check that an expiry is after the due time."""
    for n in np.flatnonzero((expires >= 0) & (expires <= due)).tolist():
        bad.setdefault(n, "expire_time: is not after due_time; give a later one, or none")


def spread(
    due: np.ndarray[Any, Any], expires: np.ndarray[Any, Any], window: int, bad: dict[int, str]
) -> None:
    """Check that every place within the window is a due time, and not after the expiry."""
    for n in np.flatnonzero(due > LATEST - window).tolist():
        bad.setdefault(n, "due_time: is after 9999 with spread; give an earlier one, or a shorter spread")
    for n in np.flatnonzero((expires >= 0) & (expires < due + window)).tolist():
        bad.setdefault(n, "expire_time: is within spread; give one behind due_time and spread, or none")


def places(ids: pa.Array, window: int) -> np.ndarray[Any, Any]:
    """Return each timer's place within the window, in microseconds."""
    return np.array([spread_of(each, window) for each in ids.to_pylist()], dtype=np.int64)


def content(
    columns: Mapping[str, pa.Array], topics: TopicColumn, reading: Reading, bad: dict[int, str]
) -> None:
    """Check what a timer carries."""
    _content_types(columns["content_type"], bad)
    _headers(columns["headers"], bad)
    _sizes(columns["payload"], topics, reading, bad)


def _content_types(column: pa.Array, bad: dict[int, str]) -> None:
    """See `validate.content_type`."""
    kinds = column.dictionary_encode()
    for code, kind in enumerate(kinds.dictionary.to_pylist()):
        try:
            validate.content_type(kind)
        except InvalidField as refusal:
            for n in _rows(pc.fill_null(pc.equal(kinds.indices, code), False)):
                bad.setdefault(n, str(refusal))


def _headers(column: pa.Array, bad: dict[int, str]) -> None:
    """Check headers: names are not empty, values are present, and the total fits."""
    if column.null_count == len(column):
        return
    offsets = column.offsets.to_numpy()
    keys, values = (part[offsets[0] : offsets[-1]] for part in (column.keys, column.items))
    sizes = [
        pc.fill_null(pc.binary_length(part), 0).to_numpy(zero_copy_only=False) for part in (keys, values)
    ]
    row = np.repeat(np.arange(len(column)), np.diff(offsets))
    total = np.bincount(row, sizes[0] + sizes[1], len(column))
    odd = (sizes[0] == 0) | values.is_null().to_numpy(zero_copy_only=False)
    for n in sorted({*np.flatnonzero(total > _MOST).tolist(), *row[odd].tolist()}):
        held = dict(column[n].as_py() or ())
        empty = next((name for name, value in held.items() if value is None), None)
        if empty is not None:
            bad.setdefault(n, f"headers: {empty!r} has no value; give one, or leave it out")
            continue
        try:
            validate.headers(held)
        except InvalidField as refusal:
            bad.setdefault(n, str(refusal))


def _sizes(column: pa.Array, topics: TopicColumn, reading: Reading, bad: dict[int, str]) -> None:
    """Check that no payload is larger than its topic accepts."""
    target = reading.target
    least = min((each.max_payload_bytes for each in (target.default, *target.own.values())), default=0)
    for n in _rows(pc.fill_null(pc.greater(pc.binary_length(column), least), False)):
        if n in bad:
            continue
        try:
            validate.payload(column[n].as_py(), target.rules(topics.of(n)).max_payload_bytes)
        except InvalidField as refusal:
            bad.setdefault(n, str(refusal))


def ids(column: pa.Array, bad: dict[int, str], reading: Reading) -> np.ndarray[Any, Any]:
    """Return the rows without a timer_id, which get one."""
    missing = column.is_null()
    if not reading.make_ids:
        for n in _rows(missing):
            bad.setdefault(n, "timer_id: is missing; give it 1 to 256 bytes")
    odd = (
        []
        if _all_plain(column)
        else _rows(pc.invert(pc.fill_null(pc.match_substring_regex(column, _PLAIN), True)))
    )
    for n in odd:
        try:
            validate.name("timer_id", column[n].as_py())
        except InvalidField as refusal:
            bad.setdefault(n, str(refusal))
    found: np.ndarray[Any, Any] = missing.to_numpy(zero_copy_only=False)
    return found


def subjects(
    column: pa.Array, topics: TopicColumn, bad: dict[int, str], refused: RefusesSubjects
) -> np.ndarray[Any, Any] | None:
    """Return whom each row is about, empty for nobody; None if no row is about anybody. Only rows without a
    mistake so far are asked about: a subject that is taken gets a key."""
    kinds = pc.fill_null(column, "").dictionary_encode()
    names = kinds.dictionary.to_pylist()
    if not any(names):
        return None
    wrong: dict[int, str] = {}
    for code, name in enumerate(names):
        try:
            if name:
                validate.name("seal_with", name)
        except InvalidField as refusal:
            wrong[code] = str(refusal)
    codes = kinds.indices.to_numpy(zero_copy_only=False)
    for n in np.flatnonzero(np.isin(codes, list(wrong))).tolist():
        bad.setdefault(n, wrong[int(codes[n])])
    usable = np.ones(len(codes), dtype=bool)
    usable[list(bad)] = False
    for number, topic in enumerate(topics.names):
        mine = np.flatnonzero(usable & (topics.codes == number))
        asked = [names[code] for code in np.unique(codes[mine]).tolist() if names[code]]
        reasons = refused(topic, asked) if asked else {}
        for n in mine.tolist() if reasons else ():
            if reason := reasons.get(names[codes[n]]):
                bad.setdefault(n, f"seal_with: {reason}")
    found: np.ndarray[Any, Any] = np.array(names, dtype=object)[codes]
    return found


def ops(column: pa.Array, ids: pa.Array, bad: dict[int, str]) -> np.ndarray[Any, Any]:
    """Return what each row does, as bytes. Without a word it schedules."""
    kinds = pc.fill_null(column, _SCHEDULE).dictionary_encode()
    words = kinds.dictionary.to_pylist()
    codes = kinds.indices.to_numpy(zero_copy_only=False)
    known = np.array([OPS.get(word, packing.SCHEDULE) for word in words], dtype=np.uint8)
    for code, word in enumerate(words):
        if word not in OPS:
            for n in np.flatnonzero(codes == code).tolist():
                bad.setdefault(n, f"op: is {word[:100]!r}; give {' or '.join(OPS)}")
    found: np.ndarray[Any, Any] = known[codes]
    for n in np.flatnonzero((found != packing.SCHEDULE) & ids.is_null().to_numpy(False)).tolist():
        bad.setdefault(n, "timer_id: is missing; a row that cancels or moves a timer needs it")
    return found


def versions(column: pa.Array, bad: dict[int, str]) -> np.ndarray[Any, Any]:
    """Return the versions; one is needed, and a time is microseconds since 1970."""
    found: np.ndarray[Any, Any] = pc.fill_null(column, -1).to_numpy(zero_copy_only=False)
    for n in np.flatnonzero(found < 0).tolist():
        bad.setdefault(n, "version: is missing or negative; give a number from 0, or a time from 1970")
    return found


def _all_plain(column: pa.Array) -> bool:
    """Whether all values match `_PLAIN`. This looks at the column's bytes, in a tenth of the time."""
    lengths = pc.min_max(pc.binary_length(column))
    if lengths["min"].is_valid and not 1 <= lengths["min"].as_py() <= lengths["max"].as_py() <= _LONGEST:
        return False
    _, offsets, data = column.buffers()
    if data is None:
        return True
    first, last = np.frombuffer(offsets, dtype=np.int32)[[column.offset, column.offset + len(column)]]
    return not bytes(memoryview(data)[first:last]).translate(None, _PLAIN_BYTES)
