"""One line an event; extra fields are keys; times are UTC; secrets never."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from relay.telemetry.logs.log_setup import set_up_logs

log = logging.getLogger("relay.tests")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("relay")
    before = list(root.handlers), root.level, ours.level
    yield
    root.handlers[:], root_level, our_level = before
    root.setLevel(root_level)
    ours.setLevel(our_level)


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_has_the_extra_fields_as_keys(stream: io.StringIO) -> None:
    set_up_logs("info", "json", stream)
    log.info("released %d", 3, extra={"topic": "täglich", "timers": 3, "ids": ("a", b"\xff"), "late": 0.5})
    (event,) = events(stream)
    assert event.pop("time").endswith("Z")
    assert event == {
        "level": "info",
        "logger": "relay.tests",
        "message": "released 3",
        "topic": "täglich",
        "timers": 3,
        "ids": ["a", "\\xff"],
        "late": 0.5,
    }


def test_times_are_utc_with_microseconds(stream: io.StringIO) -> None:
    set_up_logs("info", "json", stream)
    record = logging.makeLogRecord({"name": "relay", "levelno": 20, "levelname": "INFO", "msg": "x"})
    record.created = 1_893_456_000.25
    logging.getLogger("relay").handle(record)
    assert events(stream)[0]["time"] == "2030-01-01T00:00:00.250000Z"


def test_text_is_one_line_whatever_comes(stream: io.StringIO) -> None:
    """A name with a line break can't forge an event, and no escape reaches the terminal."""
    set_up_logs("info", "text", stream)
    log.warning("a\nb\x1b[31m", extra={"topic": "x y", "n": 1, "id": "plain"})
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(' warning relay.tests: a\\nb\\x1b[31m topic="x y" n=1 id=plain')


@pytest.mark.parametrize("format", ["json", "text"])
def test_a_password_never_appears(stream: io.StringIO, format: str) -> None:  # noqa: A002
    set_up_logs("info", format, stream)
    url = 'redis://bob:hun"ter2@cache:6379/0'
    try:
        raise ConnectionError(f"no route to {url}")
    except ConnectionError as error:
        log.exception("trouble with %s", url, extra={"url": url, "deep": {"of": [url]}, "error": error})
    assert "ter2" not in stream.getvalue()
    assert "bob:***@cache:6379" in stream.getvalue()


def test_an_exception_comes_with_its_traceback(stream: io.StringIO) -> None:
    set_up_logs("info", "json", stream)
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("failed")
    assert "Traceback" in events(stream)[0]["exception"]
    assert events(stream)[0]["exception"].endswith("ValueError: why")


def test_what_is_not_utf_8_is_written_all_the_same() -> None:
    """Names from Redis may be any bytes."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    record = {"name": "relay", "levelname": "INFO", "levelno": 20, "msg": "\udcff", "id": "\udcfe"}
    record["late"] = float("nan")
    for format_ in ("json", "text"):
        set_up_logs("info", format_, stream)
        # To our handler alone: pytest's own can't carry such text from process to process.
        logging.getLogger().handlers[-1].handle(logging.makeLogRecord(record))
    first, second = raw.getvalue().decode().splitlines()
    assert json.loads(first)["message"] == "\udcff"
    assert "\\udcff" in second


def test_levels(stream: io.StringIO) -> None:
    """The level is for Relay; other libraries say warnings only."""
    set_up_logs("debug", "json", stream)
    log.debug("ours")
    logging.getLogger("redis").info("theirs")
    logging.getLogger("redis").warning("their warning")
    set_up_logs("error", "json", stream)
    log.warning("too little")
    logging.getLogger("redis").warning("too little")
    assert [event["message"] for event in events(stream)] == ["ours", "their warning"]


def test_auto_is_json_where_nobody_reads_along(stream: io.StringIO) -> None:
    set_up_logs("info", "auto", stream)
    log.info("x")
    assert events(stream)[0]["message"] == "x"


def test_auto_is_text_on_a_terminal(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "isatty", lambda: True)
    set_up_logs("info", "auto", stream)
    log.info("x")
    assert stream.getvalue().endswith("info    relay.tests: x\n")


def test_setting_up_twice_writes_once(stream: io.StringIO) -> None:
    set_up_logs("info", "json", stream)
    set_up_logs("info", "json", stream)
    log.info("x")
    assert len(events(stream)) == 1


@pytest.mark.parametrize("format", ["json", "text"])
def test_what_is_named_like_a_payload_or_a_secret_is_hidden(stream: io.StringIO, format: str) -> None:  # noqa: A002
    """Should anybody ever log one, at whatever depth."""
    set_up_logs("debug", format, stream)
    log.error("x", extra={"payload": b"swordfish", "deep": [{"Headers": {"a": "swordfish"}}], "size": 9})
    assert "swordfish" not in stream.getvalue()
    assert "***" in stream.getvalue()
    assert "9" in stream.getvalue()


def test_extra_can_not_take_the_place_of_what_every_event_has(stream: io.StringIO) -> None:
    set_up_logs("info", "json", stream)
    log.info("mine", extra={"time": "never", "level": "none", "logger": "other", "event": "e", "topic": "t"})
    (event,) = events(stream)
    assert list(event) == ["time", "level", "logger", "message", "event", "topic"]
    assert (event["level"], event["logger"], event["message"], event["event"]) == (
        "info",
        "relay.tests",
        "mine",
        "e",
    )
