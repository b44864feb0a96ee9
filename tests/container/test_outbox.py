"""The Dockerfile's target `outbox`: a mover runs in it as the chart runs it."""

from __future__ import annotations

import json

import psycopg
import pytest

from relay import outbox
from relay.client import NewTimer
from tests.container.podman import BASE, RESTRICTED, ROOT, Podman, started
from tests.postgres import postgres
from tests.servers import free_port
from tests.worlds.relay.processes import command
from tests.worlds.relay.stage import Stage, staged
from tests.worlds.waiting import eventually

pytestmark = [pytest.mark.checkout, pytest.mark.timeout(1800)]

OUTBOX = "localhost/relay-outbox:0.1.0"


@pytest.fixture(scope="module")
def image(podman: Podman) -> str:
    podman.build(ROOT, OUTBOX, "--target=outbox", f"--build-arg=BASE={BASE}")
    return OUTBOX


def inside(podman: Podman, image: str, database: str, *arguments: str) -> str:
    """What `relay outbox …` prints in a container of the image."""
    variable = f"--env=RELAY_OUTBOX_DATABASE={database}"
    return podman.run("run", "--rm", *RESTRICTED, variable, image, "outbox", *arguments)


def test_rows_reach_a_relay(podman: Podman, image: str) -> None:
    """By the image's own libpq, as nobody's user, with nothing to write to; SIGTERM ends it in order."""
    port = free_port()
    where = ("-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-c", f"port={port}")
    with postgres(*where), staged(Stage) as stage:
        relay = stage.relay()
        database = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        assert "are there" in inside(podman, image, database, "migrate")
        with psycopg.connect(database) as connection:
            outbox.schedule(connection, NewTimer(topic="t", payload=b"", delay=600, timer_id="a"))
        args = ("outbox", "run", "--target", relay.target)
        env = {"RELAY_OUTBOX_DATABASE": database}
        with started(podman, "mover", user="65532:65532", env=env, args=args, image=image) as mover:
            eventually(lambda: command("get", "t", "a", "--target", relay.target).code == 0, "it is moved")
            mover.term()
            assert mover.wait() == 0, mover.logs()
        shown = json.loads(inside(podman, image, database, "status", "--json"))
        assert (shown["waiting"], shown["refused"]) == (0, 0)


def test_its_licences_are_said(podman: Podman, image: str) -> None:
    """psycopg's is another one than Relay's."""
    labels = podman.inspect(image)["Config"]["Labels"]
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0 AND LGPL-3.0-only"
    assert podman.inspect(image)["Config"]["User"] == "65532:65532"
