"""A Postgres server of the test's own, on a Unix socket in a directory that goes with it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.missing import skip

DEADLINE = 120.0
"""Seconds for any of its commands: a slow machine is no reason to fail."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """Runs SQL by psql."""

    tools: Path
    folder: Path
    user: str | None

    def run(self, tool: str, *arguments: str, given: bytes = b"") -> bytes:
        """What one of its programs prints."""
        done = subprocess.run(
            [str(self.tools / tool), *arguments],
            input=given,
            stdout=subprocess.PIPE,
            user=self.user,
            cwd=self.folder,
            check=True,
            timeout=DEADLINE,
        )
        return done.stdout

    def url(self, database: str = "postgres") -> str:
        """What libpq takes."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def start(self, *options: str) -> None:
        """Start it, also after `kill`; `options` are of `postgres`, as `-c name=value`."""
        log = str(self.folder / "log")
        given = ("-k", str(self.folder), "-c", "listen_addresses=''", *options)
        wait = ("-w", "-t", str(int(DEADLINE)), "-l", log)
        self.run("pg_ctl", "-D", str(self.folder / "data"), *wait, "-o", " ".join(given), "start")

    def kill(self) -> None:
        """End it as a crash does: SIGQUIT, and what was not written is recovered from the log."""
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", "immediate", "stop")

    def sql(self, statement: str, given: bytes = b"") -> bytes:
        """What a statement prints; `given` is what COPY FROM STDIN reads."""
        where = ("-h", str(self.folder), "-U", "postgres", "-d", "postgres")
        return self.run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", *where, "-c", statement, given=given)


def text_format(values: list[str]) -> bytes:
    """A column as COPY reads it in its text format."""
    escapes = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
    return "".join(f"{n}\t{each.translate(escapes)}\n" for n, each in enumerate(values)).encode()


@contextmanager
def postgres(*options: str) -> Iterator[Postgres]:
    """Started and stopped; skips where none is installed. As root it runs as another user, since it refuses
    to run as root. `options` are of `postgres`; without them it does not sync its disk."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        skip("Postgres", "apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket's path is short
    user = None
    if os.geteuid() == 0:
        user = "nobody"
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    server = Postgres(found[-1].parent, folder, user)
    data = str(folder / "data")
    try:
        server.run("initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N")
        server.start(*(options or ("-c", "fsync=off")))
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder)
