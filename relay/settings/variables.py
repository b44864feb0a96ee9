"""Variables `RELAY_…` that name no setting: which setting was meant, and who else may have set them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache

from relay.settings.describe import ANY_TOPIC, fields, find
from relay.settings.tree import Settings

PREFIX = "RELAY_"
SEPARATOR = "__"

OTHERS = {
    *("RELAY_CONFIG", "RELAY_TARGET"),
    *("RELAY_CA", "RELAY_CERTIFICATE", "RELAY_KEY", "RELAY_TOKEN_FILE", "RELAY_SERVER_NAME"),
}
"""Variables of Relay that are not settings but options of the command line and the clients."""

_OF_A_SERVICE = re.compile(r".*(_SERVICE_(HOST|PORT(_.+)?)|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""The variables that Kubernetes puts into every pod for a Service, such as one called `relay` or
`relay-redis`."""

_NEAR = 0.8


def path_of(variable: str) -> tuple[str, ...]:
    """Return a variable's name as a path. A topic keeps its case and may contain `__`."""
    first, *rest = variable.removeprefix(PREFIX).split(SEPARATOR)
    if first.lower() == "topics" and len(rest) > 1:
        lower = [part.lower() for part in rest]
        depths = (own for own in (3, 2) if len(rest) > own)
        own = next((own for own in depths if find(("topics", ANY_TOPIC, *lower[-own:])) is not None), 1)
        return "topics", SEPARATOR.join(rest[:-own]), *lower[-own:]
    return tuple(part.lower() for part in (first, *rest))


def is_service(variable: str) -> bool:
    """Whether Kubernetes makes a variable of such a name for a Service."""
    return _OF_A_SERVICE.fullmatch(variable) is not None


def guess(variable: str) -> str:
    """Return the variable that was probably meant, as the end of a sentence; empty if none is similar."""
    near = _near(variable)
    return f"; did you mean {near}?" if near else ""


def doubtful(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable that is probably meant as a setting and has no effect: a misspelt
    one, or the name of a level.

    A variable without `__` may belong to somebody else, so it must not keep a relay from starting.
    """
    found = []
    for variable in sorted(filter(_may_be_foreign, environ)):
        if variable.removeprefix(PREFIX).lower() in Settings.model_fields:
            fields_of = f"set its fields, as in {variable}{SEPARATOR}…"
            found.append(f"{variable} is a level of settings and has no effect; {fields_of}")
        elif _near(variable):
            found.append(f"{variable} is not a setting and has no effect{guess(variable)}")
    return found


def _may_be_foreign(variable: str) -> bool:
    if not variable.startswith(PREFIX) or variable in OTHERS or is_service(variable):
        return False
    return SEPARATOR not in variable and find(path_of(variable)) is None


@cache
def _candidates() -> dict[str, str]:
    """The variables by their bare form. A setting of `defaults` has a second form, without that level."""
    known = [field.variable for field in fields() if ANY_TOPIC not in field.path]
    short = {_bare(name.replace("DEFAULTS__", "")): name for name in known}
    return {**short, **{_bare(name): name for name in known}}


def _near(variable: str) -> str:
    close = difflib.get_close_matches(_bare(variable), _candidates(), n=1, cutoff=_NEAR)
    if close:
        return _candidates()[close[0]]
    level, separator, rest = variable.removeprefix(PREFIX).partition(SEPARATOR)
    levels = difflib.get_close_matches(level.lower(), Settings.model_fields, n=1)
    meant = f"{PREFIX}{levels[0].upper()}{separator}{rest}" if separator and levels else ""
    return meant if meant and find(path_of(meant)) is not None else ""


def _bare(variable: str) -> str:
    """Return the name without what people leave out or add."""
    return variable.removeprefix(PREFIX).replace("_", "").upper()
