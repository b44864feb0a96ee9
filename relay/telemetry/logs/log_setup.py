"""The log: one line an event, as JSON or as text, on standard error.

    log = logging.getLogger(__name__)
    log.info("released what was left", extra={"topic": topic, "timers": 3})

What `extra` holds becomes keys of its own. Times are UTC. Credentials in URLs are masked wherever
they stand: in the message, in `extra`, in tracebacks; and so is all that is named like a payload or a
secret. What one place says too often is left out, and counted: see `LogLimits`.

Relay logs by the standard library, as its own libraries do; structlog makes the lines of all of them.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from relay.core.secrets import MASK, mask
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
"""Names of fields that show `***`, should anybody log one."""

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
    handler.addFilter(LogLimits())
    handler.setFormatter(formatter(JSONRenderer(_json) if format == "json" else _line))
    root, threshold = logging.getLogger(), logging.getLevelNamesMapping()[level.upper()]
    for old in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(threshold, logging.WARNING))
    logging.getLogger("relay").setLevel(threshold)


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, to be found again."""


def formatter(renderer: Processor) -> logging.Formatter:
    """Makes `{"time": …, "level": …, "logger": …, "message": …, …extra, "exception": …}`, then a line."""
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
        """Names that are not UTF-8 come as surrogates, which no stream takes."""
        return super().format(record).encode("utf-8", "backslashreplace").decode()


def _in_order(_: Any, __: str, event: EventDict) -> EventDict:
    """What every event has comes first, and `extra` can't take its place; the traceback comes last."""
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
    event.pop("color_message", None)  # uvicorn's
    rest = {name: value for name, value in event.items() if name not in head}
    return {**head, **rest, **({"exception": "\n".join(traces)} if traces else {})}


def _masked(_: Any, __: str, event: EventDict) -> EventDict:
    return {name: MASK if name.lower() in HIDDEN else _plain(value) for name, value in event.items()}


def _plain(value: Any) -> Any:
    """What JSON can hold, with secrets masked."""
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
    """`2030-01-02T03:04:05.678901Z info    relay.app: message key=value`, traceback below."""
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
