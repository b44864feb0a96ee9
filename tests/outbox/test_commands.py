"""`relay outbox …`: what people see, and a mover as a process."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from typer.testing import CliRunner

from relay.cli.commands import app
from relay.outbox.postgres.database import BOUNDS, conninfo
from tests.outbox.desk import BOTH, Desk
from tests.worlds.waiting import eventually

if TYPE_CHECKING:
    from tests.postgres import Postgres


def said(*arguments: str, code: int = 0) -> str:
    """What a command prints, on either stream."""
    ended = CliRunner().invoke(app, ["outbox", *arguments])
    assert ended.exit_code == code, ended.output
    return ended.output


@pytest.mark.slow
def test_a_new_database(server: Postgres) -> None:
    """What it lacks is said; `migrate` may be repeated, and takes what SQLAlchemy calls the database."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE fresh")
    url = server.url("fresh")
    assert "relay outbox migrate" in said("status", "--database", url, code=1)
    for each in (url, url.replace("postgresql:", "postgresql+asyncpg:")):
        assert said("migrate", "--database", each) == "The outbox and the inbox are there.\n"
    assert said("status", "--database", url).splitlines()[0].split() == ["waiting", "0"]


def test_a_new_file(tmp_path: Path) -> None:
    """Only `migrate` makes one; what a file lacks is said."""
    for name in ("shop.db", "50% #1?.db"):
        url = f"sqlite:///{tmp_path / name}".replace("?", "")
        said("status", "--database", url, code=4)
        assert list(tmp_path.glob("*")) == []
        for each in (url, url.replace("sqlite:", "sqlite+pysqlite:")):
            assert said("migrate", "--database", each) == "The outbox and the inbox are there.\n"
        assert said("status", "--database", url).splitlines()[0].split() == ["waiting", "0"]
        (file,) = tmp_path.glob("*")
        assert file.name == name.replace("?", "")
        file.write_bytes(b"")
        assert "relay outbox migrate" in said("status", "--database", url, code=1)
        file.unlink()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("migrate", "--database", "mysql://u:secret@h/d"), 2, "is of mysql; the outbox needs PostgreSQL"),
        (("status", "--database", "sqlite://"), 2, "is not the path of a file alone"),
        (("status", "--database", "sqlite:///:memory:"), 2, "is not the path of a file alone"),
        (("status", "--database", "sqlite:///a.db?timeout=3"), 2, "is not the path of a file alone"),
        (("status", "--database", "sqlite:////nowhere/a.db"), 4, "is not available: unable to"),
        (("status", "--database", f"sqlite:///{__file__}"), 1, "the database refuses: file is not a"),
        (("status", "--database", "u:secret@h"), 2, "--database: is of something else"),
        (("status", "--database", "postgresql://u:secret@127.0.0.1:1/d"), 4, "the database is not available"),
        *(
            ((command, "--database", f"postgresql://u:{password}@h/d"), 2, "libpq cannot read this URL")
            for command in ("status", "migrate", "run")
            for password in ("se%secret", "a secret", "a@secret", "secret/a")
        ),
        (("retry", "--database", "postgresql://h/d"), 2, "name rows, or give --all"),
        (("drop", "--database", "postgresql://h/d", "1", "--all"), 2, "name rows, or give --all"),
        *(((command, "--database", "sqlite:///a.db", "--", row), 2, "Invalid value for 'ROW'")
          for command in ("retry", "drop") for row in (str(2**63), "0", "-1")),
        (("run", "--database", "postgresql://h/d", "--poll", "0"), 2, "--poll: is 0"),
        (("run", "--database", "postgresql://h/d", "--target", "nowhere"), 2, "--target:"),
        (("run", "--database", "postgresql://h/d", "--metrics", "nowhere"), 2, "--metrics:"),
        (("prune", "--database", "postgresql://h/d", "--older-than", "old"), 2, "--older-than:"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(arguments: tuple[str, ...], code: int, words: str) -> None:
    """And no password is shown."""
    printed = said(*arguments, code=code)
    assert words in printed
    assert "secret" not in printed


def test_an_sqlite_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever is asked for, and before its statements fail one by one."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    said("migrate", "--database", url)
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 34, 1))
    for command in ("migrate", "status", "run"):
        assert "the outbox needs SQLite 3.35 or newer" in said(command, "--database", url, code=2)


