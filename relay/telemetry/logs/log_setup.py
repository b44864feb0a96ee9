"""The log: one line for each event, as JSON or as text, on standard error.

    log = logging.getLogger(__name__)
    log.info("released what was left", extra={"topic": topic, "timers": 3})

The fields of `extra` become keys of the line. Times are in UTC. Credentials in URLs are masked in the
message, in `extra` and in tracebacks; so is every field that is named like a payload or a
secret. Lines that one place writes too often are left out and counted: see `LogLimits`.

Relay logs with the standard library, as its libraries do; structlog formats the lines of all of them.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from relay.core.endpoints.secrets import MASK, mask
from relay.telemetry.logs.lean_structlog import (
    EventDict,
    EventRenamer,
    ExceptionRenderer,
    ExtraAdder,
    JSONRenderer,
    Processor,
    ProcessorFormatter,
    StackInfoRenderer,
)
from relay.telemetry.logs.log_limits import LogLimits

HIDDEN = frozenset({"payload", "headers", "body", "password", "secret", "authorization", "credentials"})
"""The names of fields that show `***` if anybody logs one."""

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {10: "\\n", 9: "\\t"}


def set_up_logs(level: str = "info", format: str = "auto", stream: TextIO | None = None) -> None:  # noqa: A002
    """Write Relay's records of `level` and above, and other libraries' warnings, to `stream` (stderr).

    `format` is json, text, or auto, which is text if the stream is a terminal. A second call replaces what
    the first one set up.
    """
    stream = stream or sys.stderr
    if format == "auto":
        format = "text" if stream.isatty() else "json"  # noqa: A001
    handler = _Handler(stream)
    handler.addFilter(LogLimits())
    handler.setFormatter(formatter(JSONRenderer(_json) if format == "json" else _line))
    root, threshold = logging.getLogger(), logging.getLevelNamesMapping()[level.upper()]
    for old in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(threshold, logging.WARNING))
    logging.getLogger("relay").setLevel(threshold)


class _Handler(logging.StreamHandler[TextIO]):
    """Relay's own handler, as a class of its own, so that it can be found again."""


def formatter(renderer: Processor) -> logging.Formatter:
    """Makes `{"time": …, "level": …, "logger": …, "message": …, …extra, "exception": …}`, and a line of
    it."""
    return _Printable(
        processors=[
            EventRenamer("message"),
            StackInfoRenderer(),
            ExceptionRenderer(),
            ExtraAdder(),
            _in_order,
            _masked,
            renderer,
        ]
    )


class _Printable(ProcessorFormatter):
    def format(self, record: logging.LogRecord) -> str:
        """Escape surrogates, which stand for names that are not UTF-8, and which no stream takes."""
        return super().format(record).encode("utf-8", "backslashreplace").decode()


def _in_order(_: Any, __: str, event: EventDict) -> EventDict:
    """Put first the fields that every event has, which `extra` can't replace, and the traceback last."""
    record: logging.LogRecord = event.pop("_record")
    del event["_from_structlog"]
    traces = [text for text in (event.pop("exception", ""), event.pop("stack", "")) if text]
    moment = datetime.fromtimestamp(record.created, UTC)
    head = {
        "time": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": event.pop("message"),
    }
    event.pop("color_message", None)  # a field of uvicorn's
    rest = {name: value for name, value in event.items() if name not in head}
    return {**head, **rest, **({"exception": "\n".join(traces)} if traces else {})}


def _masked(_: Any, __: str, event: EventDict) -> EventDict:
    return {name: MASK if name.lower() in HIDDEN else _plain(value) for name, value in event.items()}


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold, with secrets masked."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no NaN and no infinity
    if isinstance(value, Mapping):
        names = {mask(str(name)): inner for name, inner in value.items()}
        return {name: MASK if name.lower() in HIDDEN else _plain(inner) for name, inner in names.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    return mask(str(value))


def _json(event: EventDict, **_: Any) -> str:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def _line(_: Any, __: str, event: EventDict) -> str:
    """Makes a line such as `2030-01-02T03:04:05.678901Z info    relay.app: message key=value`, with the
    traceback below it."""
    message = event.pop("message").translate(_CONTROL)
    head = f"{event.pop('time')} {event.pop('level'):7} {event.pop('logger')}: {message}"
    exception = event.pop("exception", "")
    fields = "".join(f" {name}={_text(value)}" for name, value in event.items())
    return f"{head}{fields}\n{exception}" if exception else f"{head}{fields}"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    plain = value and all(char.isprintable() and char not in " \"'=" for char in value)
    return value if plain else json.dumps(value, ensure_ascii=False).translate(_CONTROL)
