"""What the client logs about its connection: a line when the relay is reached, when it is lost, and when it
is back. This module also decides where these lines go while nobody has configured logging."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator

from relay.client.errors import CallError

_log = logging.getLogger("relay.client")
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class ConnectionLog:
    """The connection to one relay as the log shows it: by its changes, however many tries lie between them.

    A connection has parts, the streams of its topics. It is there once all of them are open, and lost with
    the first of them.
    """

    def __init__(self, target: str, topics: Iterable[str] = ()) -> None:
        self._target = target
        self._topics = sorted(topics)
        self._missing = set(self._topics)
        self._reached = False
        self._lost_at: float | None = None
        self._lock = threading.Lock()  # blocking clients call from many threads

    def opened(self, topic: str = "") -> None:
        """A stream is open, or a call was answered."""
        if self._reached and self._lost_at is None and not self._missing:
            return
        with self._lock:
            self._missing.discard(topic)
            if self._missing or (self._reached and self._lost_at is None):
                return
            again = "" if self._lost_at is None else f" again after {time.monotonic() - self._lost_at:.1f} s"
            self._reached, self._lost_at = True, None
        topics = f": topics {', '.join(self._topics)}" if self._topics else ""
        _log.info("connected to the relay at %s%s%s", self._target, again, topics)

    def lost(self, failure: CallError | None, then: str, topic: str = "") -> None:
        """A stream has ended, or a call found no relay; `then` says when the next try is."""
        with self._lock:
            if topic:
                self._missing.add(topic)
            if self._lost_at is not None:
                return
            self._lost_at, reached = time.monotonic(), self._reached
        what = "lost the relay" if reached else "can't reach the relay"
        reason = "it ended the stream, as it does when it stops" if failure is None else str(failure)
        level = logging.INFO if failure is None else logging.WARNING
        _log.log(level, "%s at %s: %s; %s", what, self._target, reason, then)


class _Default(logging.Filter):
    """Writes the client's lines to standard error for as long as nobody else handles them.

    It is a filter of the logger itself, so it sees each record before any handler does. Once the application
    has configured logging, it undoes all that it has set, and lets through what the application wants.
    """

    def __init__(self) -> None:
        super().__init__()
        self._handler: logging.Handler | None = None
        self._set_level = False
        self._users = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._handler is not None or _log.hasHandlers():
                return
            self._handler = logging.StreamHandler()
            self._handler.setFormatter(logging.Formatter(FORMAT))
            self._handler.addFilter(_worth_showing)
            _log.addHandler(self._handler)
            _log.addFilter(self)
            if _log.level == logging.NOTSET:
                _log.setLevel(logging.INFO)
                self._set_level = True

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._take_back()

    def _take_back(self) -> None:
        if self._handler is None:
            return
        _log.removeHandler(self._handler)
        _log.removeFilter(self)
        if self._set_level:
            _log.setLevel(logging.NOTSET)
            self._set_level = False
        self._handler = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record may pass."""
        with self._lock:
            if self._is_alone():
                return True
            self._take_back()
        return record.levelno >= _log.getEffectiveLevel()

    def _is_alone(self) -> bool:
        """Whether no other handler would get the logger's records."""
        logger: logging.Logger | None = _log
        while logger is not None:
            if any(handler is not self._handler for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True


def _worth_showing(record: logging.LogRecord) -> bool:
    """Passes only lines about the connection and about what is wrong, since nobody asked for these lines."""
    return record.levelno >= logging.WARNING or record.module in ("connection_log", "push_handlers")


_DEFAULT = _Default()


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Show the client's lines within the block although nobody has configured logging. `run` does this, since
    it is an application's main loop. Once the application has configured logging, before or later, that
    counts."""
    with _DEFAULT:
        yield
