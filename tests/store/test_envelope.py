"""The stored form: ours, FastStream's in all its ages, and what is none of them."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

import anyio
import pytest
from faststream_redis_timers.envelope import TimerMessageFormat
from hypothesis import given
from hypothesis import strategies as st

from relay.core.timers import Content
from relay.store.codec.envelope import MAGIC, NO_HEADERS, decode, decode_all, encode

# Control characters aside: among them a NUL that stands for a length could be read in two ways.
text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40)
names = text.filter(lambda name: name not in ("", "content-type"))
headers = st.dictionaries(names, text, max_size=6)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
UE = "ü".encode()
any_headers = st.dictionaries(any_text.filter(lambda name: name != "content-type"), any_text, max_size=6)


def written_by_faststream(payload: bytes, given: dict[str, str]) -> bytes:
    """Its writer itself, correlation id and all."""

    async def write() -> bytes:
        return await TimerMessageFormat.encode(
            message=payload, reply_to=None, headers=given, correlation_id="c-1"
        )

    return anyio.run(write)


@given(payload=st.binary(max_size=200), given_headers=any_headers, content_type=any_text)
def test_what_is_written_is_read(payload: bytes, given_headers: dict[str, str], content_type: str) -> None:
    """Payload, headers and content type come back, whatever characters they hold."""
    stored = encode(payload, given_headers, content_type)
    assert decode(stored) == Content(payload, given_headers, content_type)


@given(payload=st.binary(max_size=200), given_headers=any_headers, content_type=any_text)
def test_faststream_reads_what_we_write(
    payload: bytes, given_headers: dict[str, str], content_type: str
) -> None:
    """The peer's reader finds the same, beyond ASCII too."""
    body, found = TimerMessageFormat.parse(encode(payload, given_headers, content_type))
    expected = {**given_headers, **({"content-type": content_type} if content_type else {})}
    assert (body, found) == (payload, expected)


@given(payload=st.binary(max_size=200), given_headers=headers)
def test_we_read_what_faststream_writes(payload: bytes, given_headers: dict[str, str]) -> None:
    """Though its lengths count characters, which its own reader takes for bytes."""
    content = decode(written_by_faststream(payload, given_headers))
    assert content == Content(payload, {"correlation_id": "c-1", **given_headers}, "")


def test_a_peers_content_type() -> None:
    """It is not a header but the content type."""
    content = decode(written_by_faststream(b"{}", {"content-type": "application/json", "ключ": "значение"}))
    assert content == Content(b"{}", {"correlation_id": "c-1", "ключ": "значение"}, "application/json")


def test_the_layout_to_the_byte() -> None:
    """Magic, version, both starts, count, byte lengths, big-endian."""
    block = pack(">H", 1) + b"k" + pack(">H", 2) + "ü".encode()
    expected = MAGIC + pack(">HIIH", 1, 18, 20 + len(block), 1) + block + b"body"
    assert encode(b"body", {"k": "ü"}, "") == expected
    assert encode(b"body", {}, "") == MAGIC + pack(">HIIH", 1, 18, 20, 0) + b"body"


def test_the_longest_headers() -> None:
    """A name or value of 65,535 bytes still fits its length."""
    given_headers = {"k": "x" * 65_535}
    assert decode(encode(b"", given_headers, "")) == Content(b"", given_headers, "")


@pytest.mark.parametrize(
    ("stored", "content"),
    [
        (b'{"data": "\\u00fc", "headers": {"k": "v", "n": 5}}', Content(UE, {"k": "v", "n": "5"}, "")),
        (b'{"data": "x", "headers": {"content-type": "text/plain"}}', Content(b"x", {}, "text/plain")),
        (b'{"data": "x"}', Content(b"x", {}, "")),
        (b'{"b": "00ff", "ct": "application/json"}', Content(b"\x00\xff", {}, "application/json")),
        (b'{"data": "x", "headers": {"\\ud800": "\\udfff"}}', Content(b"x", {"?": "?"}, "")),
        (b'{"b": "", "ct": null}', Content(b"", {}, "")),
        (b'{"b": "7b7d"}', Content(b"{}", {}, "")),
    ],
)  # fmt: skip
def test_legacy_forms(stored: bytes, content: Content) -> None:
    """FastStream's JSON, and the peer's with its payload in hexadecimal."""
    assert decode(stored) == content
    body, found = TimerMessageFormat.parse(stored)
    assert body == content.payload, "the peer reads the same"
    assert found.get("content-type", "") == content.content_type


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"raw",
        b"\xff\xfe",
        b"{",
        b'{"other": 1}',
        b'{"data": 5}',
        b'{"data": "x", "headers": [1]}',
        b'{"data": "\\ud800"}',
        b'{"b": "xyz"}',
        b'{"b": 5}',
        b'{"b": "00", "ct": 5}',
        b'{"a":' + b"[" * 100_000,
        MAGIC,
        MAGIC + b"\x00\x02" + bytes(10) + b"body",
        MAGIC + pack(">HIIH", 1, 18, 10, 0),
        MAGIC + pack(">HIIH", 1, 2, 20, 0),
        MAGIC + pack(">HIIH", 1, 18, 2**32 - 1, 0),
    ],
    ids=range(17),
)
def test_what_is_no_envelope_is_a_payload(stored: bytes) -> None:
    """Whole and untouched."""
    assert decode(stored) == Content(stored, {}, "")


