"""Where the settings of a topic come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from relay.settings.tree import PolicySettings, Settings

BUILT_IN = "built in"


class SettingOrigin(NamedTuple):
    """A setting of a topic: its name, such as `retry.max_attempts`, its value as people write it, and the
    highest place that changes it: `topics.<name>`, `defaults`, or `built in`. A value that
    a place only repeats does not come from there."""

    name: str
    value: str
    origin: str


def origins(settings: Settings, topic: str) -> list[SettingOrigin]:
    """All settings of a topic, in the tree's order. None of them is secret."""
    defaults = settings.defaults
    own = settings.topics.get(topic, defaults)
    base = dict(_flat(PolicySettings().model_dump(mode="json")))
    common, mine = dict(_flat(defaults.model_dump(mode="json"))), dict(_flat(own.model_dump(mode="json")))
    found = []
    for name, value in mine.items():
        origin = BUILT_IN
        if value != common[name]:
            origin = f"topics.{topic}"
        elif value != base[name]:
            origin = "defaults"
        found.append(SettingOrigin(name, _written(value), origin))
    return found


def _flat(level: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in level.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
