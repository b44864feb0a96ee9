"""The real daemon runs with exactly the arguments, environment and files of the rendered manifests."""

from __future__ import annotations

import json
import shutil
import ssl
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from relay import outbox
from relay.client import NewTimer
from relay.settings import load as load_settings
from relay.trust import tokens
from tests.kubernetes.pods import Pod
from tests.kubernetes.tools import CI, Doc, load, merged, names, one, rendered, umbrella
from tests.missing import need
from tests.postgres import postgres
from tests.sentinels import MASTER, Sentinel, until_answered
from tests.servers import free_port, start_server
from tests.tls import Authority
from tests.worlds.cluster.cluster import Cluster as Nodes
from tests.worlds.relay.processes import Process, Relay, command
from tests.worlds.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.checkout]

PASSWORD = "p@ss/w:rd%41#é"
"""With everything in it that a URL would have to encode."""

KEYRING = {"keyring.yaml": json.dumps({"write": "k1", "keys": {"k1": {"base64": "A" * 43 + "="}}})}


class Cluster:
    """The Redis that a values file wants, and the Secrets for it."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self._stack = stack
        self._directory = directory
        self.values: dict[str, Any] = {}
        self.secrets: dict[str, dict[str, str]] = {}

    def sidecar(self) -> None:
        self.values = {"redis": {"url": f"{self._server().url[:-1]}2"}}

    def standalone(self) -> None:
        self.values = {"redis": {"url": self._server().url}}

    def socket(self) -> None:
        server = self._server()
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "relay", "on", f">{PASSWORD}", "~*", "&*", "+@all")
            client.execute_command("ACL", "SETUSER", "default", "off")
        self.values = {"redis": {"url": server.url}}
        self.secrets = {"redis": {"password": PASSWORD}}

    def sentinel(self) -> None:
        config = {"requirepass": PASSWORD, "masterauth": PASSWORD}
        master = self._server(config)
        guard = {"requirepass": "guard:2", f"sentinel auth-pass {MASTER}": PASSWORD}
        sentinel = Sentinel("valkey", master.port, guard)
        self._stack.callback(sentinel.stop)
        until_answered(lambda: sentinel.client(password="guard:2").ping(), "the Sentinel answers")
        self.values = {"redis": {"sentinel": {"hosts": [f"127.0.0.1:{sentinel.port}"]}}}
        self.secrets = {"redis": {"redis-password": PASSWORD, "sentinel-password": "guard:2"}}

    def cluster(self) -> None:
        nodes = self._stack.enter_context(Nodes()).nodes
        self.values = {"redis": {"cluster": {"hosts": [f"127.0.0.1:{node.port}" for node in nodes]}}}

    def classic(self) -> None:
        self.secrets = {"redis": {"url": self._tls(clients="yes")}, **self.secrets}

    def pipeline(self) -> None:
        self.secrets = {"redis": {"url": self._server().url}}

    def exposed(self) -> None:
        self.values = {"redis": {"url": self._tls(clients="no")}}

    def secure(self) -> None:
        """The Secret that cert-manager makes, with the names that the Certificate asks for."""
        self.values = {"redis": {"url": self._server().url}}
        asked = one(rendered("helm4", load(CI[names(CI).index("secure")])), "Certificate")["spec"]
        self.secrets = {asked["secretName"]: self._pems(asked["dnsNames"]), "relay-keyring": KEYRING}

    def tokens(self) -> None:
        self.values = {"redis": {"url": self._server().url}}
        self.secrets = {
            "timers-tls": self._pems(["shop-relay.default.svc"]),
            "timers-tokens": {"tokens": tokens.line("billing", tokens.new())},
            "timers-policy": {"policy.yaml": "rules: []"},
            "timers-keyring": {"ring.yaml": KEYRING["keyring.yaml"]},
            "kube-root-ca.crt": self._pems(["kubernetes"]),
        }

    def outbox(self) -> None:
        self.values = {"redis": {"url": self._server().url}}
        self.secrets = {"shop-database": {"url": "postgresql://unused"}}

    def _pems(self, hosts: list[str]) -> dict[str, str]:
        """A Secret of the type kubernetes.io/tls, with its CA."""
        need("openssl")
        authority = Authority(self._directory)
        own = authority.issue("own", ",".join(f"DNS:{host}" for host in hosts))
        pems = {"ca.crt": authority.ca.certificate, "tls.crt": own.certificate, "tls.key": own.key}
        return {name: path.read_text() for name, path in pems.items()}

    def _server(self, config: Mapping[str, str] | None = None) -> Any:
        return self._stack.enter_context(start_server("valkey", config=config))

    def _tls(self, *, clients: str) -> str:
        need("openssl")
        need("redis-server")
        authority = Authority(self._directory)
        own, ours = authority.issue("server"), authority.issue("relay")
        port = free_port()
        files = {"cert": own.certificate, "key": own.key, "ca-cert": authority.ca.certificate}
        config = {f"tls-{name}-file": str(path) for name, path in files.items()}
        config |= {"tls-port": str(port), "tls-auth-clients": clients}
        self._stack.enter_context(start_server("redis-system", config=config))
        pems = {"ca.crt": authority.ca.certificate, "tls.crt": ours.certificate, "tls.key": ours.key}
        self.secrets["redis-tls"] = {name: path.read_text() for name, path in pems.items()}
        return f"rediss://127.0.0.1:{port}/0"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def root(stack: ExitStack) -> Path:
    """A short path: a socket's must fit into 107 bytes."""
    root = Path(tempfile.mkdtemp(prefix="pod-"))
    stack.callback(shutil.rmtree, root, ignore_errors=True)
    return root