def test_a_server_that_vanishes_is_known_to_be_lost() -> None:
    """A failover closes no connection. What the URL says of that holds."""
    read = psycopg.conninfo.conninfo_to_dict(conninfo("h/d?tcp_user_timeout=7000"))
    assert read == {**BOUNDS, "host": "h", "dbname": "d", "tcp_user_timeout": "7000"}
    assert int(str(read["keepalives_idle"])) > 0
    assert int(str(read["connect_timeout"])) > 0


@pytest.mark.slow
@BOTH
def test_a_mover_as_a_process(desk: Desk) -> None:
    """It is woken by a commit, shows what waits and what was refused, hears of what people do about refused
    rows, and ends in order when it is told to."""
    arguments = (
        "relay.cli",
        "outbox",
        "run",
        "--target",
        desk.relay.target,
        "--metrics",
        "127.0.0.1:0",
        "--poll",
        "1h",
    )
    mover = desk.stage.process(
        f"mover-{desk.topic}", *arguments, settings={"RELAY_OUTBOX_DATABASE": desk.database}
    )

    def listens() -> re.Match[str] | None:
        mover._check_runs()
        return re.search(r"metrics are at (http://127\.0\.0\.1:[0-9]+/metrics)", mover.output())

    found = eventually(listens, "it says where it serves its metrics")
    assert found is not None
    metrics = found[1]

    def shown() -> str:
        mover._check_runs()
        with urllib.request.urlopen(metrics, timeout=60) as answer:
            return str(answer.read().decode())

    eventually(lambda: "relay_outbox_lag_seconds 0.0" in shown(), "it has looked")
    for n in range(3):  # the poll comes in an hour: only the commit wakes it
        desk.write(desk.new(f"t{n}"))
        eventually(lambda: desk.rows() == [], "the row is moved")
    assert desk.timers().keys() == {"t0", "t1", "t2"}
    desk.write(desk.new("bad", b"x" * ((1 << 20) + 1)), desk.new("bad", b"later"))
    eventually(lambda: 'relay_outbox_moved_rows_total{result="refused"} 1.0' in shown(), "it is refused")
    eventually(lambda: 'relay_outbox_rows{state="refused"} 1.0' in shown(), "and counted")
    document = json.loads(said("status", "--database", desk.database, "--json"))
    (row,) = document.pop("refused_rows")
    assert document == {"waiting": 0, "blocked": 1, "refused": 1, "lag_seconds": 0.0}
    assert (row["timer_id"], row["action"]) == ("bad", "schedule")
    assert f"row {row['id']}" in said("status", "--database", desk.database)
    assert said("retry", "--database", desk.database, str(row["id"])) == "1 row retried.\n"
    eventually(lambda: 'relay_outbox_moved_rows_total{result="refused"} 2.0' in shown(), "refused again")
    assert "--yes" in said("drop", "--database", desk.database, "--all", code=2)
    assert said("drop", "--database", desk.database, "--all", "--yes") == "1 row dropped.\n"
    eventually(lambda: desk.rows() == [], "the later row goes on")
    desk.handled("old", days=40)
    assert said("prune", "--database", desk.database, "--older-than", "30d") == "1 row pruned.\n"
    assert mover.terminate() == 0
    assert "Traceback" not in mover.output()
    assert "secret" not in mover.output()


@pytest.mark.slow
def test_a_mover_that_is_told_to_end_within_a_step(desk: Desk) -> None:
    """A relay has taken its row, and the deletion waits for a lock, as SIGTERM comes. It ends the step, gives
    its lanes back, and begins no other."""
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    desk.write(desk.new("a"))
    with psycopg.connect(desk.database) as gate:
        gate.execute("SELECT FROM relay_outbox FOR UPDATE")
        arguments = ("relay.cli", "outbox", "run", "--target", desk.relay.target, "--movers", "1")
        mover = desk.stage.process(
            f"mover-{desk.topic}", *arguments, settings={"RELAY_OUTBOX_DATABASE": desk.database}
        )
        eventually(lambda: desk.connection.execute(waits).fetchone(), "it stands at the lock")
        assert desk.timers().keys() == {"a"}
        mover.signal(signal.SIGTERM)
        eventually(lambda: "told to end" in mover.output(), "it has heard")
        desk.write(desk.new("a", b"later"))  # in the same lane
    assert mover.wait() == 0, mover.output()
    (left,) = desk.rows()
    assert left["payload"] == b"later"
    held = "SELECT count(*) FROM relay_outbox_lanes WHERE holder IS NOT NULL"
    assert desk.connection.execute(held).fetchone() == (0,)
