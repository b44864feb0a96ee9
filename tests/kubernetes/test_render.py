"""What the chart and the examples render: valid, restricted, and the same under Helm 3 and 4."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from relay import __version__
from relay.cli.commands import app
from relay.trust.policy_file import parse
from tests.docs import pages
from tests.kubernetes.tools import (
    CHART,
    CI,
    EXAMPLES,
    HELMS,
    ROOT,
    Doc,
    containers,
    documents,
    helm,
    kinds,
    load,
    merged,
    names,
    one,
    pod_specs,
    rendered,
    run,
    template,
    tool,
    umbrella,
)

pytestmark = [pytest.mark.checkout, pytest.mark.xdist_group("rendered")]  # one worker renders it all, once

VERSIONS = ("1.29", "1.33", "1.37")
"""The oldest with native sidecars, a middle one, and the newest that kubernetes-validate knows."""

OURS = pages.run_by(__file__)
BLOCKS = [block.text for block in OURS if block.language == "yaml"]
RAW = sorted(EXAMPLES.glob("*/relay.yaml"))
CLASSIC_UMBRELLA: dict[str, Any] = {
    "relay": {"sidecar": {"kind": "classic"}, "grpc": {"socket": {"enabled": False}}}
}
UMBRELLAS: dict[str, dict[str, Any]] = {
    "umbrella": {},
    "umbrella-classic": CLASSIC_UMBRELLA,
    "umbrella-without": {"relay": {"enabled": False}, "redis": {"enabled": False}},
}


@cache
def everything(version: str) -> dict[str, list[Doc]]:
    """All that there is to render, by name."""
    found = {name: rendered(version, path) for name, path in zip(names(CI), CI, strict=True)}
    found |= {name: rendered(version, values, chart=umbrella()) for name, values in UMBRELLAS.items()}
    return found | {path.parent.name: documents(path.read_text(encoding="utf-8")) for path in RAW}


@pytest.fixture(scope="module")
def all_docs() -> dict[str, list[Doc]]:
    return everything("helm4")


@pytest.mark.slow
@pytest.mark.parametrize("version", HELMS)
def test_lint(version: str) -> None:
    for path in CI:
        ran = helm(version, "lint", "--strict", CHART, "--values", path)
        assert ran.code == 0, ran.out + ran.err
    assert helm(version, "lint", "--strict", CHART).code == 0, "the defaults too"
    ran = helm(version, "lint", "--strict", umbrella())
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.slow
def test_both_helms_render_the_same(all_docs: dict[str, list[Doc]]) -> None:
    assert everything("helm3") == all_docs


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid(version: str, all_docs: dict[str, list[Doc]], tmp_path: Path) -> None:
    """Strictly: no field that the API does not know. Objects of other APIs have tests of their own."""
    files = []
    for name, docs in all_docs.items():
        others = ("monitoring.coreos.com", "cert-manager.io")
        ours = [doc for doc in docs if not doc["apiVersion"].startswith(others)]
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump_all(ours))
        files.append(file)
    ran = run(tool("kubernetes-validate"), "-k", version, "--strict", *files)
    assert ran.code == 0, ran.out + ran.err
    bad = tmp_path / "bad.yaml"
    bad.write_text(files[0].read_text().replace("data:", "dada:"))
    assert run(tool("kubernetes-validate"), "-k", version, "--strict", bad).code != 0


@pytest.mark.slow
def test_every_pod_is_restricted(all_docs: dict[str, list[Doc]]) -> None:
    """As the restricted Pod Security profile wants it, and somewhat more."""
    seen = 0
    for place, docs in all_docs.items():
        for name, spec in pod_specs(docs):
            seen += 1
            assert violations(spec) == [], f"{place}: {name}"
    assert seen > len(CI) + len(UMBRELLAS) + 3, "the CronJobs' too"


def violations(spec: Doc) -> list[str]:
    """What a pod does that it should not."""
    found = []
    pod = spec.get("securityContext", {})
    if spec.get("automountServiceAccountToken") is not False:
        found.append("a token is mounted")
    found += [f"{field} is set" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    allowed = {
        "configMap",
        "emptyDir",
        "secret",
        "persistentVolumeClaim",
        "projected",
        "downwardAPI",
        "csi",
        "ephemeral",
    }
    found += [
        f"volume {volume['name']}"
        for volume in spec.get("volumes", ())
        if not (volume.keys() - {"name"}) <= allowed
    ]
    for container in containers(spec):
        own = {**pod, **container.get("securityContext", {})}
        rules = {
            "runAsNonRoot": own.get("runAsNonRoot") is True,
            "runAsUser": own.get("runAsUser", 1) != 0,
            "seccompProfile": own.get("seccompProfile", {}).get("type") == "RuntimeDefault",
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "capabilities": own.get("capabilities") == {"drop": ["ALL"]},
            "readOnlyRootFilesystem": own.get("readOnlyRootFilesystem") is True,
            "privileged": not own.get("privileged"),
            "hostPort": not any("hostPort" in port for port in container.get("ports", ())),
            "requests": {"cpu", "memory"} <= container["resources"]["requests"].keys(),
            "a memory limit and none of CPU": container["resources"].get("limits", {}).keys() == {"memory"},
        }
        found += [f"{container['name']}: {rule}" for rule, kept in rules.items() if not kept]
    return found


# ------------------------------------------------------------------------------------ as a sidecar


def test_a_dependency_brings_a_config_map_and_a_test_only() -> None:
    assert kinds(rendered("helm4", CI[names(CI).index("sidecar")])) == ["ConfigMap", "Pod"]


def umbrella_pod(values: dict[str, Any]) -> Doc:
    """The template of the application's pods."""
    found: Doc = one(rendered("helm4", values, chart=umbrella()), "Deployment", "shop")["spec"]["template"]
    return found


