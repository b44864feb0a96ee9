"""Starts that can't go well end at once, with a sentence that says what to do, and an exit code."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.servers import free_port
from tests.worlds.relay.processes import command
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import always, eventually

TOPIC = "orders"


def refusal(
    stage: Stage,
    settings: Mapping[str, str] | None = None,
    *,
    url: str | None = None,
    listen: str = "127.0.0.1:0",
    name: str = "refused",
    code: int = 1,
) -> str:
    """Start a relay that must end by itself with that exit code; answers the one thing that it says."""
    relay = stage.relay(name, settings, url=url, listen=listen, start=False)
    relay.spawn()
    assert relay.wait(60.0) == code, relay.output()
    critical = [line["message"] for line in relay.lines() if line["level"] == "critical"]
    assert len(critical) == 1, relay.output()
    message: str = critical[0]
    return message


def refusal_in_time(stage: Stage, url: str) -> str:
    """The same, with the code 4, where Redis is asked again and again, until start_timeout."""
    said = ""
    for seconds in ("0.5", "5", "50"):  # the first that is long enough for an answer
        settings = {"RELAY_REDIS__START_TIMEOUT": seconds}
        said = refusal(stage, settings, url=url, name=f"refused-{seconds}", code=4)
        if "no answer" not in said:
            break
    return said


# ------------------------------------------------------------------------------------ Redis


def test_eviction_of_what_has_a_time_to_live(stage: Stage) -> None:
    """The relay serves, and says once what the server may do."""
    relay = stage.relay(url=stage.redis(config={"maxmemory-policy": "volatile-lru"}).url)
    (told,) = [line for line in relay.lines() if "maxmemory_policy" in line]
    assert (told["level"], told["maxmemory_policy"]) == ("warning", "volatile-lru")


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
def test_eviction(stage: Stage, policy: str) -> None:
    """A Redis that may evict timers is refused by name, unless a setting allows it."""
    server = stage.redis(config={"maxmemory-policy": policy})
    said = refusal(stage, url=server.url)
    assert policy in said
    assert "noeviction" in said
    assert "redis.allow_eviction" in said
    stage.relay("allowed", {"RELAY_REDIS__ALLOW_EVICTION": "true"})


@pytest.mark.parametrize(
    ("level", "advice"),
    [("fsync", "set appendonly to yes"), ("replicas:1", "the server has 0 that are online")],
)
def test_durability(stage: Stage, level: str, advice: str) -> None:
    """A server that can't give what a topic is to have is refused by the setting's name."""
    said = refusal(stage, {f"RELAY_TOPICS__{TOPIC}__DURABILITY": level}, url=stage.redis().url)
    assert said.startswith(f"topics.{TOPIC}.durability: {level} needs ")
    assert advice in said
    by_default = refusal(stage, {"RELAY_DEFAULTS__DURABILITY": level}, name="by-default")
    assert by_default.startswith("defaults.durability: ")


@pytest.mark.parametrize("policy", ["allkeys-lfu", "noeviction"])
def test_eviction_without_config(stage: Stage, policy: str) -> None:
    """Where CONFIG is forbidden, as in managed services, the policy is known all the same."""
    server = stage.redis(config={"maxmemory-policy": policy})
    rules = ("on", ">secret", "~*", "&*", "+@all", "-config")
    stage.client.execute_command("ACL SETUSER", "guest", *rules)
    url = server.url.replace("//", "//guest:secret@")
    if policy == "noeviction":
        stage.relay(url=url)
    else:
        assert policy in refusal(stage, url=url)


def test_wake_hints(stage: Stage) -> None:
    """A user that may neither publish nor subscribe: every timer is stored and delivered, each refusal is
    counted, and the log has a line for each of the two commands."""
    rules = ("on", ">secret", "~*", "&*", "+@all", "-publish", "-subscribe")
    stage.client.execute_command("ACL SETUSER", "mute", *rules)
    relay = stage.relay(url=stage.server.url.replace("//", "//mute:secret@"))
    stage.application(relay, TOPIC)
    producer = stage.producer(relay)
    for n in range(3):
        producer.schedule(TOPIC, f"later-{n}", delay=3600 - n)
    producer.schedule(TOPIC, "now", delay=0)
    eventually(lambda: stage.journal.ended()["now"] == 1, "it is handled")
    published = 'relay_wake_hints_refused_total{command="PUBLISH"}'
    eventually(lambda: f"{published} 4" in relay.metrics(), "each is counted")
    eventually(lambda: 'relay_wake_hints_refused_total{command="SUBSCRIBE"} 1' in relay.metrics(), "counted")
    told = [line for line in relay.lines() if "Redis refuses wake hints" in line["message"]]
    assert sorted(line["command"] for line in told) == ["PUBLISH", "SUBSCRIBE"]
    assert all("docs/how-to/redis.md" in line["message"] and line["level"] == "warning" for line in told)


def test_unreachable(stage: Stage) -> None:
    """Without a Redis the start fails after start_timeout, and the password is masked."""
    url = f"redis://:secret@127.0.0.1:{free_port()}/0"
    begun = time.monotonic()
    said = refusal(stage, {"RELAY_REDIS__START_TIMEOUT": "1"}, url=url, code=4)
    assert time.monotonic() - begun < 55
    assert "redis.start_timeout (1 s)" in said
    assert url.replace("secret", "***") in said
    assert "secret" not in (stage.directory / "refused.log").read_text()


def test_frozen(stage: Stage) -> None:
    """A Redis that takes connections and answers nothing counts as unreachable, in the same time."""
    server = stage.redis()
    server.freeze()
    begun = time.monotonic()
    said = refusal(stage, {"RELAY_REDIS__START_TIMEOUT": "1"}, url=server.url, code=4)
    assert "redis.start_timeout (1 s)" in said
    assert time.monotonic() - begun < 55


def test_wrong_password(stage: Stage) -> None:
    """A password that Redis refuses is told as such, without being told."""
    server = stage.redis(config={"requirepass": "right"})
    said = refusal_in_time(stage, server.url.replace("//", "//:wrong-one@"))
    assert "password" in said or "auth" in said.lower()
    assert "wrong-one" not in said


def test_late_redis(stage: Stage) -> None:
    """A Redis that comes within start_timeout is waited for."""
    server = stage.redis()
    server.kill()
    relay = stage.relay(settings={"RELAY_REDIS__START_TIMEOUT": "60"}, start=False)
    relay.spawn()
    always(lambda: relay.running, "it waits", 1.0)
    server.start()
    eventually(lambda: relay.said("relay is serving"), "it serves")
    assert relay.terminate() == 0


def test_told_to_stop_while_it_waits(stage: Stage) -> None:
    """SIGTERM counts before Redis is there, too: the first process of a container has no default action
    for it, and would serve on until it is killed."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60.0)
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        settings = {"RELAY_REDIS__START_TIMEOUT": "60", "RELAY_REDIS__COMMAND_TIMEOUT": "60"}
        relay = stage.relay(settings=settings, url=url, start=False)
        relay.spawn()
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(1), "it waits for an answer"
            assert relay.terminate() == 0
    assert relay.said("told to stop before it served")


