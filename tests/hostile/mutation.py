"""Damage: from valid inputs, by a seeded generator, the same at every run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

ODD = (b"\x00", b"\xff", b"\x80" * 11, b"\xed\xa0\x80", b"\xf4\x90\x80\x80", "٣".encode(), "\u2028".encode())
"""Bytes that parsers of text and of varints stumble over: no UTF-8, half a character, digits of others."""
NUMBERS = (b"0", b"-1", b"4294967296", b"9223372036854775808", b"1e999", b"nan", b"9" * 400, b"9" * 5_000)
LONG = 20_000
"""The most bytes that a piece grows to when it is repeated."""

Damage = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def _place(drawn: random.Random, data: bytes) -> tuple[int, int]:
    """A piece of the input: where it begins and ends."""
    begin = drawn.randrange(len(data) + 1)
    return begin, min(len(data), begin + drawn.choice((1, 1, 2, 4, 16, 64)))


def _flip(drawn: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return b"\x01"
    place = drawn.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << drawn.randrange(8)]) + data[place + 1 :]


def _cut(drawn: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: drawn.randrange(len(data) + 1)]


def _drop(drawn: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = _place(drawn, data)
    return data[:begin] + data[end:]


def _insert(drawn: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    begin, _ = _place(drawn, data)
    return data[:begin] + drawn.choice((*words, *ODD, *NUMBERS, drawn.randbytes(4))) + data[begin:]


def _replace(drawn: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    begin, end = _place(drawn, data)
    return data[:begin] + drawn.choice((*words, *NUMBERS, drawn.randbytes(end - begin))) + data[end:]


def _repeat(drawn: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = _place(drawn, data)
    piece = data[begin:end] or b" "
    most = drawn.choice((2, 10, LONG // len(piece)))
    return data[:begin] + piece * most + data[end:]


def _noise(drawn: random.Random, _: bytes, __: Sequence[bytes]) -> bytes:
    return drawn.randbytes(drawn.randrange(100))


_ALL: tuple[Damage, ...] = (_flip, _flip, _cut, _drop, _insert, _insert, _replace, _replace, _repeat, _noise)


def damaged(seed: str, valid: Sequence[bytes], words: Sequence[bytes], count: int) -> Iterator[bytes]:
    """Yield `count` inputs, the valid ones first. Most have one or two faults, so that they get far into a
    parser; some are made of two valid inputs. `words` are those that mean something to it."""
    yield from valid
    drawn = random.Random(seed)
    for _ in range(count - len(valid)):
        data = drawn.choice(valid)
        if drawn.random() < 0.1:
            other = drawn.choice(valid)
            data = data[: drawn.randrange(len(data) + 1)] + other[drawn.randrange(len(other) + 1) :]
        for _ in range(drawn.choice((1, 1, 2, 3))):
            data = drawn.choice(_ALL)(drawn, data, words)
        yield data
