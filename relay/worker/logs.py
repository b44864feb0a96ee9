"""The log of an application that has configured none: lines of JSON, or readable text."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from relay.client import current_delivery

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest came as `extra`."""


def set_up(form: str, worker: int | None) -> None:
    """Log to standard error from level info on, unless the application has configured logging. `form` is
    `json`, `text`, or `auto`: text on a terminal and else JSON. `worker` is the number of this process; None
    in the one that keeps the others."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    text = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    if worker is not None:
        text = f"worker {worker} {text}"
    handler.setFormatter(JsonLines(worker) if as_json else logging.Formatter(text))
    root.addHandler(handler)
    root.setLevel(logging.INFO)


class JsonLines(logging.Formatter):
    """A record as a line of JSON. What is logged while a delivery is handled has its topic, timer_id and
    attempt."""

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._worker is not None:
            line["worker"] = self._worker
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