def test_the_native_sidecar_begins_first_and_ends_last() -> None:
    spec = umbrella_pod({})["spec"]
    (relay,) = spec["initContainers"]
    assert (relay["name"], relay["restartPolicy"]) == ("relay", "Always")
    assert "lifecycle" not in relay, "a preStop hook would run before the application ends"
    assert relay["startupProbe"]["httpGet"] == {"path": "/healthz/startup", "port": "relay-http"}
    assert relay["livenessProbe"]["httpGet"] == {"path": "/healthz/live", "port": "relay-http"}
    assert relay["readinessProbe"]["httpGet"] == {"path": "/healthz/ready", "port": "relay-http"}
    (shop,) = spec["containers"]
    assert {"name": "RELAY_TARGET", "value": "unix:/run/relay/relay.sock"} in shop["env"]
    sockets = [
        mount for each in (relay, shop) for mount in each["volumeMounts"] if mount["name"] == "relay-socket"
    ]
    assert sockets == 2 * [{"name": "relay-socket", "mountPath": "/run/relay"}]


def test_the_example_gives_the_time_that_its_relay_was_told() -> None:
    """The chart holds the drain against it, so the pod must have it."""
    assert umbrella_pod({})["spec"]["terminationGracePeriodSeconds"] == 30
    longer = {"relay": {"terminationGracePeriodSeconds": 90, "config": {"drain_timeout": 80}}}
    assert umbrella_pod(longer)["spec"]["terminationGracePeriodSeconds"] == 90


def test_the_classic_container_stands_among_the_others_and_stops_last() -> None:
    docs = rendered("helm4", CLASSIC_UMBRELLA, chart=umbrella())
    spec = one(docs, "Deployment", "shop")["spec"]["template"]["spec"]
    assert "initContainers" not in spec
    assert [container["name"] for container in spec["containers"]] == ["relay", "shop"]
    assert "restartPolicy" not in spec["containers"][0]
    assert settings(docs)["stop_last"] is True
    assert settings(rendered("helm4", {}, chart=umbrella()))["stop_last"] is False


def settings(docs: list[Doc]) -> dict[str, Any]:
    """relay.yaml, as text that any reader of YAML takes alike."""
    (text,) = [doc["data"]["relay.yaml"] for doc in docs if "relay.yaml" in doc.get("data", {})]
    return dict(yaml.safe_load(text))


def test_without_the_dependency_the_application_stands_alone() -> None:
    docs = rendered("helm4", UMBRELLAS["umbrella-without"], chart=umbrella())
    assert kinds(docs) == ["ConfigMap", "Deployment"]
    spec = one(docs, "Deployment")["spec"]["template"]["spec"]
    assert [container["name"] for container in containers(spec)] == ["shop"]
    assert [volume["name"] for volume in spec["volumes"]] == ["application"]
    assert "RELAY_TARGET" not in json.dumps(spec)


def test_global_values_are_let_through() -> None:
    assert template("helm4", {"global": {"anything": 1}}, chart=umbrella()).code == 0
    assert template("helm3", {"global": {"anything": 1}}, chart=umbrella()).code == 0


@pytest.mark.slow
def test_new_settings_roll_the_pods_and_others_do_not() -> None:
    def checksum(**relay: Any) -> str:
        return str(umbrella_pod({"relay": relay})["metadata"]["annotations"]["checksum/relay-config"])

    first = checksum()
    assert checksum(config={"defaults": {"lease_ttl": 31}}) != first
    assert checksum(redis={"url": "redis://other"}) != first
    hourly = {"topic": "t", "recurrence_id": "r", "rule": {"cron": "@hourly"}}
    daily = {**hourly, "rule": {"cron": "@daily"}}
    assert len({first, checksum(recurrences=[hourly]), checksum(recurrences=[daily])}) == 3
    assert checksum(resources={"requests": {"cpu": "60m"}}) == first


