"""Bad input: each rule, its edge, and a message that names the field and what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core import validate
from relay.core.errors import InvalidField
from relay.core.instants import LATEST

LIMIT = 1 << 20


def refused(check: Callable[[], object]) -> InvalidField:
    with pytest.raises(InvalidField) as refusal:
        check()
    return refusal.value


@pytest.mark.parametrize("field", ["topic", "timer_id"])
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "is empty; give it 1 to 256 bytes"),
        ("x" * 257, "is 257 bytes long; at most 256 are allowed"),
        ("é" * 129, "is 258 bytes long; at most 256 are allowed"),
        ("🔑" * 65, "is 260 bytes long; at most 256 are allowed"),
        ("a{b", "contains a brace; leave out { and }"),
        ("}", "contains a brace; leave out { and }"),
        ("a\x00b", "contains the control character U+0000; leave it out"),
        ("a\nb", "contains the control character U+000A; leave it out"),
        ("\x1f", "contains the control character U+001F; leave it out"),
        ("\x7f", "contains the control character U+007F; leave it out"),
        ("a\x85", "contains the control character U+0085; leave it out"),
        ("a\x9f", "contains the control character U+009F; leave it out"),
    ],
)
def test_names_that_are_refused(field: str, value: str, problem: str) -> None:
    """Topics and timer ids alike."""
    refusal = refused(lambda: validate.name(field, value))
    assert (refusal.field, refusal.problem) == (field, problem)
    assert str(refusal) == f"{field}: {problem}"


@pytest.mark.parametrize(
    "value",
    ["a", "x" * 256, "é" * 128, "🔑" * 64, "Order 1:2/3#4", " ", ":", "\xa0", "счёт", "a" * 255 + "-"],
)
def test_names_that_are_taken(value: str) -> None:
    """Anything else of 1 to 256 bytes."""
    assert validate.name("topic", value) == value


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_names_by_the_rule(value: str) -> None:
    """The quick path and the long one follow one rule."""
    allowed = 1 <= len(value.encode()) <= 256 and not any(
        char in "{}" or ord(char) < 32 or 127 <= ord(char) < 160 for char in value
    )
    if allowed:
        assert validate.name("timer_id", value) == value
    else:
        assert refused(lambda: validate.name("timer_id", value)).field == "timer_id"


def test_half_a_character_is_refused() -> None:
    """A lone surrogate, as JSON and command lines may spell one, is not text that can be stored."""
    assert refused(lambda: validate.name("timer_id", "a\ud800")).field == "timer_id"
    for headers in ({"\ud800": "x"}, {"x": "\udfff"}):
        assert refused(lambda headers=headers: validate.headers(headers)).field == "headers"  # type: ignore[misc]


def test_payloads() -> None:
    """Up to the topic's limit, to the byte; the message tells both sizes."""
    assert validate.payload(b"", LIMIT) == b""
    assert len(validate.payload(bytes(LIMIT), LIMIT)) == LIMIT
    refusal = refused(lambda: validate.payload(bytes(LIMIT + 1), LIMIT))
    assert refusal.field == "payload"
    assert "1048577" in refusal.problem
    assert "max_payload_bytes of this topic is 1048576" in refusal.problem


def test_headers() -> None:
    """Names and values together, in bytes; no name is empty."""
    assert validate.headers({}) == {}
    fits = {"k": "x" * (64 * 1024 - 1)}
    assert validate.headers(fits) == fits
    too_long: list[dict[str, str]] = [
        {"k": "x" * (64 * 1024)},
        {"a": "é" * 32 * 1024},
        {"é" * 32 * 1024: "x"},
        {f"{n:04}": "x" * 60 for n in range(1025)},
    ]
    for headers in too_long:
        refusal = refused(lambda headers=headers: validate.headers(headers))  # type: ignore[misc]
        assert (refusal.field, "at most 65536" in refusal.problem) == ("headers", True)
    refusal = refused(lambda: validate.headers({"": "x"}))
    assert (refusal.field, refusal.problem) == ("headers", "has an empty name; name every header")


@pytest.mark.parametrize("value", [0, 1, LATEST])
def test_times_that_are_taken(value: int) -> None:
    """From 1970 to the last second of 9999."""
    assert validate.due(value) == value
    assert validate.delay(value) == value


@pytest.mark.parametrize(
    ("check", "value", "field", "word"),
    [
        (validate.due, -1, "due_time", "before 1970"),
        (validate.due, LATEST + 1, "due_time", "after 9999"),
        (validate.delay, -1, "delay", "negative"),
        (validate.delay, LATEST + 1, "delay", "9999"),
    ],
)
def test_times_that_are_refused(check: Callable[[int], int], value: int, field: str, word: str) -> None:
    """One microsecond beyond is too much."""
    refusal = refused(lambda: check(value))
    assert refusal.field == field
    assert word in refusal.problem


def test_content_types() -> None:
    """Empty, or a name like others."""
    assert validate.content_type("") == ""
    assert validate.content_type("application/json; charset=utf-8") == "application/json; charset=utf-8"
    for bad in ("x" * 257, "text\nplain"):
        assert refused(lambda bad=bad: validate.content_type(bad)).field == "content_type"  # type: ignore[misc]
