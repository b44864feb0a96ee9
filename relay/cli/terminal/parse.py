"""Turns what people type into values. Errors name the option."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from relay.cli.terminal.exits import BAD_INPUT, fail
from relay.core.validate import MOST_PAYLOAD_BYTES

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LENGTH = re.compile(r"[\d.]+|(?:[\d.]+(?:ms|s|m|h|d))+", re.ASCII)
_RATE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:/(s|m|h|d))?", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|d)")


def length(text: str, option: str) -> timedelta:
    """Read a length of time: `5s`, `1.5` (seconds), `2m`, `1h30m`, `250ms`, `1d`."""
    text = text.strip()
    wanted = f"{option}: must be a length of time such as 5s, 1.5, 2m, 1h30m or 250ms, got {text!r}"
    if text.startswith("-"):
        fail(f"{option}: is negative, got {text!r}; give 0 or more", BAD_INPUT)
    parts = _PART.findall(text)
    if "".join(number + unit for number, unit in parts) != text or not parts:
        if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", text, re.ASCII):
            fail(wanted, BAD_INPUT)
        parts = [(text, "s")]
    try:
        return timedelta(seconds=sum(float(number) * UNITS[unit] for number, unit in parts))
    except OverflowError:
        fail(f"{option}: is too long, got {text!r}; Relay's time ends with the year 9999", BAD_INPUT)


def rate(text: str, option: str) -> float:
    """Read a rate and return it as a number a second: `100/s`, `100`, `30/m`."""
    match = _RATE.fullmatch(text.strip())
    if match is None or not float(match[1]) > 0:
        fail(f"{option}: must be a rate above 0 such as 100/s, 100 or 30/m, got {text!r}", BAD_INPUT)
    return float(match[1]) / UNITS[match[2] or "s"]


def past(text: str, option: str) -> datetime:
    """Read an instant, or a length of time, which is counted back from now by this machine's clock."""
    if not _LENGTH.fullmatch(text.strip()):
        return instant(text, option)
    try:
        return datetime.now(UTC) - length(text, option)
    except OverflowError:
        fail(f"{option}: is too long ago, got {text!r}", BAD_INPUT)


def instant(text: str, option: str) -> datetime:
    """Read an instant in ISO 8601 with an offset from UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        fail(f"{option}: must be an ISO 8601 time such as 2030-01-31T09:00:00Z, got {text!r}", BAD_INPUT)
    if moment.tzinfo is None:
        fail(f"{option}: has no offset from UTC; add Z or one such as +02:00, got {text!r}", BAD_INPUT)
    return moment


def headers(pairs: tuple[str, ...]) -> dict[str, str]:
    """Read `NAME=VALUE` pairs. A value may be empty and may contain `=`."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            fail(f"--header: must be NAME=VALUE, got {pair!r}", BAD_INPUT)
        if name in found:
            fail(f"--header: {name!r} is given twice", BAD_INPUT)
        found[name] = value
    return found


def payload(text: str | None, file: Path | None) -> bytes:
    """Return the bytes of the option that is given, or none if neither is. A file that is larger than any
    relay accepts is refused before it is read."""
    if text is not None and file is not None:
        fail("--payload and --payload-file can't both be given", BAD_INPUT)
    if file is None:
        return (text or "").encode(errors="surrogateescape")
    try:
        if str(file) == "-":
            return _bounded(sys.stdin.buffer, file)
        with file.open("rb") as opened:
            return _bounded(opened, file)
    except OSError as error:
        fail(f"--payload-file: {file} can't be read: {error.strerror or error}", BAD_INPUT)


def _bounded(opened: BinaryIO, file: Path) -> bytes:
    content = opened.read(MOST_PAYLOAD_BYTES + 1)
    if len(content) > MOST_PAYLOAD_BYTES:
        fail(
            f"--payload-file: {file} has more than {MOST_PAYLOAD_BYTES} bytes, the most that a topic's "
            "max_payload_bytes can be set to; store the content elsewhere and schedule its key",
            BAD_INPUT,
        )
    return content
