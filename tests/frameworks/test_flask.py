"""Flask: the client of views, what they answer while the relay is away, and the command for handlers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from flask import Flask

from relay.client import DeadlineExceeded, ResourceExhausted, SyncRelayClient, Unavailable, UsageError
from relay.client.testing import SyncInMemoryRelay
from relay.frameworks.flask import mount, relay_client
from tests.servers import free_port
from tests.worlds.relay.processes import Process, Relay
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

PROGRAM = """
import asyncio, threading

from flask import Flask, current_app, g

from relay.client import Delivery, RelayClient, SyncRelayClient
from relay.frameworks.flask import mount

client = RelayClient()

@client.on("flask-plain")
def plain(delivery: Delivery) -> None:
    g.seen = f"plain {delivery.timer_id} {current_app.name}"

@client.on("flask-async")
async def on_loop(payload: str) -> None:
    g.seen = f"async {payload} {current_app.name}"

app = Flask("shop")
mount(app, SyncRelayClient(), client)

@app.teardown_appcontext
def torn_down(error: BaseException | None) -> None:
    if "seen" in g:
        print(f"torn down {g.seen} {threading.current_thread() is threading.main_thread()}", flush=True)
"""


ERRORS = {
    "away": Unavailable("nobody listens"),
    "silent": DeadlineExceeded("no answer"),  # a machine that is gone refuses nothing
    "full": ResourceExhausted("the topic is full", retry_after=2.6),
}


def served(timers: SyncRelayClient) -> Flask:
    app = Flask("views")
    mount(app, timers)

    @app.post("/remind/<int:number>")
    def remind(number: int) -> str:
        timer = relay_client().schedule("flask", b"", delay=60, timer_id=f"order-{number}", timeout=0.05)
        return timer.timer_id

    @app.post("/raise/<kind>")
    def fail(kind: str) -> str:
        raise ERRORS[kind]

    return app


def test_a_view_schedules() -> None:
    timers = SyncRelayClient()
    with SyncInMemoryRelay(timers):
        assert served(timers).test_client().post("/remind/7").text == "order-7"
        assert timers.get("flask", "order-7") is not None


def test_a_relay_that_is_away_is_503_and_a_pause_that_it_asks_for_a_header() -> None:
    with SyncRelayClient(f"127.0.0.1:{free_port()}") as timers:
        http = served(timers).test_client()
        answer = http.post("/remind/7")
        assert (answer.status_code, "Retry-After" in answer.headers) == (503, False)
        assert [http.post(f"/raise/{kind}").status_code for kind in ERRORS] == [503, 503, 503]
        answer = http.post("/raise/full")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "3")


def test_an_application_may_answer_otherwise() -> None:
    with SyncRelayClient(f"127.0.0.1:{free_port()}") as timers:
        app = served(timers)
        app.register_error_handler(Unavailable, lambda _: ("later", 418))
        assert app.test_client().post("/raise/away").status_code == 418


def test_without_a_client_the_error_says_what_to_do() -> None:
    with Flask("bare").app_context(), pytest.raises(UsageError, match="mount"):
        relay_client()


@pytest.mark.slow
def test_the_command_runs_handlers_each_in_a_context_of_its_own(
    daemon: Relay, stage: Stage, tmp_path: Path
) -> None:
    """A plain one in its thread, teardown included. SIGTERM ends it in order."""
    (tmp_path / "shop.py").write_text(PROGRAM, encoding="utf-8")
    settings = {"RELAY_TARGET": daemon.target}
    process = stage.join(Process((), tmp_path / "log", settings))
    process.arguments = [sys.executable, "-m", "flask", "--app", str(tmp_path / "shop.py"), "handle-timers"]
    process.spawn()
    with SyncRelayClient(daemon.target) as timers:
        timers.schedule("flask-plain", b"", delay=0, timer_id="one")
        timers.schedule("flask-async", b"two", delay=0)
    expected = {"torn down plain one shop False", "torn down async two shop True"}
    eventually(lambda: expected <= set(process.output().splitlines()), "both were handled")
    assert process.terminate() == 0
