"""Envelopes by the column are, byte for byte, those of the store."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from relay.pipeline.rows import envelopes
from relay.store.codec import envelope

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.sampled_from(["a", "b", "content-type", "é", "x-trace"]) | TEXTS
PAIRS = st.lists(st.tuples(NAMES, TEXTS | st.just("v" * 300)), max_size=4)
ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=40),
        st.none() | PAIRS,
        st.none() | st.sampled_from(["", "text/plain", "application/json"]) | TEXTS,
    ),
    max_size=12,
)


def one(row: tuple[bytes | None, list[tuple[str, str]] | None, str | None]) -> bytes:
    payload, headers, content_type = row
    return envelope.encode(payload or b"", dict(headers or []), content_type or "")


def arrays(rows: list[Any], cut: int) -> list[pa.Array]:
    """The three columns, as slices of longer ones."""
    longer = [(b"before", [("z", "z")], "z/z")] * cut + rows + [(b"behind", [("y", "y")], "y/y")]
    kinds = (pa.binary(), envelopes.HEADERS, pa.string())
    return [pa.array([row[n] for row in longer], kind)[cut : cut + len(rows)] for n, kind in enumerate(kinds)]


@given(rows=ROWS, cut=st.integers(0, 2))
@example(rows=[(b"x", [("content-type", "a")], "b"), (b"", [("a", "1"), ("a", "2")], None)], cut=1)
def test_encoding_is_the_stores(rows: list[Any], cut: int) -> None:
    """With and without headers and content types, nulls, names that come twice."""
    payloads, headers, content_types = arrays(rows, cut)
    expected = [one(row) for row in rows]
    assert envelopes.encode(payloads, headers, content_types).to_pylist() == expected
    plain = [envelope.encode(row[0] or b"", {}, "") for row in rows]
    assert envelopes.encode(payloads, None, None).to_pylist() == plain
    typed = [envelope.encode(row[0] or b"", {}, row[2] or "") for row in rows]
    assert envelopes.encode(payloads, None, content_types).to_pylist() == typed
    headed = [envelope.encode(row[0] or b"", dict(row[1] or []), "") for row in rows]
    assert envelopes.encode(payloads, headers, None).to_pylist() == headed


STORED = ROWS.map(lambda rows: one(rows[0]) if rows else b"")
BROKEN = st.sampled_from(
    [
        b"",
        b"{",
        b'{"data": "x", "headers": {"a": "b"}}',
        b'{"b": "ff", "ct": "text/plain"}',
        envelope.MAGIC,
        envelope.encode(b"", {"a": "b"}, "")[:-1],
        envelope.MAGIC + b"\0\2" + bytes(20),
        envelope.MAGIC + b"\0\1\0\0\0\x12\0\0\0\x14\0\3" + b"body",
        envelope.MAGIC + b"\0\1\0\0\0\x10\0\0\0\x14\0\0" + b"body",
        envelope.MAGIC + b"\0\1\0\0\0\x12\0\0\0\x13\0\0" + b"body",
    ]
)


@given(
    stored=st.lists(st.none() | BROKEN | st.binary(max_size=30) | STORED, max_size=30),
    cut=st.integers(0, 2),
)
@example(stored=[one((b"x" * n, [("h", "v" * n)], None)) for n in range(30)], cut=0)
def test_decoding_is_the_stores(stored: list[bytes | None], cut: int) -> None:
    """Today's form, older ones, broken ones and what is none; many shapes in one column."""
    column = pa.array([b"before"] * cut + stored + [b"behind"], pa.binary())[cut : cut + len(stored)]
    payloads, headers, kinds = (each.to_pylist() for each in envelopes.decode(column).values())
    found = [
        None if payload is None else (payload, dict(held), kind)
        for payload, held, kind in zip(payloads, headers, kinds, strict=True)
    ]
    assert found == [None if each is None else tuple(envelope.decode(each)) for each in stored]