class FromManifest(Relay):
    """`relay serve` as a container of a pod."""

    def __init__(self, pod: Pod, root: Path) -> None:
        started = pod.container("relay")
        super().__init__(root, "relay", "", started.env["RELAY_TARGET"], {})
        self.arguments[2:] = ["relay.cli", *started.args]
        self.env = self.settings = started.env

    def start(self) -> None:
        """Start, and return when it says that it serves."""
        self.spawn()
        serving = eventually(lambda: self._serving(0), f"it serves: {self.output()[-2000:]}", 200.0)
        self.http = serving["http"]
        assert serving["grpc"] == self.target

    def is_well(self) -> bool:
        """As `relay healthcheck` in the container finds it, by its variables; it has more time here."""
        return command("healthcheck", "--timeout", "60", settings=self.env).code == 0

    def answers(self, probe: Mapping[str, Any]) -> bool:
        """As a kubelet asks it, which takes any certificate. Where it asks by TLS, a plain request fails."""
        asked = probe["httpGet"]
        if asked.get("scheme") != "HTTPS":
            return self.probe(asked["path"]) == 200
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with urllib.request.urlopen(f"https://{self.http}{asked['path']}", context=context) as answer:
            return answer.status == 200 and self.probe(asked["path"]) == 0


def ports() -> dict[str, Any]:
    return {
        "grpc": {"port": free_port()},
        "http": {"port": free_port(), "address": "127.0.0.1"},
        "config": {"api": {"listen": f"127.0.0.1:{free_port()}"}},
        "image": {"repository": "registry.example.org/relay"},
    }


