"""`relay pipeline --vars`: values that stand for `{{ NAME }}` in the arguments of a job's command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperGroup

from relay.cli.terminal.exits import BAD_INPUT, fail

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PLACE = re.compile(r"\{\{\s*(.*?)\s*\}\}")


def parsed(text: str) -> dict[str, str]:
    """Read a mapping of YAML or JSON, each value as it is written. Anything else ends the command."""
    import yaml

    try:
        found = yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        fail(f"--vars: is {text!r}; give a mapping such as '{{day: 2030-01-31}}'", BAD_INPUT)
    for name, value in found.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            fail(f"--vars: {name!r} is not a name; give letters, digits and underscores", BAD_INPUT)
        if not isinstance(value, str):
            fail(f"--vars: {name} has several values; give a text, a number or a date", BAD_INPUT)
    return found


def filled(arguments: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Put the values in their places. A name that has no value, or no place, ends the command."""
    used: set[str] = set()

    def value(place: re.Match[str]) -> str:
        name = place[1]
        if name not in values:
            fail(f"--vars: has no {name}, which {place[0]} names; there are {', '.join(values)}", BAD_INPUT)
        used.add(name)
        return values[name]

    done = [_PLACE.sub(value, each) for each in arguments]
    unused = [name for name in values if name not in used]
    if unused:
        fail(f"--vars: {unused[0]} is not used; write {{{{ {unused[0]} }}}} where it belongs", BAD_INPUT)
    return done


class WithVariables(TyperGroup):
    """The commands of a group whose option `variables` holds for all of their arguments."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command for these arguments, as typer does, with values in their places."""
        text: Any = ctx.params.get("variables")
        if text is not None:
            args = [*args[:1], *filled(args[1:], parsed(text))]
        return super().resolve_command(ctx, args)
