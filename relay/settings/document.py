"""Reads the YAML file as a plain tree. It is stricter than YAML: keys must be text, and no key may come
twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from relay.settings.problems import SettingsError

LEVELS = (
    "redis",
    "grpc",
    "http",
    "api",
    "authentication",
    "log",
    "defaults",
    "topics",
    "recurrences",
    "sealing",
)

MOST_BYTES = 16 << 20
"""The most bytes of a settings file. A larger one, such as a device, is not read to its end."""


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            where = f"line {key.start_mark.line + 1}"
            if not isinstance(name, str):
                raise SettingsError([f"{where}: the key {key.value!r} must be in quotes to be text"])
            if name in seen:
                raise SettingsError([f"{where}: the key {name!r} comes twice"])
            seen.add(name)
        return super().construct_mapping(node, deep)

    def construct_yaml_timestamp(self, node: yaml.ScalarNode) -> Any:
        """Leave what only looks like a date, such as 2026-02-30, as text: who reads it names its field."""
        try:
            return super().construct_yaml_timestamp(node)
        except ValueError:
            return node.value


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_yaml_timestamp)


def read_document(file: Path) -> dict[str, Any]:
    """Read the file's settings. A level without content counts as left out.

    Raises `SettingsError`. No message quotes the file, which may hold a password.
    """
    tree = read_yaml(file)
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise SettingsError([f"{file}: must be a mapping of settings at its top level"])
    for level in LEVELS:
        if level in tree and tree[level] is None:
            del tree[level]
    if isinstance(topics := tree.get("topics"), dict):
        topics.update({name: {} for name, entry in topics.items() if entry is None})
    return tree


def read_yaml(file: Path) -> Any:
    """Read what a file holds. Raises `SettingsError`, which quotes no values."""
    content = _read(file)
    try:
        return yaml.load(content, _Loader)
    except SettingsError as error:
        raise SettingsError([f"{file}, {problem}" for problem in error.problems]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SettingsError([f"{file}{where}: is not valid YAML"]) from None
    except RecursionError:
        raise SettingsError([f"{file}: is nested too deeply"]) from None
    except (ValueError, LookupError, AttributeError, TypeError):
        # PyYAML's conversions raise these, such as that of `!!bool x`, and quote the value.
        raise SettingsError(
            [f"{file}: has a value that does not fit its tag, or a number too long"]
        ) from None


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise SettingsError([f"{file}: has more than {MOST_BYTES} bytes, too many for such a file"])
        return raw.decode()
    except OSError as error:
        raise SettingsError([f"{file}: can't be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError:
        raise SettingsError([f"{file}: is not UTF-8 text"]) from None
