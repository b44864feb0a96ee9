"""Makes envelopes by the column: the same bytes as `relay.store.codec.envelope`, whole Arrow arrays at a
time.

The store's codec is the source of truth for the prefix and the forms. Rare forms (a header that is named
content-type, an envelope of an older form) go through it row by row; a property test holds the two equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.core.timers import Content
from relay.pipeline.rows.columns import CONTENT
from relay.store.codec import envelope

_FIXED = len(envelope.encode(b"", {}, ""))
"""The bytes before the headers."""

_PREFIX = np.dtype(
    [("magic", "S8"), ("version", ">u2"), ("headers", ">u4"), ("body", ">u4"), ("count", ">u2")]
)
_SHAPES = 16
"""The most different lengths of the part before the body in one column; with more, row by row is quicker."""

_END = 1 << 40
"""A byte behind every payload. Without it pyarrow 25 fails on empty slices."""

HEADERS = pa.map_(pa.string(), pa.string())


def encode(payload: pa.Array, headers: pa.Array | None, content_type: pa.Array | None) -> pa.Array:
    """Make envelopes of binary payloads. Null means empty in all three. Headers are a map of strings.

    Names and values have at most 65,535 bytes each.
    """
    size = len(payload)
    payloads = pc.fill_null(payload.cast(pa.large_binary()), b"")
    if headers is None or headers.null_count == size:
        headers = None
    if content_type is not None and content_type.null_count < size:
        if headers is not None:
            return _with_headers(payloads, headers, content_type)
        return _by_content_type(payloads, content_type)
    if headers is None:
        return _joined(pa.scalar(envelope.encode(b"", {}, ""), pa.large_binary()), payloads)
    return _with_headers(payloads, headers, None)


def _joined(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def _by_content_type(payloads: pa.Array, content_types: pa.Array) -> pa.Array:
    """Make what stands before the body once for each distinct content type, of which there are few."""
    kinds = pc.fill_null(content_types, "").dictionary_encode()
    fronts = pa.array(
        [envelope.encode(b"", {}, kind) for kind in kinds.dictionary.to_pylist()], pa.large_binary()
    )
    return _joined(fronts.take(kinds.indices), payloads)


def _with_headers(payloads: pa.Array, headers: pa.Array, content_types: pa.Array | None) -> pa.Array:
    size = len(payloads)
    kinds = pa.repeat("", size) if content_types is None else pc.fill_null(content_types, "")
    offsets = _offsets(headers)
    keys = headers.keys[offsets[0] : offsets[-1]]
    values = headers.items[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    odd = _odd(keys, offsets)
    entries = _joined(*_sized(keys), *_sized(values))
    blocks = _joined_lists(entries, offsets)
    typed = pc.not_equal(kinds, "")
    own = _joined(*_sized(pa.repeat(envelope.CONTENT_TYPE, size)), *_sized(kinds))
    blocks = _joined(blocks, pc.if_else(typed, own, pa.scalar(b"", pa.large_binary())))
    counts = np.diff(offsets) + typed.to_numpy(zero_copy_only=False)
    fronts = _prefixes(counts, pc.binary_length(blocks).to_numpy(zero_copy_only=False))
    made = _joined(fronts, blocks, payloads)
    if odd.any():
        rows = np.flatnonzero(odd)
        exact = [
            envelope.encode(payloads[n].as_py(), dict(headers[n].as_py()), kinds[n].as_py())
            for n in rows.tolist()
        ]
        made = pc.replace_with_mask(made, pa.array(odd), pa.array(exact, pa.large_binary()))
    return made


def _offsets(headers: pa.Array) -> np.ndarray[Any, Any]:
    """Return where each row's entries begin, and where the last ends. A null row has none. Raises
    `ValueError`."""
    offsets: np.ndarray[Any, Any] = headers.offsets.to_numpy()
    if not headers.null_count:
        return offsets
    lengths = np.where(headers.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
    if (lengths == np.diff(offsets)).all():
        return offsets
    raise ValueError("a null among the headers has entries")  # Spark writes none


def _odd(keys: pa.Array, offsets: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Find rows in which a name comes twice, or is content-type: those are encoded from a dict."""
    lengths = np.diff(offsets)
    row = np.repeat(np.arange(len(lengths)), lengths)
    codes = keys.dictionary_encode()
    index = codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    odd = np.zeros(len(lengths), dtype=bool)
    place = pc.index(codes.dictionary, envelope.CONTENT_TYPE).as_py()
    if place >= 0:
        odd[row[index == place]] = True
    pairs = np.sort(row * max(len(codes.dictionary), 1) + index)
    twice = pairs[1:][pairs[1:] == pairs[:-1]]
    odd[twice // max(len(codes.dictionary), 1)] = True
    return odd


def _sized(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Write each text's length as two bytes, and the text."""
    raw = texts.cast(pa.large_binary())
    sizes = pc.binary_length(raw).to_numpy(zero_copy_only=False).astype(">u2")
    return _fixed(sizes.tobytes(), 2, len(texts)), raw


def _fixed(data: bytes, width: int, size: int) -> pa.Array:
    flat = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), size, [None, pa.py_buffer(data)])
    return flat.cast(pa.large_binary())


