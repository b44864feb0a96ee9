"""Reads `Settings`: the environment overrides the file, and the file the defaults, field by field."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from relay.settings.describe import find
from relay.settings.document import read_document
from relay.settings.problems import Origins, SettingsError, sentences
from relay.settings.tree import Settings
from relay.settings.variables import PREFIX, guess, is_service, path_of


def load(
    config: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """Read the YAML file `config`, if it is not None, and the variables `RELAY_…`.

    `overrides` are command line options by dotted path, such as `grpc.listen`, and override both.
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
    """Put the environment's values into the tree, and note where they came from. Returns the problems.

    A variable without `__` that names no setting may belong to somebody else, even if it names a level, such
    as RELAY_API. Kubernetes makes some for every Service: RELAY_PORT is in every pod beside a Service that is
    called `relay`. See `doubtful`.
    """
    problems = []
    for variable, value in sorted(environ.items()):
        if not variable.startswith(PREFIX):
            continue
        path = path_of(variable)
        if path[0] in Settings.model_fields and (len(path) > 1 or find(path) is not None):
            origins[path] = variable
            _put(tree, path, value)
        elif len(path) > 1 and not is_service(variable):
            problems.append(f"{'.'.join(path)}: is not a setting{guess(variable)} (from {variable})")
    return problems


def _put(tree: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    """Set one value. A level that is not a mapping is left for the validation to report."""
    *levels, last = path
    for level in levels:
        inner = tree.setdefault(level, {})
        if not isinstance(inner, dict):
            return
        tree = inner
    tree[last] = value
