"""The log: one line an event, as JSON or as text, on standard error.

    log = logging.getLogger(__name__)
    log.info("released what was left", extra={"topic": topic, "timers": 3})

What `extra` holds becomes keys of its own. Times are UTC. Credentials in URLs are masked wherever
they stand: in the message, in `extra`, in tracebacks.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from relay.core.secrets import mask

STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message"}
"""Attributes of every record, which are no fields of the event."""

EXPORTERS = ("opentelemetry.", "urllib3.")
SELDOM = 60.0
"""Seconds between two records of theirs that say the same."""

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {10: "\\n", 9: "\\t"}


def set_up_logs(level: str = "info", format: str = "auto", stream: TextIO | None = None) -> None:  # noqa: A002
    """Write Relay's records from `level` on, and other libraries' warnings, to `stream` (stderr).

    `format` is json, text, or auto: text where the stream is a terminal. May be called again, and
    then replaces what it did before.
    """
    stream = stream or sys.stderr
    if format == "auto":
        format = "text" if stream.isatty() else "json"  # noqa: A001
    handler = _Handler(stream)
    handler.addFilter(_Seldom())
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root, threshold = logging.getLogger(), logging.getLevelNamesMapping()[level.upper()]
    for old in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(threshold, logging.WARNING))
    logging.getLogger("relay").setLevel(threshold)


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, to be found again."""


class _Seldom(logging.Filter):
    """What the exporter of spans says at each try, for as long as its collector is away: once a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be written."""
        if not record.name.startswith(EXPORTERS):
            return True
        said = record.name, str(record.msg)
        seldom = record.created - self._said.get(said, 0.0) >= SELDOM
        if seldom:
            self._said[said] = record.created
        return seldom


class JsonFormatter(logging.Formatter):
    """`{"time": …, "level": …, "logger": …, "message": …, …extra}`, with `exception` at the end."""

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask(record.getMessage()),
        }
        event |= {name: value for name, value in _fields(record).items() if name not in event}
        if exception := _exception(self, record):
            event["exception"] = exception
        return _printable(json.dumps(event, ensure_ascii=False, separators=(",", ":")))


class TextFormatter(logging.Formatter):
    """`2030-01-02T03:04:05.678901Z info    relay.app: message key=value`, traceback below."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_text(value)}" for name, value in _fields(record).items())
        message = mask(record.getMessage()).translate(_CONTROL)
        line = f"{_time(record)} {record.levelname.lower():7} {record.name}: {message}{fields}"
        if exception := _exception(self, record):
            line = f"{line}\n{exception}"
        return _printable(line)


def _time(record: logging.LogRecord) -> str:
    """ISO 8601, UTC, microseconds."""
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: _plain(value) for name, value in record.__dict__.items() if name not in STANDARD}


def _plain(value: Any) -> Any:
    """What JSON can hold, with secrets masked."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no NaN and no infinity
    if isinstance(value, Mapping):
        return {mask(str(name)): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    return mask(str(value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    plain = value and all(char.isprintable() and char not in " \"'=" for char in value)
    return value if plain else json.dumps(value, ensure_ascii=False).translate(_CONTROL)


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return mask("\n".join(parts))


def _printable(line: str) -> str:
    """Names that are not UTF-8 come as surrogates, which no stream takes."""
    return line.encode("utf-8", "backslashreplace").decode()