def _joined_lists(entries: pa.Array, offsets: np.ndarray[Any, Any]) -> pa.Array:
    """Join neighbours: row n gets what lies between its two offsets. No byte is copied."""
    _, starts, data = entries.buffers()
    first = np.frombuffer(starts, dtype=np.int64)[entries.offset : entries.offset + len(entries) + 1]
    bounds = first[offsets] if len(entries) else np.zeros(len(offsets), dtype=np.int64)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(bounds.astype(np.int64)), data]
    )


def _prefixes(counts: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any]) -> pa.Array:
    """Return what stands before the headers."""
    rows = np.zeros(len(counts), dtype=_PREFIX)
    rows["magic"] = envelope.MAGIC
    rows["version"] = 1
    rows["headers"] = _FIXED - 2
    rows["body"] = _FIXED + sizes
    rows["count"] = counts
    return _fixed(rows.tobytes(), _PREFIX.itemsize, len(counts))


def decode(envelopes: pa.Array) -> dict[str, pa.Array]:
    """Read the content of envelopes in any form, as columns: payloads are binary, headers a map of strings.
    Where there is no envelope all are null."""
    raw = envelopes.cast(pa.large_binary())
    bodies = _bodies(raw)
    shapes = np.unique(bodies)
    if len(shapes) > _SHAPES:
        bodies, shapes = np.zeros_like(bodies), np.zeros(1, dtype=bodies.dtype)
    order, pieces = [], []
    for body in shapes.tolist():
        rows = np.flatnonzero(bodies == body)
        order.append(rows)
        pieces.append(_alike(raw.take(pa.array(rows)), body) if body else _one_by_one(raw, rows))
    if len(pieces) == 1:
        return dict(zip(CONTENT, pieces[0], strict=True))
    back = pa.array(np.argsort(np.concatenate(order)) if order else np.zeros(0, dtype=np.int64))
    empty = (pa.nulls(0, pa.binary()), pa.nulls(0, HEADERS), pa.nulls(0, pa.string()))
    columns = (
        pa.concat_arrays([kind, *parts]).take(back) for kind, *parts in zip(empty, *pieces, strict=True)
    )
    return dict(zip(CONTENT, columns, strict=True))


def _bodies(raw: pa.Array) -> np.ndarray[Any, Any]:
    """Return the byte at which each body begins; 0 for an envelope of an older form, or null."""
    _, offsets, data = raw.buffers()
    found = np.zeros(len(raw), dtype=np.int64)
    if data is None:
        return found
    bounds = np.frombuffer(offsets, dtype=np.int64)[raw.offset : raw.offset + len(raw) + 1]
    sizes = np.diff(bounds)
    rows = np.flatnonzero(sizes >= _FIXED)
    flat = np.frombuffer(data, dtype=np.uint8)
    fronts = flat[bounds[rows][:, None] + np.arange(_FIXED)].view(_PREFIX)[:, 0]
    good = (fronts["magic"] == envelope.MAGIC) & (fronts["version"] == 1) & (fronts["headers"] == _FIXED - 2)
    good &= (fronts["body"] >= _FIXED) & (fronts["body"] <= sizes[rows])
    found[rows] = np.where(good, fronts["body"], 0)
    return found


def _alike(raw: pa.Array, body: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Read envelopes whose bodies begin at the same byte. What stands before is read once for each kind."""
    fronts = pc.binary_slice(raw, 0, body).dictionary_encode()
    headers, kinds = _columns([envelope.decode(front) for front in fronts.dictionary.to_pylist()])
    payloads = pc.binary_slice(raw, body, _END).cast(pa.binary())
    return payloads, headers.take(fronts.indices), kinds.take(fronts.indices)


def _one_by_one(raw: pa.Array, rows: np.ndarray[Any, Any]) -> tuple[pa.Array, pa.Array, pa.Array]:
    found = raw.take(pa.array(rows)).to_pylist()
    contents = [None if each is None else envelope.decode(each) for each in found]
    payloads = pa.array([None if each is None else each.payload for each in contents], pa.binary())
    return payloads, *_columns(contents)


def _columns(contents: list[Content] | list[Content | None]) -> tuple[pa.Array, pa.Array]:
    headers = [None if each is None else list(each.headers.items()) for each in contents]
    kinds = [None if each is None else each.content_type for each in contents]
    return pa.array(headers, HEADERS), pa.array(kinds, pa.string())