def test_the_pod_is_found_by_its_monitor() -> None:
    values = {"relay": {"monitoring": {"podMonitor": {"enabled": True}}}}
    docs = rendered("helm4", values, chart=umbrella())
    monitor = one(docs, "PodMonitor")
    labels = one(docs, "Deployment", "shop")["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    relay = one(docs, "Deployment", "shop")["spec"]["template"]["spec"]["initContainers"][0]
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] in [port["name"] for port in relay["ports"]]


def test_where_the_pod_is_becomes_a_resource_attribute() -> None:
    path = CI[names(CI).index("classic")]
    docs = rendered("helm4", path)
    env = {variable["name"]: variable for variable in one(docs, "Pod")["spec"]["containers"][0]["env"]}
    attributes = env["OTEL_RESOURCE_ATTRIBUTES"]["value"].split(",")
    assert "k8s.pod.name=$(POD_NAME)" in attributes
    assert "deployment.environment.name=ci" in attributes
    order = list(env)
    for name in ("POD_NAME", "POD_UID", "POD_NAMESPACE", "NODE_NAME"):
        assert "fieldRef" in env[name]["valueFrom"]
        assert order.index(name) < order.index("OTEL_RESOURCE_ATTRIBUTES"), (
            "only what comes before is expanded"
        )
    assert env["OTEL_EXPORTER_OTLP_ENDPOINT"]["value"] == "http://$(HOST_IP):4317"


@pytest.mark.slow
def test_no_secret_is_in_any_config_map_or_variable(all_docs: dict[str, list[Doc]]) -> None:
    for place, docs in all_docs.items():
        for _, spec in pod_specs(docs):
            for container in containers(spec):
                for variable in container.get("env", ()):
                    if "PASSWORD" in variable["name"] or "SECRET" in variable["name"]:
                        assert "secretKeyRef" in variable["valueFrom"], (place, variable)


# ------------------------------------------------------------------------------------ the outbox


OUTBOX: dict[str, Any] = {"outbox": {"database": {"existingSecret": "shop-database"}}}


@pytest.mark.parametrize("kind", ["native", "classic"])
def test_a_mover_stands_beside_the_relay_and_begins_after_it(kind: str) -> None:
    """It reaches the relay as the application does, has its URL from the Secret, and none of the relay's."""
    values = merged({} if kind == "native" else CLASSIC_UMBRELLA, {"relay": OUTBOX})
    spec = umbrella_pod(values)["spec"]
    found = spec["initContainers" if kind == "native" else "containers"]
    assert [each["name"] for each in found][:2] == ["relay", "relay-outbox"]
    mover, shop = found[1], spec["containers"][-1]
    assert mover.get("restartPolicy") == ("Always" if kind == "native" else None)
    assert mover["args"] == ["outbox", "run", "--movers", "2", "--metrics", "0.0.0.0:9464"]
    assert mover["image"] == "relay-outbox:" + __version__
    env = {variable["name"]: variable for variable in mover["env"]}
    assert env["RELAY_OUTBOX_DATABASE"]["valueFrom"]["secretKeyRef"] == {
        "name": "shop-database",
        "key": "url",
    }
    assert env["RELAY_TARGET"] in shop["env"]
    assert not [name for name in env if "REDIS" in name]
    sockets = [{"name": "relay-socket", "mountPath": "/run/relay"}] if kind == "native" else []
    assert mover.get("volumeMounts", []) == sockets


def test_the_command_line_takes_the_movers_arguments() -> None:
    whole: Any = typer.main.get_command(app)
    mover = umbrella_pod({"relay": OUTBOX})["spec"]["initContainers"][1]
    _, name, *arguments = mover["args"]
    asked = whole.commands["outbox"].commands[name].make_context(name, ["--database", "x", *arguments])
    assert (asked.params["movers"], asked.params["metrics"]) == (2, "0.0.0.0:9464")


def test_a_mover_beside_an_exposed_relay_shows_its_certificate_and_is_watched() -> None:
    docs = rendered("helm4", merged(load(CI[names(CI).index("secure")]), OUTBOX))
    spec = one(docs, "Deployment")["spec"]["template"]["spec"]
    relay, mover = spec["containers"]
    env = {variable["name"]: variable.get("value") for variable in mover["env"]}
    assert env["RELAY_CERTIFICATE"] == "/etc/relay-tls/tls.crt"
    assert [mount["mountPath"] for mount in mover["volumeMounts"]] == ["/etc/relay-tls"]
    (port,) = mover["ports"]
    assert port["name"] in [each["port"] for each in one(docs, "PodMonitor")["spec"]["podMetricsEndpoints"]]
    assert {"port": port["name"]} in one(docs, "NetworkPolicy")["spec"]["ingress"][0]["ports"]
    assert port["containerPort"] not in [each["containerPort"] for each in relay["ports"]]