@pytest.mark.parametrize("values", CI, ids=names(CI))
def test_the_daemon_runs_as_the_manifest_says(
    values: Path, stack: ExitStack, root: Path, tmp_path: Path
) -> None:
    """It serves where the application looks for it, its probes answer, its settings are those of the
    values, the test pod finds nothing wrong, and SIGTERM ends it well."""
    cluster = Cluster(stack, tmp_path)
    prepare: Callable[[], None] = getattr(cluster, values.name.removesuffix("-values.yaml"))
    prepare()
    asked = merged(load(values), ports(), cluster.values)
    docs, spec = deployed(asked)
    relay = FromManifest(Pod(spec, docs, root, cluster.secrets), root)
    stack.callback(relay.kill)
    relay.start()
    assert relay.is_well()
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asks = partial(relay.answers, _container(spec)[probe])
        eventually(asks, f"{probe} is answered")  # not at once while Redis stands still on a busy machine
    _check_settings(relay, asked)
    (doctor,) = [doc for doc in docs if doc["metadata"]["name"].endswith("-doctor")]
    test = Pod(doctor["spec"], docs, root, cluster.secrets).container("doctor")
    if values.name != "standalone-values.yaml":  # it pushes to a Service, which has no name here
        ran = command(*test.args, settings=test.env)
        assert ran.code == 0, ran.out
    assert relay.terminate() == 0


def deployed(values: Mapping[str, Any]) -> tuple[list[Doc], Doc]:
    """All objects, and the spec of the pods with the relay: the umbrella's or its own."""
    if values.get("mode") == "standalone":
        docs = rendered("helm4", values)
    else:
        plain = {"grpc": {"socket": {"enabled": False}}}  # which the umbrella has otherwise
        docs = rendered(
            "helm4", {"relay": merged(plain, values), "redis": {"enabled": False}}, chart=umbrella()
        )
    return docs, one(docs, "Deployment")["spec"]["template"]["spec"]


def _container(spec: Any) -> Any:
    both = [*spec.get("initContainers", ()), *spec["containers"]]
    (found,) = [container for container in both if container["name"] == "relay"]
    return found


def _check_settings(relay: FromManifest, values: Mapping[str, Any]) -> None:
    """Whatever `config` says is what the daemon has understood."""
    file = Path(relay.arguments[-1])
    effective = load_settings(file, environ=relay.env).model_dump(mode="json")
    wrong = list(_differences(values.get("config", {}), effective, ()))
    assert wrong == []
    assert effective["http"]["ready_needs_redis"] == values.get("readiness", {}).get("needsRedis", False)
    assert effective["stop_last"] == (values.get("sidecar", {}).get("kind") == "classic")
    if values.get("grpc", {}).get("socket", {}).get("enabled"):
        assert effective["grpc"]["socket_mode"] == values["grpc"]["socket"]["mode"]
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert "password" not in written["redis"]


def _differences(asked: Any, effective: Any, path: tuple[str, ...]) -> Iterator[str]:
    if path and path[-1] == "dead_letters" and isinstance(asked, bool):
        asked = {"keep": asked}
    if isinstance(asked, Mapping):
        for key, value in asked.items():
            yield from _differences(value, effective[key], (*path, key))
    elif asked and isinstance(asked, list) and isinstance(asked[0], Mapping):  # the chart may add to it
        for number, item in enumerate(asked):
            yield from _differences(item, effective[number], (*path, str(number)))
    elif asked != effective:
        yield f"{'.'.join(path)}: {asked!r} became {effective!r}"


@pytest.mark.parametrize("values", CI, ids=names(CI))
def test_the_daemon_takes_the_settings_as_they_are_rendered(values: Path, tmp_path: Path) -> None:
    """On the pod's own addresses, where it wants TLS and callers that prove who they are, or `insecure`."""
    docs, _ = deployed(load(values))
    (text,) = [doc["data"]["relay.yaml"] for doc in docs if "relay.yaml" in doc.get("data", {})]
    file = tmp_path / "relay.yaml"
    file.write_text(text, encoding="utf-8")
    found = load_settings(file, environ={"RELAY_REDIS__URL": "redis://redis"})
    assert found.grpc.insecure == (values.name == "exposed-values.yaml")
    assert bool(found.grpc.tls.certificate) == (values.name in ("secure-values.yaml", "tokens-values.yaml"))


