"""From file and environment to `Settings`: environment over file over defaults, field by field."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from relay.settings.describe import ANY_TOPIC, find
from relay.settings.document import read_document
from relay.settings.problems import Origins, SettingsError, sentences
from relay.settings.tree import Settings

PREFIX = "RELAY_"
SEPARATOR = "__"


def load(
    config: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """Read the YAML file `config` (None: there is none) and the variables `RELAY_…`.

    `overrides`, by dotted path such as `grpc.listen`, stand above both: command line options.
    Raises `SettingsError` with one sentence for each problem.
    """
    tree = read_document(config) if config else {}
    origins: Origins = {}
    problems = _add_environment(tree, os.environ if environ is None else environ, origins)
    for path, value in (overrides or {}).items():
        _put(tree, tuple(path.split(".")), value)
    try:
        settings = Settings(**tree)
    except ValidationError as error:
        raise SettingsError([*problems, *sentences(error, tree, origins)]) from None
    if problems:
        raise SettingsError(problems)
    return settings


def _add_environment(tree: dict[str, Any], environ: Mapping[str, str], origins: Origins) -> list[str]:
    """Put the environment's values into the tree, note where they came from; returns problems.

    A variable without `__` that names no setting is none of ours: Kubernetes puts RELAY_PORT and
    more into every pod beside a Service that is called `relay`.
    """
    problems = []
    for variable, value in sorted(environ.items()):
        if not variable.startswith(PREFIX):
            continue
        path = _path(variable.removeprefix(PREFIX).split(SEPARATOR))
        if path[0] in Settings.model_fields and (len(path) > 1 or find(path) is not None):
            origins[path] = variable
            _put(tree, path, value)
        elif path[0] in Settings.model_fields:
            problems.append(
                f"{path[0]}: is a level and takes no value of its own (from {variable}); "
                f"set its fields, as in {variable}{SEPARATOR}…"
            )
        elif len(path) > 1:
            problems.append(f"{'.'.join(path)}: is not a setting (from {variable})")
    return problems


def _path(parts: list[str]) -> tuple[str, ...]:
    """The parts of a variable's name as a path; a topic keeps its case and may contain `__`."""
    first, *rest = parts
    if first.lower() == "topics" and len(rest) > 1:
        nested = tuple(part.lower() for part in rest[-2:])
        own = 2 if len(rest) > 2 and find(("topics", ANY_TOPIC, *nested)) is not None else 1
        setting = (part.lower() for part in rest[-own:])
        return "topics", SEPARATOR.join(rest[:-own]), *setting
    return tuple(part.lower() for part in parts)


def _put(tree: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    """Set one value; where a level is no mapping, that is left for validation to tell."""
    *levels, last = path
    for level in levels:
        inner = tree.setdefault(level, {})
        if not isinstance(inner, dict):
            return
        tree = inner
    tree[last] = value
