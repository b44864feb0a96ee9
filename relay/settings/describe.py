"""A description of the tree, for error messages and for `docs/reference/settings.md`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from relay.settings.tree import PolicySettings, Settings

ANY_TOPIC = "<name>"


@dataclass(frozen=True, slots=True)
class Described:
    """One field. A bound is None where the value has no limit; `choices` is empty if any value is allowed."""

    path: tuple[str, ...]
    type: str
    unit: str
    default: Any
    lowest: float | None
    highest: float | None
    choices: tuple[str, ...]
    description: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "RELAY_" + "__".join(part if part == ANY_TOPIC else part.upper() for part in self.path)

    @property
    def bounds(self) -> str:
        """Its bounds or choices, such as `0.1 to 300`; empty if there are none."""
        if self.choices:
            return ", ".join(self.choices)
        if self.lowest is None or self.highest is None:
            return ""
        return f"{_plain(self.lowest)} to {_plain(self.highest)}"

    @property
    def expected(self) -> str:
        """What a valid value is, as the end of "must be …"."""
        if self.choices:
            return f"one of {self.bounds}"
        if self.type == "boolean":
            return "true or false"
        if self.type in ("text", "list"):
            return self.type if self.type == "text" else "a list"
        number = "a whole number" if self.type == "whole number" else "a number"
        return f"{number} of {self.unit} from {self.bounds}"


def _plain(number: float) -> str:
    return f"{number:g}" if number != int(number) else str(int(number))


@cache
def fields() -> tuple[Described, ...]:
    """Yield all fields in the tree's order; those of a topic are under `topics.<name>`."""
    return tuple(_walk(Settings, ()))


def _walk(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[Described]:
    for name, info in model.model_fields.items():
        here = (*path, name)
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from _walk(info.annotation, here)
        elif get_origin(info.annotation) is dict:
            yield from _walk(PolicySettings, (*here, ANY_TOPIC))
        else:
            yield _describe(info, here)


def _describe(info: FieldInfo, path: tuple[str, ...]) -> Described:
    is_choice = get_origin(info.annotation) is Literal
    types: dict[Any, str] = {float: "number", int: "whole number", bool: "boolean"}
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    bounds = {
        name: getattr(rule, name) for rule in info.metadata for name in ("ge", "le") if hasattr(rule, name)
    }
    return Described(
        path=path,
        type="list" if get_origin(info.annotation) is list else types.get(info.annotation, "text"),
        unit=str(extra.get("unit", "")),
        default=info.default,
        lowest=bounds.get("ge"),
        highest=bounds.get("le"),
        choices=get_args(info.annotation) if is_choice else (),
        description=info.description or "",
    )


def find(path: tuple[str, ...]) -> Described | None:
    """The field at `path`, which may name a real topic."""
    path = _of_any_topic(path)
    return next((field for field in fields() if field.path == path), None)


def siblings(path: tuple[str, ...]) -> list[str]:
    """Return the names that are allowed in the place of the last part of `path`."""
    level = _of_any_topic(path)[:-1]
    return list(dict.fromkeys(f.path[len(level)] for f in fields() if f.path[: len(level)] == level))


def _of_any_topic(path: tuple[str, ...]) -> tuple[str, ...]:
    return ("topics", ANY_TOPIC, *path[2:]) if path[0] == "topics" and len(path) > 2 else path
