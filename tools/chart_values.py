"""The table of values in the chart's README, made from values.yaml.

A comment that begins with `# -- ` describes the value that follows it. A described mapping is one row, with
all that is in it as its default; below a mapping that is not described each value needs a description.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

_KEY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z_]\w*):")


def descriptions(text: str) -> dict[tuple[str, ...], str]:
    """The description of each value that has one, by path."""
    found: dict[tuple[str, ...], str] = {}
    path: list[tuple[int, str]] = []
    words: list[str] = []
    for line in text.splitlines():
        if match := _KEY.match(line):
            indent = len(match["indent"])
            path = [(depth, key) for depth, key in path if depth < indent] + [(indent, match["key"])]
            if words:
                found[tuple(key for _, key in path)] = " ".join(words)
            words = []
        elif line.lstrip().startswith("# -- "):
            words = [line.lstrip().removeprefix("# -- ")]
        elif line.lstrip().startswith("# ") and words:
            words.append(line.lstrip().removeprefix("# "))
        else:
            words = []
    return found


def table(text: str) -> str:
    """Rows of Markdown. Raises `ValueError` for a value without a description."""
    told = descriptions(text)
    lines = ["| value | default | |", "|---|---|---|"]
    for path, default in _leaves(yaml.safe_load(text), (), told):
        if path not in told:
            raise ValueError(f"values.yaml: {'.'.join(path)} has no description; put `# -- …` above it")
        shown = json.dumps(default, ensure_ascii=False)
        lines.append(f"| `{'.'.join(path)}` | `{shown}` | {told[path]} |")
    return "\n".join(lines) + "\n"


def _leaves(
    node: dict[str, Any], path: tuple[str, ...], told: dict[tuple[str, ...], str]
) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for key, value in node.items():
        here = (*path, key)
        if isinstance(value, dict) and value and here not in told:
            found += _leaves(value, here, told)
        else:
            found.append((here, value))
    return found
