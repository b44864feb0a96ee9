"""Pods of the examples, as the rendered manifests say it: arguments, environment, files, users, groups."""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.container.podman import Container, Podman, started
from tests.kubernetes.pods import FIELDS
from tests.kubernetes.tools import EXAMPLES, Doc, containers, documents, merged, one, rendered, umbrella
from tests.servers import RunningServer, free_port, start_server
from tests.worlds.waiting import always, eventually

pytestmark = [pytest.mark.checkout, pytest.mark.timeout(1800)]

SLOW = """
import asyncio
from relay.client import Delivery, RelayClient

client = RelayClient()

@client.on("reminders")
async def remind(delivery: Delivery) -> None:
    print("begun", delivery.timer_id, flush=True)
    await asyncio.sleep(3)
    print("ended", delivery.timer_id, flush=True)

asyncio.run(client.run())
print("application has stopped", flush=True)
"""

HEALTHCHECK = ("/opt/relay/bin/relay", "healthcheck", "--timeout", "60")
"""By default it gives a relay two seconds, and on a busy machine one may stand still for longer."""


class Pod:
    """Runs the containers of one pod, on this machine's network."""

    def __init__(self, podman: Podman, spec: Doc, docs: list[Doc], root: Path) -> None:
        self._podman = podman
        self._spec = spec
        self._maps = {doc["metadata"]["name"]: doc["data"] for doc in docs if doc["kind"] == "ConfigMap"}
        self._root = root
        self._group = spec["securityContext"].get("fsGroup")
        self._volumes = {volume["name"]: self._volume(volume) for volume in spec["volumes"]}
        root.chmod(0o755)

    def _volume(self, volume: Doc) -> Path:
        place: Path = self._root / volume["name"]
        place.mkdir()
        if "configMap" in volume:
            place.chmod(0o755)
            for name, text in self._maps[volume["configMap"]["name"]].items():
                (place / name).write_text(text, encoding="utf-8")
        else:  # emptyDir: a kubelet makes it everybody's, and hands it on to the pod's group
            if self._group is not None:
                shutil.chown(place, group=self._group)
            place.chmod(0o2777)
        return place

    def start(self, name: str, **changes: Any) -> AbstractContextManager[Container]:
        """The container `name`; `changes` replace what the manifest says."""
        (found,) = [container for container in containers(self._spec) if container["name"] == name]
        security = {**self._spec["securityContext"], **found["securityContext"]}
        env: dict[str, str] = {}
        for variable in found.get("env", ()):
            env[variable["name"]] = self._value(variable, env)
        options: dict[str, Any] = {
            "user": f"{security['runAsUser']}:{security['runAsGroup']}",
            "groups": [] if self._group is None else [self._group],
            "env": env,
            "mounts": {mount["mountPath"]: self._volumes[mount["name"]] for mount in found["volumeMounts"]}
            if "volumeMounts" in found
            else {},
            "writable": ["/run/relay"],
            "command": found.get("command", ()),
            "args": found.get("args", ()),
        }
        return started(self._podman, changes.pop("as_name", name), **{**options, **changes})

    @staticmethod
    def _value(variable: Doc, before: dict[str, str]) -> str:
        if "valueFrom" in variable:
            return FIELDS[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        text: str = variable["value"]
        for name, value in before.items():
            text = text.replace(f"$({name})", value)
        return text


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with start_server("valkey") as server:
        yield server


@pytest.fixture
def root() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="pod-"))
    yield root
    shutil.rmtree(root, ignore_errors=True)


def values(server: RunningServer, **relay: Any) -> dict[str, Any]:
    http = {"port": free_port(), "address": "127.0.0.1"}
    return {"relay": merged({"http": http, "redis": {"url": server.url}}, relay)}


def shop(podman: Podman, root: Path, asked: dict[str, Any]) -> tuple[Pod, int]:
    """The pod of the umbrella, and the port of its probes."""
    docs = rendered("helm4", asked, chart=umbrella())
    spec = one(docs, "Deployment", "shop")["spec"]["template"]["spec"]
    return Pod(podman, spec, docs, root), asked["relay"]["http"]["port"]


