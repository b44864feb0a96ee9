"""What a kubelet makes of a container: its command line, its environment, its files.

Everything is as the manifest says, but for places that a test can't have: `/etc/relay` and the like lie in a
directory of the test's own, and `0.0.0.0` is loopback.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.tools import Doc, containers

FIELDS = {
    "metadata.name": "shop-0",
    "metadata.uid": "6f1d0c9a-3be4-8257-0000-000000000011",
    "metadata.namespace": "default",
    "spec.nodeName": "node-1",
    "status.hostIP": "127.0.0.1",
}
Secrets = Mapping[str, Mapping[str, str]]
"""Of the cluster: name → key → value. ConfigMaps that the chart does not make are among them."""


@dataclass(frozen=True)
class Started:
    """A container as it is started."""

    args: list[str]
    env: dict[str, str]


class Pod:
    """A pod whose files are laid out under `root`."""

    def __init__(self, spec: Doc, docs: list[Doc], root: Path, secrets: Secrets) -> None:
        self._spec = spec
        self._root = root
        self._secrets = secrets
        self._maps = {doc["metadata"]["name"]: doc["data"] for doc in docs if doc["kind"] == "ConfigMap"}
        self._volumes = {volume["name"]: volume for volume in spec["volumes"]}

    def container(self, name: str) -> Started:
        """Lay out the container's files, and tell how it is started. Fails on what a kubelet would refuse."""
        (found,) = [container for container in containers(self._spec) if container["name"] == name]
        places = {mount["mountPath"]: self._mount(mount) for mount in found.get("volumeMounts", ())}
        env: dict[str, str] = {}
        for variable in found.get("env", ()):
            env[variable["name"]] = self._value(variable, env)
        words = [*found.get("command", ()), *found.get("args", ())]
        return Started(
            [_moved(word, places) for word in words],
            {name: _moved(value, places) for name, value in env.items()},
        )

    def _mount(self, mount: Doc) -> Path:
        place: Path = self._root / mount["mountPath"].lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        volume = self._volumes[mount["name"]]
        for name, text in self._files(volume).items():
            (place / name).write_text(_moved_all(text, self._root), encoding="utf-8")
        return place

    def _files(self, volume: Doc) -> Mapping[str, str]:
        if "configMap" in volume:
            name = volume["configMap"]["name"]
            files = self._maps[name] if name in self._maps else self._secrets[name]
            items = volume["configMap"].get("items")
            return {each["path"]: files[each["key"]] for each in items} if items else files
        if "secret" in volume:
            return self._secrets[volume["secret"]["secretName"]]
        if "projected" in volume:
            sources: list[Doc] = volume["projected"]["sources"]
            tokens = {each["serviceAccountToken"]["path"]: "a.b.c" for each in sources[:1]}
            return {**tokens, **self._files(sources[1])}
        assert "emptyDir" in volume, volume
        return {}

    def _value(self, variable: Doc, before: Mapping[str, str]) -> str:
        if "value" in variable:
            text: str = variable["value"]
            return re.sub(r"\$\((\w+)\)", lambda match: before.get(match[1], match[0]), text)
        source = variable["valueFrom"]
        if "fieldRef" in source:
            return FIELDS[source["fieldRef"]["fieldPath"]]
        wanted = source["secretKeyRef"]
        return self._secrets[wanted["name"]][wanted["key"]]


def _moved(text: str, places: Mapping[str, Path]) -> str:
    for mount, place in places.items():
        text = re.sub(rf"{re.escape(mount)}(?![\w-])", str(place), text)
    return text


def _moved_all(text: str, root: Path) -> str:
    """The same in files, which may name what other containers mount."""
    mounts = ("", "-redis-tls", "-tls", "-tokens", "-cluster", "-policy", "-keyring")
    places = (*(f"/etc/relay{mount}" for mount in mounts), "/run/relay")
    moved = _moved(text, {place: root / place.lstrip("/") for place in places})
    return moved.replace("0.0.0.0", "127.0.0.1")