def test_headers_that_add_up_to_nothing() -> None:
    """The payload is found by its start; headers that can't be read are left out."""
    stored = MAGIC + pack(">HIIH", 1, 18, 24, 3) + b"\xff\xff\xff\xff" + b"body"
    assert decode(stored) == Content(b"body", {}, "")


@given(
    payload=st.binary(max_size=50),
    given_headers=any_headers,
    cut=st.integers(0, 200),
    at=st.integers(0, 200),
    byte=st.integers(0, 255),
)
def test_damage_never_raises(
    payload: bytes, given_headers: dict[str, str], cut: int, at: int, byte: int
) -> None:
    """Cut off or overwritten anywhere, something comes out that can be sent on."""
    stored = bytearray(encode(payload, given_headers, "text/plain")[: cut or None])
    stored[at : at + 1] = bytes([byte])
    sendable(decode(bytes(stored)))


@given(st.binary(max_size=300))
def test_garbage_never_raises(garbage: bytes) -> None:
    """Behind the magic or a brace, or bare."""
    for start in (b"", MAGIC, MAGIC + b"\x00\x01", b"{", b'{"data":', b'{"b":'):
        sendable(decode(start + garbage))


def sendable(content: Content) -> None:
    """It is UTF-8, as gRPC wants it."""
    for text_ in (content.content_type, *content.headers, *content.headers.values()):
        text_.encode()


def by_columns(stored: Sequence[bytes]) -> list[Content]:
    """What `decode_all` reads, one by one."""
    return [Content(*each) for each in zip(*decode_all(stored), strict=True)]


def traced(number: int, **more: str) -> bytes:
    """A timer with a trace context."""
    return encode(b"%d" % number, {"traceparent": f"00-{number:032x}-{number:016x}-01", **more}, "text/x")


ALIKE = [traced(number, tenant="Søren") for number in range(10)]
CUT = pack(">8sHIIHH11s", MAGIC, 1, 18, 33, 1, 11, b"traceparent")
ODD = {
    "longer value": traced(10, tenant="Sørensen"),
    "as long, otherwise": traced(10, tenant="Søre", more=""),
    "other name": traced(10, tennant="Søre"),
    "no headers": NO_HEADERS + b"x" * 200,
    "only a content type": encode(b"x" * 200, {}, "text/x"),
    "not UTF-8": traced(10, tenant="Søren").replace("ø".encode(), b"\xff\xff"),
    "cut": CUT,
    "cut where the payload begins": traced(10, tenant="Søren")[:-2],
    "short": MAGIC,
    "bare": b"x" * 300,
    "empty": b"",
    "JSON": b'{"data": "x", "headers": {"a": "b"}}',
    "twice the same name": encode(b"x", {"tenant": "a", "tennat": "b"}, "").replace(b"tennat", b"tenant"),
}


@pytest.mark.parametrize("place", [0, 5, 10])
@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
def test_one_that_is_not_like_its_neighbours(odd: bytes, place: int) -> None:
    """Many with the same layout are read together. Another one among them is read as it is by itself, and so
    are they."""
    stored = [*ALIKE[:place], odd, *ALIKE[place:]]
    assert by_columns(stored) == [decode(each) for each in stored]


@pytest.mark.parametrize("each", [ALIKE[0], *ODD.values()], ids=["traced", *ODD])
def test_many_that_are_alike(each: bytes) -> None:
    """Whatever they are."""
    assert by_columns([each] * 20) == [decode(each)] * 20


@given(
    shape=st.dictionaries(names, st.integers(0, 4), max_size=3), data=st.data(), other=st.binary(max_size=60)
)
def test_those_of_one_layout_are_read_as_each_by_itself(
    shape: dict[str, int], data: st.DataObject, other: bytes
) -> None:
    """Their values have as many characters each, though not always as many bytes; one may be broken."""
    characters = st.sampled_from("abü")
    stored = []
    for _ in range(data.draw(st.integers(8, 12))):
        values = {
            name: data.draw(st.text(characters, min_size=length, max_size=length))
            for name, length in shape.items()
        }
        stored.append(encode(b"x", values, ""))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(stored[0])))
        stored[0] = stored[0][:at] + other + stored[0][at:]
    assert by_columns(stored) == [decode(each) for each in stored]