def test_too_old(stage: Stage) -> None:
    """A server that lacks a command, as one before Redis 6.2 lacks ZMSCORE, is refused with what that is
    needed for, and what to do."""
    server = stage.redis(config={"rename-command": "ZMSCORE NOBODYS"})
    said = refusal(stage, url=server.url)
    assert "has no command ZMSCORE, which Relay needs to schedule, deliver and settle timers" in said
    assert "rename-command" in said
    assert "6.2" in said


# -------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize("which", ["grpc.listen", "http.listen", "api.listen"])
def test_port_in_use(stage: Stage, which: str) -> None:
    """A port that another process has is named together with its setting; the other relay is unharmed."""
    first = stage.relay()
    address = {"grpc.listen": first.target, "http.listen": first.http, "api.listen": first.api}[which]
    if which == "grpc.listen":
        said = refusal(stage, listen=address)
    else:
        said = refusal(stage, {f"RELAY_{which.replace('.', '__').upper()}": address})
    variable = f"RELAY_{which.replace('.', '__').upper()}"
    assert said.startswith(f"{which}: can't listen on {address} for ")
    assert said.endswith(
        f": another process listens there already; set another address there, or by {variable}"
    )
    assert first.health() == "SERVING"
    assert first.probe("/healthz/ready") == 200


def test_socket_in_use(stage: Stage) -> None:
    """A Unix socket on which another relay answers is left to it."""
    path = stage.directory / "relay.sock"
    first = stage.relay(listen=f"unix:{path}")
    said = refusal(stage, listen=f"unix:{path}")
    assert "grpc.listen" in said
    assert str(path) in said
    assert first.health() == "SERVING"
    assert first.terminate() == 0
    assert not path.exists()


def test_stale_socket(stage: Stage) -> None:
    """The socket that a killed relay left behind does not hinder the next one."""
    path = stage.directory / "relay.sock"
    relay = stage.relay(listen=f"unix:{path}")
    relay.kill()
    assert path.exists()
    relay.start()
    stage.producer(relay).schedule(TOPIC, "t", delay=60.0)


@pytest.mark.parametrize("found", ["a file", "no directory"])
def test_socket_path_of_no_use(stage: Stage, found: str) -> None:
    """A path that holds something else, or can't be made, is refused; what it holds stays."""
    path = stage.directory / ("precious" if found == "a file" else "nowhere/relay.sock")
    if found == "a file":
        path.write_text("precious")
    said = refusal(stage, listen=f"unix:{path}")
    assert "grpc.listen" in said
    assert str(path) in said
    if found == "a file":
        assert path.read_text() == "precious"


# --------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"RELAY_DEFAULTS__LEASE_TTL": "-1"}, "defaults.lease_ttl"),
        ({"RELAY_REDIS__URL": "http://127.0.0.1"}, "redis.url"),
        ({"RELAY_GRPC__SOCKET_MODE": "rw"}, "grpc.socket_mode"),
        ({"RELAY_DRAIN_TIMEOUT": "soon"}, "drain_timeout"),
    ],
)
def test_wrong_variable(settings: dict[str, str], field: str) -> None:
    """A wrong variable ends `serve` with 2 and the field's name, without a traceback."""
    ran = command("serve", settings=settings)
    assert ran.code == 2
    assert field in ran.err
    assert "Traceback" not in ran.err


def test_wrong_file(tmp_path: Path) -> None:
    """So do an unknown key in the file, and a file that is not there."""
    file = tmp_path / "relay.yaml"
    file.write_text("redis: {ulr: 'redis://127.0.0.1'}\n")
    unknown = command("serve", "--config", str(file))
    assert unknown.code == 2
    assert "redis.ulr" in unknown.err
    missing = command("serve", "--config", str(tmp_path / "missing.yaml"))
    assert missing.code == 2
    assert "missing.yaml" in missing.err
