"""What a script's header declares, so that nothing about a script is said beside it.

    -- list/promote.lua: move due timers to a ready list.
    --
    -- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string,
    --         ready list, processing list, taken hash, marks hash
    -- Uses    promotion, list_entries

`KEYS` names the keys in the order in which the script takes them, each with the type that it must have; a
line that ends in a comma goes on in the next one. `marks` stands last: a script that takes it may end timers.
`Uses` names the files of `lua/lib` that come between the prelude and the script. A script that only reads has
a line `Writes  nothing`, and never comes with the journal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

TYPES = frozenset(("hash", "list", "set", "stream", "string", "zset"))
MARKS = "marks"


@dataclass(frozen=True, slots=True)
class Manifest:
    """`keys`: name to type, in order. `uses`: files of `lua/lib`, without their suffix."""

    keys: Mapping[str, str]
    uses: tuple[str, ...]
    writes: bool

    @property
    def marks(self) -> bool:
        """Whether it takes the key of a sweep's marks, which comes behind all others."""
        return MARKS in self.keys

    @property
    def own_keys(self) -> int:
        """How many keys it takes, the marks not counted."""
        return len(self.keys) - self.marks

    def locals(self) -> str:
        """The first line of the script's text: `KINDS`, the types that its keys must have, and `MARKS`."""
        kinds = ", ".join(f"'{kind}'" for kind in self.keys.values())
        return f"local KINDS, MARKS = {{ {kinds} }}, {f'KEYS[{len(self.keys)}]' if self.marks else 'nil'}"


@cache
def text_of(name: str) -> str:
    """The text of a file of `lua/`; `name` is its path there without the suffix."""
    return (_folder() / f"{name}.lua").read_text(encoding="utf-8")


@cache
def manifest(verb: str) -> Manifest:
    """What the header of `lua/<verb>.lua` declares. Raises `ValueError` where it is no manifest."""
    return parse(verb, text_of(verb))


def parse(verb: str, text: str) -> Manifest:
    """The manifest in a script's text. Raises `ValueError`, which names the script and the line."""
    header = text.partition("\n\n")[0]
    keys: dict[str, str] = {}
    for each in _line(header, "KEYS").split(", "):
        name, _, kind = each.partition(" ")
        if not re.fullmatch(r"[a-z]+", name) or kind not in TYPES or name in keys:
            raise ValueError(
                f"lua/{verb}.lua: KEYS has {each!r}; write a name and a type, such as 'dead stream'"
            )
        keys[name] = kind
    if MARKS in keys and list(keys)[-1] != MARKS:
        raise ValueError(f"lua/{verb}.lua: KEYS has marks before other keys; write it last")
    writes = _line(header, "Writes")
    if writes not in ("", "nothing"):
        raise ValueError(f"lua/{verb}.lua: Writes is {writes!r}; write 'nothing', or leave the line out")
    uses = _line(header, "Uses")
    return Manifest(keys, tuple(uses.split(", ")) if uses else (), not writes)


def _line(header: str, label: str) -> str:
    """What stands behind a label; a line that ends in a comma goes on in the next one."""
    found = re.search(rf"^-- {label} +((?:.*,\n-- +)*.+)$", header, re.MULTILINE)
    return re.sub(r",\n-- +", ", ", found[1]).strip() if found else ""


def _folder() -> Traversable:
    """In a wheel the scripts travel inside the package; in a clone they stand at its root."""
    packaged = files("relay") / "lua"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "lua"