def probe(port: int, what: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz/{what}", timeout=60) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_a_pod_lives_and_ends_in_order(podman: Podman, server: RunningServer, root: Path) -> None:
    """The application and its relay, of two users and one group, meet on the socket; at the end the
    application finishes what it has begun, the relay goes on until then, and both exit with 0."""
    pod, port = shop(podman, root, values(server))
    with ExitStack() as stack:
        begun = time.monotonic()
        relay = stack.enter_context(pod.start("relay"))
        eventually(lambda: probe(port, "startup"), "the relay has started")
        print(f"started within {time.monotonic() - begun:.1f} s")
        assert relay.exec(*HEALTHCHECK) == (0, "SERVING"), "needs no shell"
        assert "relay" in (Path("/proc") / str(relay.state()["Pid"]) / "cmdline").read_text(), "is PID 1"
        endpoint = root / "relay-socket" / "relay.sock"
        status = endpoint.stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (65532, 2000, 0o660)
        with pod.start("shop") as sample:
            eventually(lambda: "shop-0: hello (attempt 1)" in sample.logs(), "the reminder arrives")
            sample.term()
            assert sample.wait() == 0
        stranger = {
            "as_name": "stranger",
            "groups": [],
            "command": ["/opt/relay/bin/relay"],
            "args": ["healthcheck"],
        }
        with pod.start("shop", **stranger) as other:
            assert other.wait() == 1, "who is not in the group has no access"
            assert "does not answer" in other.logs()

        (root / "application" / "application.py").write_text(SLOW, encoding="utf-8")
        shop_container = stack.enter_context(pod.start("shop"))
        code, said = relay.exec("/opt/relay/bin/relay", "schedule", "reminders", "--in", "0s", "--id", "slow")
        assert code == 0, said
        eventually(lambda: "begun slow" in shop_container.logs(), "it is being handled")
        shop_container.term()
        always(lambda: relay.running and probe(port, "live"), "the relay outlives its application", 1.0)
        assert shop_container.wait() == 0
        assert shop_container.logs().splitlines()[-2:] == ["ended slow", "application has stopped"]
        assert relay.running
        with server.client() as client:
            eventually(lambda: client.zcard("timers_timeline:reminders") == 0, "it is committed")
        relay.term()
        assert relay.wait() == 0
        assert '"relay has stopped"' in relay.logs()
        assert not endpoint.exists()


def test_the_classic_container_stops_after_its_application(
    podman: Podman, server: RunningServer, root: Path
) -> None:
    """Both are told at the same moment, and the relay outlasts the application's streams. Whose process is
    gone first then is left to chance: the application's has to end, too."""
    pod, port = shop(podman, root, values(server, sidecar={"kind": "classic"}))
    (root / "application" / "application.py").write_text(SLOW, encoding="utf-8")
    with pod.start("relay") as relay, pod.start("shop") as application:
        eventually(lambda: probe(port, "ready"), "the relay is ready")
        assert (
            relay.exec("/opt/relay/bin/relay", "schedule", "reminders", "--in", "0s", "--id", "slow")[0] == 0
        )
        eventually(lambda: "begun slow" in application.logs(), "it is being handled")
        relay.term()
        application.term()
        assert (application.wait(), relay.wait()) == (0, 0)
        assert '"outlasting the applications"' in relay.logs()
        assert "ended slow" in application.logs()
    with server.client() as client:
        assert client.zcard("timers_timeline:reminders") == 0, "committed, before the relay went"


@pytest.mark.parametrize("name", ["pod", "job"])
def test_the_raw_examples_run(podman: Podman, server: RunningServer, root: Path, name: str) -> None:
    """As they are, but for the address of Redis. The Job's container ends by itself, and then its relay."""
    if taken := [port for port in (7451, 7452) if _is_taken(port)]:
        pytest.fail(f"the examples want the ports {taken}, which another process has")
    text = (EXAMPLES / name / "relay.yaml").read_text(encoding="utf-8")
    docs = documents(text.replace("redis://redis:6379/0", server.url))
    place = one(docs, "Pod" if name == "pod" else "Job")["spec"]
    spec = place if name == "pod" else place["template"]["spec"]
    pod = Pod(podman, spec, docs, root)
    with pod.start("relay") as relay:
        eventually(lambda: probe(7452, "startup"), "the relay has started")
        if name == "job":
            with pod.start("job") as job:
                assert job.wait() == 0
            with server.client() as client:
                assert client.zcard("timers_timeline:reminders") == 1
        else:
            with pod.start("application") as application:
                command = ("schedule", "reminders", "--in", "1s", "--id", "water", "--payload", "drink")
                assert relay.exec("/opt/relay/bin/relay", *command)[0] == 0
                eventually(lambda: "water: drink" in application.logs(), "it arrives")
                application.term()
                assert application.wait() == 0
        relay.term()
        assert relay.wait() == 0


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_relay_with_wrong_settings_says_so_and_ends(podman: Podman, root: Path) -> None:
    """In one line, with the field's name, for whoever reads `kubectl logs`."""
    config = root / "relay.yaml"
    config.write_text(yaml.safe_dump({"defaults": {"lease_ttl": "banana"}}), encoding="utf-8")
    root.chmod(0o755)
    with started(
        podman,
        "wrong",
        user="65532:65532",
        mounts={"/etc/relay": root},
        args=["serve", "--config", "/etc/relay/relay.yaml"],
    ) as relay:
        assert relay.wait() == 2
        assert "defaults.lease_ttl: must be a number of seconds" in relay.logs()
