"""Files that are taken over when they change, without a restart.

Kubernetes replaces a mounted Secret by swapping one symbolic link, other tools write file by file. So a file
is looked at by what its path leads to, and files that do not fit together are left for the next look.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio

from relay.core.errors import ServiceError

INTERVAL = 1.0
"""Seconds between two looks at all files."""

MOST_BYTES = 4 << 20
"""The most bytes of one file. A larger one is not read to its end."""

Stamp = tuple[tuple[int, int, int, int] | None, ...]

log = logging.getLogger(__name__)


class BadFile(ServiceError):
    """A file can't be used."""

    def __init__(self, setting: str, path: Path | str, problem: str) -> None:
        super().__init__(f"{setting}: {path} {problem}")


@dataclass(frozen=True, slots=True)
class WatchedFiles:
    """Files that belong together. `load` reads them and puts them to use, or raises `BadFile`, after which
    all is as before. `named` are further ones that those name which were read last, whether that went well
    or not."""

    setting: str
    paths: tuple[Path, ...]
    load: Callable[[], None]
    named: Callable[[], tuple[Path, ...]] = tuple


Report = Callable[[str, bool], None]
"""Called with the setting of files that have changed, and whether they were taken over."""


class Watch:
    """Looks at files once a second, and loads those that have changed."""

    def __init__(self, report: Report) -> None:
        self.report = report
        """Whom to tell that files have changed."""
        self._seen: list[tuple[WatchedFiles, Stamp]] = []

    def add(self, source: WatchedFiles) -> None:
        """Load the files now, and again whenever they change. Raises `BadFile`."""
        stamp, failure = _load(source)
        if failure is not None:
            raise failure
        self._seen.append((source, stamp))

    async def run(self) -> None:
        """Look until cancelled."""
        while self._seen:
            await anyio.sleep(INTERVAL)
            self.look()

    def look(self) -> None:
        """Load what has changed since the last look. A bad file is left until it changes again."""
        for number, (source, before) in enumerate(self._seen):
            stamp = _stamp(source)
            if stamp == before:
                continue
            stamp, failure = _load(source)
            self._seen[number] = source, stamp
            what = "changed files can't be used; those before stay in use"
            if failure is None:
                log.info("changed files are in use", extra={"setting": source.setting})
            elif isinstance(failure, BadFile):
                log.error(what, extra={"setting": source.setting, "reason": str(failure)})
            else:
                log.error(what, exc_info=failure)
            self.report(source.setting, failure is None)


def _load(source: WatchedFiles) -> tuple[Stamp, Exception | None]:
    """Load files; return what they were, and why they can't be used. If they name other ones than before,
    load them again: what was not looked at before it was read may have changed since."""
    while True:
        named, failure = source.named(), None
        stamp = _stamp(source)  # before the load, so that a change beside it is seen at the next look
        try:
            source.load()
        except Exception as problem:  # noqa: BLE001  (whatever it is, others are to be looked at)
            failure = problem
        if source.named() == named:
            return stamp, failure


def _stamp(source: WatchedFiles) -> Stamp:
    return tuple(_state(path) for path in (*source.paths, *source.named()))


def _state(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError for a path with a zero byte
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def read(setting: str, path: Path) -> bytes:
    """Read a whole file, which must be a regular one: the event loop would wait for whoever writes to a
    pipe. Raises `BadFile`."""
    try:
        # Without O_NONBLOCK already the opening of a pipe waits.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BadFile(setting, path, "is not a regular file; name one")
            with open(descriptor, "rb", closefd=False) as opened:
                content = opened.read(MOST_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise BadFile(setting, path, f"can't be read: {error.strerror or error}") from None
    if len(content) > MOST_BYTES:
        raise BadFile(setting, path, f"has more than {MOST_BYTES} bytes, too many for such a file")
    return content
