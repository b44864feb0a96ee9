"""Django: handlers by the command and in the ASGI server; the outbox in a transaction of its ORM."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from sqlalchemy import create_engine

from relay.client import RelayClient, SyncRelayClient
from relay.outbox import create
from relay.outbox.mover import OutboxMover
from tests.postgres import postgres
from tests.worlds.relay.processes import Process, Relay, environment, free_address
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

SETTINGS = """
import os

SECRET_KEY = "of a test"
INSTALLED_APPS = ["relay.frameworks.django", "shop"]
RELAY_CLIENT = os.environ.get("CLIENT", "shop.timers.client")
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "postgres", "USER": "postgres", "HOST": os.environ["PGHOST"],
    }
}
ROOT_URLCONF = "shop.urls"
"""
MODELS = """
from django.db import models

class Order(models.Model):
    reminded = models.IntegerField(default=0)
"""
TIMERS = """
import threading

from asgiref.sync import sync_to_async
from django.db import connection, transaction
from relay import inbox
from relay.client import Delivery, RelayClient

from shop.models import Order

client = RelayClient()
push = object()

@client.on("django-reminders", concurrency=1)
def remind(delivery: Delivery) -> None:
    broken = connection.connection is not None and connection.connection.closed
    with transaction.atomic(), connection.cursor() as cursor:
        if inbox.is_first(cursor, delivery):
            order = Order.objects.get(pk=int(delivery.timer_id))
            order.reminded += 1
            order.save()
    print("reminded", delivery.timer_id, "again" if broken else "", flush=True)
    with connection.cursor() as cursor:  # as a database that restarts: this one is broken from now on
        cursor.execute("SELECT 1")
    connection.connection.close()

@client.on("django-async")
async def on_loop(delivery: Delivery) -> None:
    print("counted", await Order.objects.acount() > 0, flush=True)
"""
URLS = "urlpatterns = []\n"
ASGI = """
import os
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
from django.core.asgi import get_asgi_application
from relay.frameworks.django.asgi import with_handlers
application = with_handlers(get_asgi_application())
"""
OUTBOX = """
import django
django.setup()
from django.db import connection, transaction
from relay import outbox
from relay.client import NewTimer
from shop.models import Order

with connection.schema_editor() as editor:
    editor.create_model(Order)

def place(fails):
    with transaction.atomic(), connection.cursor() as cursor:
        order = Order.objects.create()
        odd = {"payload": b"\\x00%s", "headers": {"k": "50 %"}}
        timer = NewTimer(topic="django-reminders", timer_id=str(order.pk), delay=3600, **odd)
        outbox.schedule(cursor, timer)
        names = [f"{order.pk}-{n}" for n in (1, 2)]
        others = [NewTimer(topic="django-others", timer_id=name, payload=b"", delay=60) for name in names]
        outbox.schedule_batch(cursor, others)
        outbox.cancel(cursor, "django-others", f"{order.pk}-2")
        if fails:
            raise ValueError

place(False)
try:
    place(True)
except ValueError:
    pass
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str], str]]:
    """A project, its variables, and the URL of its database, which has the outbox."""
    folder = tmp_path_factory.mktemp("django")
    (folder / "shop").mkdir()
    files = {
        "settings.py": SETTINGS,
        "asgi.py": ASGI,
        "write.py": OUTBOX,
        "shop/__init__.py": "",
        "shop/models.py": MODELS,
        "shop/timers.py": TIMERS,
        "shop/urls.py": URLS,
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    with postgres() as server:
        engine = create_engine(server.url().replace("postgresql:", "postgresql+psycopg:"))
        with engine.begin() as connection:
            create(connection)
        engine.dispose()
        variables = {
            "DJANGO_SETTINGS_MODULE": "settings",
            "PGHOST": str(server.folder),
            "PYTHONPATH": str(folder),
        }
        yield folder, variables, server.url()


def ran(project: Any, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    folder, known, _ = project
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment({**known, **variables}),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def handled(process: Process, times: int) -> bool:
    return process.output().count("reminded 1") == times


async def test_an_order_is_reminded_of_by_outbox_and_command(
    project: Any, daemon: Relay, stage: Stage
) -> None:
    """A row is of the transaction of Django's ORM. Its handler works with the ORM, and finds a connection
    that works where the last delivery's has broken."""
    _, variables, url = project
    done = ran(project, "write.py")
    assert done.returncode == 0, done.stderr
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute("SELECT action, timer_id, payload, headers FROM relay_outbox ORDER BY id")
        written = [(action, name, bytes(body), headers) for action, name, body, headers in rows.fetchall()]
    assert written[0] == ("schedule", "1", b"\x00%s", {"k": "50 %"})
    assert [each[:2] for each in written[1:]] == [("schedule", "1-1"), ("schedule", "1-2"), ("cancel", "1-2")]
    async with RelayClient(daemon.target) as client:
        mover = OutboxMover(url, client)
        while (await mover.step()).taken:
            pass
        await mover.database.close()
        assert [timer.timer_id async for timer in client.list("django-others")] == ["1-1"]
        process = stage.join(
            Process((), stage.directory / "log", {**variables, "RELAY_TARGET": daemon.target})
        )
        process.arguments = [sys.executable, "-m", "django", "handle_timers"]
        process.spawn()
        for turn in (1, 2):
            await client.run_timer("django-reminders", "1")
            eventually(partial(handled, process, turn), "it was handled")
            await client.schedule("django-reminders", b"", timer_id="1", delay=3600)
        await client.schedule("django-async", b"", delay=0)
        eventually(lambda: "counted True" in process.output(), "the async one was handled")
    assert process.terminate() == 0
    assert "again" not in process.output()
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute("SELECT id, reminded FROM shop_order").fetchall() == [(1, 2)]


def test_handlers_in_the_server(project: Any, daemon: Relay, stage: Stage) -> None:
    """Under uvicorn, which opens and closes the client; requests go on to Django."""
    folder, variables, url = project
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS shop_order (id bigserial, reminded int DEFAULT 0)")
        connection.execute("INSERT INTO shop_order (id, reminded) VALUES (70, 0)")
    at = free_address()
    process = stage.join(Process((), stage.directory / "log", {**variables, "RELAY_TARGET": daemon.target}))
    process.arguments = [sys.executable, "-m", "uvicorn", "--app-dir", str(folder), "asgi:application"]
    process.arguments += ["--lifespan", "on", "--port", at.rpartition(":")[2]]
    process.spawn()
    with SyncRelayClient(daemon.target) as timers:
        timers.schedule("django-reminders", b"", delay=0, timer_id="70")
    eventually(lambda: "reminded 70" in process.output(), "it was handled")
    assert httpx2.get(f"http://{at}/").status_code == 404
    process.terminate()
    assert "Application shutdown complete" in process.output()


@pytest.mark.parametrize(
    ("client", "words"),
    [
        ("shop.timers.nothing", "RELAY_CLIENT: Module"),
        ("shop.timers.push", "is a object; it must be a RelayClient or PushHandlers"),
        ("shop.timers.client --listen x", "--listen is for PushHandlers"),
    ],
)
def test_what_is_wrong_is_named(project: Any, client: str, words: str) -> None:
    path, *options = client.split()
    done = ran(project, "-m", "django", "handle_timers", *options, CLIENT=path)
    assert done.returncode != 0
    assert words in done.stderr