def test_recurrences_of_the_values_are_there_once_it_serves(stack: ExitStack, root: Path) -> None:
    """Whatever Helm makes of their numbers and texts, the daemon reads what the values say."""
    server = stack.enter_context(start_server("valkey"))
    nightly = {
        "topic": "reports",
        "recurrence_id": "nightly",
        "rule": {
            "cron": "0 3 * * *",
            "zone": "Europe/Berlin",
            "leave_out": ["2026-12-24"],
            "calendars": ["c"],
        },
        "message": {"to": "<ops> & all", "yes": "no"},
        "max_runs": 10_000_000,
    }
    closed = {"calendar": "c", "dates": ["2026-12-25"]}
    asked = merged(ports(), {"redis": {"url": server.url}, "recurrences": [nightly, closed]})
    docs, spec = deployed(asked)
    relay = FromManifest(Pod(spec, docs, root, {}), root)
    stack.callback(relay.kill)
    relay.start()
    (found,) = command("recur", "list", "reports", "--json", "--target", relay.target).documents
    assert {name: found[name] for name in ("recurrence_id", "rule", "max_runs")} == {
        name: nightly[name] for name in ("recurrence_id", "rule", "max_runs")
    }
    (whole,) = command("recur", "get", "reports", "nightly", "--json", "--target", relay.target).documents
    assert whole["message"] == nightly["message"]
    assert command("recur", "calendar", "get", "c", "--target", relay.target).out == "2026-12-25\n"
    assert relay.terminate() == 0


def test_a_mover_hands_rows_to_the_relay_of_its_pod(stack: ExitStack, root: Path, tmp_path: Path) -> None:
    """As its container says: the URL from the Secret, the relay's socket, metrics on its port."""
    database = stack.enter_context(postgres()).url()
    cluster = Cluster(stack, tmp_path)
    cluster.outbox()
    port = free_port()
    values = load(CI[names(CI).index("outbox")])
    asked = merged(values, ports(), cluster.values, {"outbox": {"metricsPort": port}})
    docs, spec = deployed(asked)
    pod = Pod(spec, docs, root, {"shop-database": {"url": database}})
    mover = pod.container("relay-outbox")
    assert command("outbox", "migrate", settings=mover.env).code == 0
    relay = FromManifest(pod, root)
    stack.callback(relay.kill)
    relay.start()
    running = Process(["relay.cli", *mover.args], root / "mover.log", mover.env)
    stack.callback(running.kill)
    running.spawn()
    with psycopg.connect(database) as connection:
        outbox.schedule(connection, NewTimer(topic="t", payload=b"", delay=600, timer_id="a"))
    eventually(
        lambda: command("get", "t", "a", "--target", relay.target).code == 0, f"moved: {running.output()}"
    )

    def shown() -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return bytes(answer.read())

    eventually(lambda: b'relay_outbox_moved_rows_total{result="taken"} 1.0' in shown(), "counted")
    assert running.terminate() == 0
    assert relay.terminate() == 0


def test_the_umbrella_delivers(stack: ExitStack, root: Path) -> None:
    """The sample application and its relay, each as its container says, meet on the socket."""
    server = stack.enter_context(start_server("valkey"))
    asked = {"relay": merged(ports(), {"redis": {"url": server.url}})}
    docs = rendered("helm4", asked, chart=umbrella())
    spec = one(docs, "Deployment")["spec"]["template"]["spec"]
    pod = Pod(spec, docs, root, {})
    relay = FromManifest(pod, root)
    stack.callback(relay.kill)
    relay.start()
    socket = Path(relay.target.removeprefix("unix:"))
    assert socket.is_relative_to(root)
    assert socket.stat().st_mode & 0o777 == 0o660
    shop = pod.container("shop")
    assert shop.args[0] == "python"
    application = Process(["x"], root / "shop.log", shop.env)
    application.arguments[1:] = shop.args[1:]
    stack.callback(application.kill)
    application.spawn()
    eventually(lambda: "shop-0: hello (attempt 1)" in application.output(), "the reminder arrives")
    assert application.terminate() == 0
    assert relay.terminate() == 0
