"""Values that make no sense are refused as the chart is rendered, with the path of what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from relay.settings import Settings, SettingsError
from relay.settings import load as load_settings
from relay.settings.describe import fields
from tests.kubernetes.tools import CHART, CI, HELMS, load, template

pytestmark = pytest.mark.checkout

REFUSED: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("refused.yaml").read_text(encoding="utf-8")
)
TEMPLATES = [(case["values"], case["says"]) for case in REFUSED["templates"]]


@pytest.mark.parametrize("case", REFUSED["schema"], ids=lambda case: case["helm3"])
def test_the_schema_refuses(case: dict[str, Any]) -> None:
    for version in HELMS:
        ran = template(version, case["values"])
        assert ran.code == 1
        assert ran.err.strip().splitlines()[1:] == ["relay:", f"- {case[version]}"], version


@pytest.mark.slow
@pytest.mark.parametrize(("values", "message"), TEMPLATES, ids=[said for _, said in TEMPLATES])
def test_values_that_contradict_each_other_are_refused(values: dict[str, Any], message: str) -> None:
    for version in HELMS:
        ran = template(version, values)
        assert ran.code == 1
        assert f": {message}\n" in f"{ran.err.rstrip()}\n", (version, ran.err)


def test_a_native_sidecar_needs_its_kubernetes() -> None:
    """The classic kind does not."""
    for version in HELMS:
        ran = template(version, kube="1.28.9")
        assert (
            "sidecar.kind: native needs Kubernetes 1.29 or newer, and this is v1.28.9; set classic, "
            "and include relay.sidecar under containers"
        ) in ran.err
        assert template(version, kube="1.29.0-gke.1").code == 0
        assert template(version, {"sidecar": {"kind": "classic"}}, kube="1.25.0").code == 0
        assert template(version, {"sidecar": {"kind": "classic"}}, kube="1.24.0").code == 1


CONFIGS = [
    values["config"]
    for values, said in TEMPLATES
    if said.startswith(("config.defaults", "config.topics.a")) and "mode" not in values
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_the_daemon_refuses_the_same(config: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "relay.yaml"
    file.write_text(yaml.safe_dump(config))
    with pytest.raises(SettingsError):
        load_settings(file, environ={})


# ------------------------------------------------------------ values, schema and settings are one


def test_the_chart_says_the_daemon_s_own_defaults() -> None:
    """But for a start that waits for Redis, and logs that are always JSON."""
    config = load(CHART / "values.yaml")["config"]
    own = Settings().model_dump(mode="json")
    differing = {path: value for path, value in leaves(config) if value != at(own, path)}
    assert differing == {("redis", "start_timeout"): 60, ("log", "format"): "json"}


def test_every_setting_is_in_the_schema_or_made_by_the_chart() -> None:
    from tools.chart import OWNED  # late: the wheel's tests have no tools

    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert "$ref" not in str(schema)
    config = schema["properties"]["config"]
    for field in fields():
        if field.path[0] == "topics":
            continue
        owned = any(field.path[: len(path)] == path for path in OWNED)
        assert (schema_at(config, field.path) is None) == owned, field.path


def test_every_values_file_is_of_use() -> None:
    assert len(CI) == 11
    for path in CI:
        assert load(path), path


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    else:
        yield path, tree


def at(tree: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def schema_at(schema: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        schema = schema.get("properties", {}).get(key)
        if schema is None:
            return None
    return schema
