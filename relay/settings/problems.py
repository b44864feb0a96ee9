"""Problems with the settings, as sentences that name the path."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from relay.core.endpoints.secrets import mask
from relay.core.errors import ServiceError, shortened
from relay.settings import describe
from relay.settings.rules import Misfit

Origins = dict[tuple[str, ...], str]
"""The environment variable that set each path."""

SECRET_PATHS = {("redis",), ("redis", "url"), ("redis", "password"), ("redis", "sentinel_password")}
"""The fields whose values are never repeated."""


class SettingsError(ServiceError):
    """The settings are wrong; `problems` has a sentence for each fault."""

    def __init__(self, problems: Sequence[str]) -> None:
        # A variable may have bytes that are no UTF-8, and a terminal could not show them.
        shown = (problem.encode(errors="backslashreplace").decode() for problem in problems)
        self.problems = tuple(shortened(mask(problem)) for problem in shown)
        super().__init__()
        self.args = ("\n".join(self.problems),)  # all of them: people read these on a terminal


def sentences(error: ValidationError, tree: Mapping[str, Any], origins: Origins) -> list[str]:
    """Return one sentence for each fault. A fault that a topic inherits from `defaults` is reported once,
    there."""
    problems = []
    for fault in error.errors(include_url=False):
        path = tuple(str(part) for part in fault["loc"] if part != "[key]")
        cause = fault.get("ctx", {}).get("error")
        if isinstance(cause, Misfit):
            path, problem = (*path, *(cause.path or _split(cause.field))), cause.problem
        else:
            problem = _problem(fault, path)
        if _is_inherited(path, tree):
            continue
        problems.append(f"{'.'.join(path)}: {problem}{_origin(path, origins)}")
    return problems


def _split(field: str) -> tuple[str, ...]:
    """Return a Misfit's field as a path. A topic's name may contain dots."""
    if field.startswith("topics."):
        _, rest = field.split(".", 1)
        topic, _, last = rest.rpartition(".")
        return "topics", topic, last
    return tuple(field.split("."))


def _is_inherited(path: tuple[str, ...], tree: Mapping[str, Any]) -> bool:
    """Whether a topic's entry leaves its whole policy, or this field of it, to `defaults`."""
    if path[0] != "topics" or len(path) < 3:
        return False
    own = tree["topics"].get(path[1], {})
    if not isinstance(own, Mapping):
        return False
    partners = {
        "polling_interval": {"max_polling_interval"},
        "lease_ttl": {"delivery_timeout", "renew"},
        "stream": {"dispatch", "delivery_timeout", "renew"},
        "delivery": {"dispatch"},
    }
    return not ({path[2]} | partners.get(path[2], set())) & own.keys()


def _origin(path: tuple[str, ...], origins: Origins) -> str:
    return f" (from {origins[path]})" if path in origins else ""


def _problem(fault: Any, path: tuple[str, ...]) -> str:
    kind, known = str(fault["type"]), describe.find(path)
    if kind == "value_error":
        return str(fault["ctx"]["error"])
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(path[-1], describe.siblings(path), n=1)
        return "is not a setting" + (f"; did you mean {near[0]}?" if near else "")
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return f"must be a mapping of settings{_got(fault, path)}"
    if known is None:
        return "must be text" if kind == "string_type" else "is wrong"
    return f"must be {known.expected}{_got(fault, path)}"


def _got(fault: Any, path: tuple[str, ...]) -> str:
    """Quote the value as it was given, shortened; empty if it could be a secret."""
    if path in SECRET_PATHS:
        return ""
    value = fault["input"]
    if value is None:
        return ", got nothing"
    if isinstance(value, bool):
        return f", got {str(value).lower()}"
    if isinstance(value, dict | list):
        return f", got a {'mapping' if isinstance(value, dict) else 'list'}"
    shown = repr(value)
    return f", got {shown if len(shown) <= 80 else shown[:77] + '…'}"
