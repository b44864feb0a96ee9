"""The log of an application that has configured none: lines of JSON, or readable text."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from relay.client import current_delivery

TEXT = "%(asctime)s %(levelname)s worker=%(worker)s %(name)s: %(message)s"
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "worker", "taskName"}
"""What every record has; the rest came as `extra`."""


def set_up(form: str, worker: int | str) -> None:
    """Log to standard error from level info on, unless the application has configured logging. `form` is
    `json`, `text`, or `auto`: text on a terminal and else JSON."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    handler.setFormatter(JsonLines() if as_json else logging.Formatter(TEXT))
    handler.addFilter(_Numbered(worker))
    root.addHandler(handler)
    root.setLevel(logging.INFO)


class _Numbered(logging.Filter):
    """Adds which process of the application this is."""

    def __init__(self, worker: int | str) -> None:
        super().__init__()
        self._worker = worker

    def filter(self, record: logging.LogRecord) -> bool:
        """Pass the record."""
        record.worker = self._worker
        return True


class JsonLines(logging.Formatter):
    """A record as a line of JSON. What is logged while a delivery is handled has its topic, timer_id and
    attempt."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "worker": getattr(record, "worker", 0),
        }
        if (delivery := current_delivery()) is not None:
            line |= {
                "topic": delivery.topic,
                "timer_id": delivery.timer_id,
                "attempt": delivery.attempt,
            }
        line |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=repr)