# ------------------------------------------------------------------------------------ the pipeline


def test_each_job_is_a_cron_job_that_never_runs_twice_at_once(all_docs: dict[str, list[Doc]]) -> None:
    """With the arguments of the values, the settings of the relays, Redis by its Secret, and room at /tmp."""
    jobs = load(CI[names(CI).index("pipeline")])["pipeline"]["jobs"]
    found = {doc["metadata"]["name"]: doc["spec"] for doc in all_docs["pipeline"] if doc["kind"] == "CronJob"}
    assert found.keys() == {f"shop-relay-{name}" for name in jobs}
    for name, job in jobs.items():
        spec = found[f"shop-relay-{name}"]
        assert (spec["schedule"], spec["concurrencyPolicy"]) == (job["schedule"], "Forbid")
        pod = spec["jobTemplate"]["spec"]["template"]["spec"]
        assert pod["restartPolicy"] == "Never"
        (container,) = pod["containers"]
        assert container["args"] == ["pipeline", *job["args"]]
        assert container["image"].startswith("relay-pipeline:")
        env = {variable["name"]: variable for variable in container["env"]}
        assert env["RELAY_CONFIG"]["value"] == "/etc/relay/relay.yaml"
        assert env["RELAY_REDIS__URL"]["valueFrom"]["secretKeyRef"] == {"name": "redis", "key": "url"}
        assert {"/etc/relay", "/tmp", "/lake"} == {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == {
            volume["name"] for volume in pod["volumes"]
        }
    audit = found["shop-relay-audit"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    assert audit["resources"]["limits"] == {"memory": "4Gi"}
    assert found["shop-relay-journal"]["timeZone"] == "Etc/UTC"
    assert found["shop-relay-journal"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 3600


def test_the_command_line_takes_the_arguments_of_each_job(all_docs: dict[str, list[Doc]]) -> None:
    """So that the chart's examples can't drift from the jobs."""
    whole: Any = typer.main.get_command(app)
    commands = whole.commands["pipeline"].commands
    jobs = [doc for doc in all_docs["pipeline"] if doc["kind"] == "CronJob"]
    for _, spec in pod_specs(jobs):
        _, name, *arguments = spec["containers"][0]["args"]
        commands[name].make_context(name, arguments)  # raises for what it does not take
    with pytest.raises(Exception, match="--warm"):
        commands["sweep"].make_context("sweep", ["--cold", "x", "--warm"])


def test_a_job_gets_the_keyring_and_no_key_of_the_relay_s_certificate() -> None:
    """It has the settings that name the keyring; it serves nobody."""
    values = merged(
        load(CI[names(CI).index("secure")]), {"pipeline": load(CI[names(CI).index("pipeline")])["pipeline"]}
    )
    jobs = [doc for doc in rendered("helm4", values) if doc["kind"] == "CronJob"]
    for _, spec in pod_specs(jobs):
        assert set(mounted(spec, "pipeline")) == {"/etc/relay", "/etc/relay-keyring"}


def test_no_policy_and_no_monitor_takes_a_job_for_a_relay() -> None:
    """What selects relays would give jobs their network rules, or scrape a port that they lack."""
    values = merged(
        load(CI[names(CI).index("exposed")]), {"pipeline": load(CI[names(CI).index("pipeline")])["pipeline"]}
    )
    docs = rendered("helm4", values)
    job = next(doc for doc in docs if doc["kind"] == "CronJob")
    labels = job["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        one(docs, "Service")["spec"]["selector"],
        one(docs, "Deployment")["spec"]["selector"]["matchLabels"],
        one(docs, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        one(docs, "PodMonitor")["spec"]["selector"]["matchLabels"],
    ]
    assert not [selector for selector in selectors if selector.items() <= labels.items()]


def test_without_being_asked_for_there_is_no_job(all_docs: dict[str, list[Doc]]) -> None:
    for name, docs in all_docs.items():
        assert ("CronJob" in kinds(docs)) == (name == "pipeline"), name


# ------------------------------------------------------------------------------------ standalone


def test_standalone_alone_has_a_policy_a_budget_and_an_account(all_docs: dict[str, list[Doc]]) -> None:
    docs = all_docs["standalone"]
    assert kinds(docs) == [
        "ConfigMap",
        "Deployment",
        "NetworkPolicy",
        "Pod",
        "PodDisruptionBudget",
        "ServiceAccount",
    ]
    assert one(docs, "ServiceAccount")["automountServiceAccountToken"] is False
    ingress = one(docs, "NetworkPolicy")["spec"]["ingress"]
    assert [rule["ports"] for rule in ingress] == [[{"port": "relay-http"}]], "nobody calls the API"
    assert settings(docs)["grpc"]["listen"] == "127.0.0.1:7451"
    assert "NetworkPolicy" not in kinds(all_docs["sidecar"] + all_docs["umbrella"])
    one_replica = {**load(CI[names(CI).index("standalone")]), "standalone": {"replicas": 1}}
    assert "PodDisruptionBudget" not in kinds(rendered("helm4", one_replica))


def test_the_api_is_exposed_to_those_that_the_policy_names(all_docs: dict[str, list[Doc]]) -> None:
    docs = all_docs["exposed"]
    assert settings(docs)["grpc"]["listen"] == "0.0.0.0:7451"
    assert settings(docs)["grpc"]["insecure"] is True
    assert "insecure" not in settings(all_docs["sidecar"])["grpc"]
    deployment, service = one(docs, "Deployment"), one(docs, "Service")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    policy = one(docs, "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    (rule,) = [rule for rule in policy["ingress"] if rule["ports"] == [{"port": "relay-grpc"}]]
    test = one(docs, "Pod", "timers-health")
    assert rule["from"] == [
        {"podSelector": {"matchLabels": {"app": "shop"}}},
        {"podSelector": {"matchLabels": test["metadata"]["labels"]}},
    ]
    assert service["spec"]["ports"][0]["targetPort"] == "relay-grpc"
    assert test["spec"]["containers"][0]["args"][-1] == "timers:7451"


def test_the_account_of_a_standalone_relay_exists() -> None:
    """Without one of its own and without a name it is the namespace's, and never one that nobody makes."""
    asked = load(CI[names(CI).index("standalone")])
    for account, name in (
        ({}, "shop-relay"),
        ({"create": False}, "default"),
        ({"create": False, "name": "x"}, "x"),
    ):
        docs = rendered("helm4", {**asked, "standalone": {"serviceAccount": account}})
        spec = one(docs, "Deployment")["spec"]["template"]["spec"]
        assert spec["serviceAccountName"] == name
        assert ("ServiceAccount" in kinds(docs)) == (account == {})


def test_an_exposed_relay_listens_where_its_pod_has_an_address() -> None:
    """In a cluster with IPv6 only, probes and the API alike."""
    values = {"mode": "standalone", "standalone": {"grpc": {"expose": True}}, "http": {"address": "[::]"}}
    found = settings(rendered("helm4", values))
    assert (found["grpc"]["listen"], found["http"]["listen"]) == ("[::]:7451", "[::]:7452")


def test_unless_told_otherwise_the_namespace_may_call() -> None:
    """And never everybody, which is what a rule without peers would mean."""
    docs = rendered("helm4", {"mode": "standalone", "standalone": {"grpc": {"expose": True}}})
    rules = {rule["ports"][0]["port"]: rule for rule in one(docs, "NetworkPolicy")["spec"]["ingress"]}
    assert rules["relay-grpc"]["from"] == [{"podSelector": {}}]
    assert "from" not in rules["relay-http"]


def test_the_helm_test_runs_in_relay_s_own_image(all_docs: dict[str, list[Doc]]) -> None:
    for name in names(CI):
        pods = [doc for doc in all_docs[name] if doc["kind"] == "Pod"]
        assert len(pods) == (2 if name in ("exposed", "secure", "tokens") else 1)
        for test in pods:
            assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"
            (container,) = test["spec"]["containers"]
            assert container["image"] == "relay:0.1.0"
            assert "relay-instance" not in test["metadata"]["labels"], "nobody scrapes it"


def test_the_logs_of_a_helm_test_can_be_read(all_docs: dict[str, list[Doc]]) -> None:
    """`helm test --logs` of Helm 3 reads them when the test has ended, and only of pods with one container
    (helm/helm#9098, helm/helm#9892)."""
    for name in names(CI):
        for test in [doc for doc in all_docs[name] if doc["kind"] == "Pod"]:
            policy = test["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
            assert policy == "before-hook-creation"
            assert len(containers(test["spec"])) == 1


# ------------------------------------------------------------------------------------ trust


def mounted(spec: Doc, name: str) -> dict[str, Doc]:
    """The volumes that a container mounts, by their path; each only to be read."""
    (container,) = [each for each in containers(spec) if each["name"] == name]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    trusted = [mount for mount in container["volumeMounts"] if mount["mountPath"].startswith("/etc/")]
    assert all(mount["readOnly"] and "subPath" not in mount for mount in trusted), "a subPath never changes"
    return {mount["mountPath"]: volumes[mount["name"]] for mount in trusted}


def test_cert_manager_makes_the_secret_that_is_mounted(all_docs: dict[str, list[Doc]]) -> None:
    """Its names are those by which callers, Prometheus and the pods themselves dial."""
    docs = all_docs["secure"]
    certificate = one(docs, "Certificate")["spec"]
    assert certificate["issuerRef"] == {"name": "internal", "kind": "ClusterIssuer"}
    assert certificate["usages"] == ["digital signature", "server auth", "client auth"]
    spec = one(docs, "Deployment")["spec"]["template"]["spec"]
    assert mounted(spec, "relay")["/etc/relay-tls"]["secret"] == {"secretName": certificate["secretName"]}
    health = one(docs, "Pod", "timers-health")["spec"]
    assert mounted(health, "health")["/etc/relay-tls"]["secret"] == {"secretName": certificate["secretName"]}
    variables = {each["name"]: each.get("value", "") for each in containers(spec)[0]["env"]}
    assert variables["RELAY_SERVER_NAME"] in certificate["dnsNames"]
    assert variables["RELAY_CERTIFICATE"] == settings(docs)["grpc"]["tls"]["certificate"]
    assert {"timers", "timers.default", "timers.example.org"} <= set(certificate["dnsNames"])
    (scraped,) = one(docs, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert (scraped["scheme"], scraped["tlsConfig"]["serverName"]) == ("https", "timers.default.svc")
    assert scraped["tlsConfig"]["ca"]["secret"] == {"name": certificate["secretName"], "key": "ca.crt"}


def test_without_cert_manager_secrets_are_those_of_the_values(all_docs: dict[str, list[Doc]]) -> None:
    docs = all_docs["tokens"]
    assert "Certificate" not in kinds(docs)
    found = mounted(one(docs, "Deployment")["spec"]["template"]["spec"], "relay")
    assert found["/etc/relay-tls"]["secret"] == {"secretName": "timers-tls"}
    assert found["/etc/relay-tokens"]["secret"] == {"secretName": "timers-tokens"}
    assert found["/etc/relay-policy"]["configMap"] == {"name": "timers-policy"}
    assert found["/etc/relay-keyring"]["secret"] == {"secretName": "timers-keyring"}
    token, _ = found["/etc/relay-cluster"]["projected"]["sources"]
    assert token == {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
    relay = settings(docs)
    assert relay["sealing"]["keyring"] == "/etc/relay-keyring/ring.yaml"
    assert [each["name"] for each in relay["authentication"]["jwt"]] == ["login", "cluster"]
    assert "client_ca" not in relay["grpc"]["tls"]
    assert containers(one(docs, "Deployment")["spec"]["template"]["spec"])[0]["readinessProbe"][
        "httpGet"
    ] == {
        "path": "/healthz/ready",
        "port": "relay-http",
    }


def test_a_certificate_of_a_public_ca_needs_no_file_of_it() -> None:
    asked = merged(
        load(CI[names(CI).index("tokens")]),
        {"tls": {"caKey": "", "probes": True}, "monitoring": {"podMonitor": {"enabled": True}}},
    )
    docs = rendered("helm4", asked)
    ((_, spec),) = pod_specs([one(docs, "Deployment")])
    assert {"name": "RELAY_CA", "value": "system"} in containers(spec)[0]["env"]
    (scraped,) = one(docs, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert scraped["tlsConfig"] == {"serverName": "shop-relay.default.svc"}


def test_a_certificate_does_not_make_the_network_policy_go(all_docs: dict[str, list[Doc]]) -> None:
    """It is there unless somebody takes it away, which needs `tls`."""
    for name in ("secure", "tokens"):
        assert "NetworkPolicy" in kinds(all_docs[name])
    asked = merged(load(CI[names(CI).index("secure")]), {"standalone": {"networkPolicy": {"enabled": False}}})
    assert "NetworkPolicy" not in kinds(rendered("helm4", asked))


def test_a_policy_in_the_values_is_the_file_that_the_relay_reads(all_docs: dict[str, list[Doc]]) -> None:
    """Its change is taken over by a running relay, so it rolls no pod."""
    values = load(CI[names(CI).index("secure")])
    config = one(all_docs["secure"], "ConfigMap")["data"]
    policy, problems = parse(config["policy.yaml"])
    assert list(problems) == []
    assert [rule.name for rule in policy.rules] == ["shop", "this relay"]
    (bound,) = policy.bounds
    assert (bound.max_streams, bound.calls_per_second, bound.bytes_per_second) == (20, 0.5, 50_000_000)
    assert settings(all_docs["secure"])["policy_file"] == "/etc/relay/policy.yaml"

    def checksum(rules: list[Doc] | None) -> str:
        bounds = [] if rules is None else values["policy"]["bounds"]
        docs = rendered("helm4", {**values, "policy": {"rules": rules, "bounds": bounds}})
        annotations = one(docs, "Deployment")["spec"]["template"]["metadata"]["annotations"]
        return str(annotations["checksum/relay-config"])

    assert checksum(values["policy"]["rules"]) == checksum([]) != checksum(None)


def test_a_policy_without_a_rule_allows_nothing() -> None:
    """It is no missing policy, which would allow everything. Without one there is no file."""
    values = load(CI[names(CI).index("secure")])
    for version in ("helm3", "helm4"):
        docs = rendered(version, {**values, "policy": {"rules": []}})
        policy, problems = parse(one(docs, "ConfigMap")["data"]["policy.yaml"])
        assert (list(policy.rules), list(problems)) == ([], [])
        assert settings(docs)["policy_file"] == "/etc/relay/policy.yaml"
        open_to_all = rendered(version, {**values, "policy": {"rules": None}})
        assert "policy.yaml" not in one(open_to_all, "ConfigMap")["data"]
        assert not settings(open_to_all).get("policy_file")


def test_a_sidecar_may_have_all_but_tls_of_its_api() -> None:
    """Its API is on loopback. Probes are on the pod's address."""
    values = {"relay": {"tls": {"existingSecret": "t", "probes": True}, "sealing": {"existingSecret": "k"}}}
    docs = rendered("helm4", values, chart=umbrella())
    found = settings(docs)
    assert "tls" not in found["grpc"]
    assert found["http"]["tls"]["certificate"] == "/etc/relay-tls/tls.crt"
    spec = one(docs, "Deployment", "shop")["spec"]["template"]["spec"]
    assert {"/etc/relay", "/etc/relay-tls", "/etc/relay-keyring"} == set(mounted(spec, "relay"))
    assert not [name for name in json.dumps(spec["containers"]).split('"') if name.startswith("/etc/relay-")]


# ------------------------------------------------------------------------------------ monitoring


@pytest.mark.parametrize("version", HELMS)
def test_monitoring_stands_back_where_nobody_knows_it(version: str) -> None:
    path = CI[names(CI).index("exposed")]
    ours = {"PodMonitor", "PrometheusRule"}
    assert ours <= set(kinds(rendered(version, path)))
    docs = rendered(version, path, apis=())
    assert ours & set(kinds(docs)) == set()
    assert not [doc for doc in docs if doc["metadata"]["name"].endswith("-dashboard")]


# ------------------------------------------------------------------------------------ odds and ends


def test_all_name_one_version() -> None:
    """The chart pulls the image that this package is in, and so do the examples."""
    about = load(CHART / "Chart.yaml")
    assert about["appVersion"] == __version__
    assert f"ARG VERSION={__version__}\n" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert load(EXAMPLES / "umbrella" / "values.yaml")["image"] == f"relay:{__version__}"
    (dependency,) = load(EXAMPLES / "umbrella" / "Chart.yaml")["dependencies"]
    assert dependency["version"] == about["version"]
    for path in RAW:
        for _, spec in pod_specs(documents(path.read_text(encoding="utf-8"))):
            assert {container["image"] for container in containers(spec)} == {f"relay:{__version__}"}


def test_a_digest_stands_above_the_tag() -> None:
    digest = f"sha256:{'0' * 64}"
    docs = rendered("helm4", {"image": {"repository": "r.example/relay", "digest": digest, "tag": "x"}})
    assert one(docs, "Pod")["spec"]["containers"][0]["image"] == f"r.example/relay@{digest}"


def test_names_stay_within_their_bounds() -> None:
    values = {**load(CI[names(CI).index("exposed")]), "fullnameOverride": ""}
    for doc in rendered("helm4", values, release="a" * 53):
        assert len(doc["metadata"]["name"]) <= 63
        for value in doc["metadata"].get("labels", {}).values():
            assert len(value) <= 63


def test_long_names_stay_apart() -> None:
    """Two relays of one chart, by aliases, whose names differ only where a name is cut short."""
    release = "a" * 53
    found = {
        one(rendered("helm4", {"nameOverride": name}, release=release), "ConfigMap")["metadata"]["name"]
        for name in ("relay-orders", "relay-mails")
    }
    assert len(found | {release}) == 3


def test_an_alias_of_any_form_makes_good_names(tmp_path: Path) -> None:
    """Helm puts an alias in the place of the chart's name, and people write `relayOrders`."""
    parent = tmp_path / "parent"
    (parent / "charts").mkdir(parents=True)
    run("cp", "-r", CHART, parent / "charts" / "relay")
    aliases = ("relayOrders", "relay_mails")
    dependencies = [{"name": "relay", "version": "0.1.0", "alias": alias} for alias in aliases]
    about = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": dependencies}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(about))
    for version in HELMS:
        docs = rendered(version, {}, chart=parent)
        found = {doc["metadata"]["name"] for doc in docs if doc["kind"] == "ConfigMap"}
        assert found == {"shop-relayorders", "shop-relay-mails"}


def test_resource_attributes_may_hold_any_character() -> None:
    values = {"telemetry": {"resourceAttributes": {"team": 'a"b', "path": "c:\\d"}}}
    (container,) = one(rendered("helm4", values), "Pod")["spec"]["containers"]
    env = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert env["OTEL_RESOURCE_ATTRIBUTES"].split(",")[-2:] == ["path=c:\\d", 'team=a"b']


def test_big_numbers_are_whole() -> None:
    """Helm takes numbers as floats, and writes big ones as 1e+06, which Kubernetes does not take."""
    values = {**load(CI[names(CI).index("standalone")]), "terminationGracePeriodSeconds": 1_000_000}
    for version in HELMS:
        assert "terminationGracePeriodSeconds: 1000000\n" in template(version, values).out


def test_a_port_that_is_not_used_differs_from_no_other() -> None:
    assert template("helm4", {"grpc": {"socket": {"enabled": True}, "port": 7452}}).code == 0


def test_the_raw_examples_are_like_the_chart_s() -> None:
    """Whoever uses no Helm gets the same probes, arguments and drain."""
    chart = umbrella_pod({"relay": {"grpc": {"socket": {"enabled": False}}}})["spec"]["initContainers"][0]
    for path in RAW:
        docs = documents(path.read_text(encoding="utf-8"))
        ((_, spec),) = pod_specs(docs)
        (relay,) = spec["initContainers"]
        for field in ("name", "restartPolicy", "args", "ports", "resources"):
            assert relay[field] == chart[field], (path, field)
        assert relay["startupProbe"]["httpGet"] == chart["startupProbe"]["httpGet"]
        assert relay["startupProbe"]["failureThreshold"] == chart["startupProbe"]["failureThreshold"]


@pytest.mark.slow
@pytest.mark.parametrize("text", BLOCKS, ids=lambda text: text.split("\n")[0])
def test_values_in_the_docs_are_good(text: str) -> None:
    for version in HELMS:
        assert rendered(version, yaml.safe_load(text))


def test_the_lines_for_your_own_chart_are_those_of_the_example() -> None:
    """What the chart's page tells people to write stands in the umbrella, where the tests above render it."""
    dependency, template = (block.text for block in OURS if block.language == "text")
    about = yaml.safe_load((EXAMPLES / "umbrella" / "Chart.yaml").read_text(encoding="utf-8"))
    (wanted,), (here,) = yaml.safe_load(dependency)["dependencies"], about["dependencies"]
    assert {**wanted, "repository": ""} == {**here, "repository": ""}
    example = (EXAMPLES / "umbrella" / "templates" / "deployment.yaml").read_text(encoding="utf-8")
    included = r'include "(relay\.\w+)" \S+ \| nindent (\d+)'
    assert set(re.findall(included, template)) == {
        (name, indent) for name, indent in re.findall(included, example) if name in template
    }


def notes_of(values: Path | Mapping[str, Any], tmp_path: Path) -> str:
    """`helm template` leaves NOTES.txt out; a template of the same text has it rendered."""
    copy = tmp_path / "relay"
    run("cp", "-r", CHART, copy)
    notes = (copy / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    (copy / "templates" / "notes.yaml").write_text(
        f'notes: |\n  {{{{- define "n" }}}}{notes}{{{{ end }}}}\n  {{{{- include "n" . | nindent 2 }}}}\n'
    )
    ran = template("helm4", values, chart=copy, apis=())
    assert ran.code == 0, ran.err
    (text,) = [str(doc["notes"]) for doc in documents(ran.out) if "notes" in doc]
    return text


@pytest.mark.parametrize("name", names(CI))
def test_notes_say_what_to_do_next(name: str, tmp_path: Path) -> None:
    text = notes_of(CI[names(CI).index(name)], tmp_path)
    assert "helm test shop --namespace default --logs" in text
    assert "relay schedule TOPIC --in 5s" in text
    assert "runbook_url" not in text
    if name == "exposed":
        assert "Nothing of `monitoring` is installed" in text
        assert "dns:///timers.default:7451" in text
    if name == "socket":
        assert 'spec.initContainers     {{ include "relay.sidecar" .Subcharts.relay }}' in text


def test_notes_say_that_alerts_have_no_link(tmp_path: Path) -> None:
    """Where the rules are on and nobody has said where the runbook is read."""
    text = notes_of({"monitoring": {"prometheusRule": {"enabled": True}}}, tmp_path)
    assert "set monitoring.prometheusRule.runbookUrl" in text
