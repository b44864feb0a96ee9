"""What a script's header declares, so that nothing about a script is said beside it.

    -- timeline/settle.lua: end leases.
    --
    -- KEYS    timeline zset, payloads hash, leases hash, dead stream,
    --         marks hash
    -- Uses    letters
    -- ARGV    channel text              of wake hints
    --         limits limits             of the topic's policy
    -- Tail    groups of timers: …

`KEYS` names the keys in the order in which the script takes them, each with the type that it must have; a
line that ends in a comma goes on in the next one. `marks` stands last: a script that takes it may end timers.
`Uses` names the files of `lua/lib` that come between the prelude and the script; such a file says by `KEYS`
and `ARGV` what a script must have that uses it. A script that only reads has a line `Writes  nothing`, and
never comes with the journal. Every other one has the argument `until us` before all others: the instant after
which it refuses the call (`lua/lib/given_up.lua`).

`ARGV` has one argument a line: its name, its type or unit, and, behind two spaces or more, what there is to
say of it; a line that is indented further goes on with that. `Tail` says what comes behind them.

The loader writes from all this how the script begins: each key and each argument is a local of its name, and
`tail` is the place in `ARGV` of the first of what the arguments leave.
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
UNTIL = "until"
EVERYWHERE = ("timeline", "payloads", "leases", MARKS)
"""Keys that the prelude and the journal name: nil for a script without them."""

NUMBERS = frozenset(("bytes", "count", "ms", "s", "us"))
TEXTS = frozenset(("msgpack", "nonce", "text"))
LIMITS = "limits"
POLICY = {"attempts": "count", "claims": "count", "age": "us", "keep": "flag", "keep_expired": "flag"}
"""The policy for timers that fail: the most attempts, the most claims, the most time from the due time to a
further attempt (0: no limit), whether to keep dead and expired timers. An argument of the type `limits` is
all of these."""


@dataclass(frozen=True, slots=True)
class Manifest:  # see 0072
    """`keys`, `arguments`: name to type, in order. `uses`: files of `lua/lib`, without their suffix.

    `tail`: whether more comes behind the arguments.
    """

    keys: Mapping[str, str]
    arguments: Mapping[str, str]
    tail: bool
    uses: tuple[str, ...]
    writes: bool

    @property
    def marks(self) -> bool:
        """Whether it takes the key of a sweep's marks, which comes behind all others."""
        return MARKS in self.keys

    @property
    def journaled(self) -> bool:
        """Whether it changes timers, which a journal has to say."""
        return self.writes and "timeline" in self.keys

    def head(self) -> str:
        """How the script's text begins: `KINDS`, the types that its keys must have, and its locals."""
        kinds = ", ".join(f"'{kind}'" for kind in self.keys.values())
        keys = ", ".join(f"KEYS[{n}]" for n, _ in enumerate(self.keys, 1))
        names = (*self.keys, *(name for name in EVERYWHERE if name not in self.keys))
        lines = [f"local KINDS = {{ {kinds} }}", f"local {', '.join(names)} = {keys}"]
        place = 1
        for name, kind in self.arguments.items():
            local = f"{name}_us" if name == UNTIL else name  # `until` is a word of Lua
            lines.append(f"local {local} = {_taken(kind, place)}")
            place += _places(kind)
        return "\n".join((*lines, f"local tail = {place}") if self.tail else lines)


@cache
def text_of(name: str) -> str:
    """The text of a file of `lua/`; `name` is its path there without the suffix."""
    return (_folder() / f"{name}.lua").read_text(encoding="utf-8")


@cache
def verbs() -> tuple[str, ...]:
    """All scripts that there are, in order."""
    rooms = (room for room in _folder().iterdir() if room.is_dir() and room.name != "lib")
    found = (f"{room.name}/{file.name}" for room in rooms for file in room.iterdir())
    return tuple(sorted(name.removesuffix(".lua") for name in found if name.endswith(".lua")))


@cache
def manifest(verb: str) -> Manifest:
    """What the header of `lua/<verb>.lua` declares.

    Raises `ValueError` if it is not a manifest, or if the script uses a file and lacks what that takes.
    """
    declared = parse(verb, text_of(verb))
    for part in declared.uses:
        name, header = f"lib/{part}", _header(text_of(f"lib/{part}"))
        for label, needed in (("KEYS", _keys(name, header)), ("ARGV", _arguments(name, header))):
            there = declared.keys if label == "KEYS" else declared.arguments
            for each in [f"{each} {kind}" for each, kind in needed.items() if there.get(each) != kind]:
                raise ValueError(f"lua/{verb}.lua: Uses has {part}, and {label} has no {each} for it")
    return declared


def parse(verb: str, text: str) -> Manifest:
    """The manifest in a script's text. Raises `ValueError`, which names the script and the line."""
    header = _header(text)
    keys = _keys(verb, header)
    if not keys:
        raise ValueError(f"lua/{verb}.lua: KEYS is missing; write a name and a type, such as 'dead stream'")
    if MARKS in keys and list(keys)[-1] != MARKS:
        raise ValueError(f"lua/{verb}.lua: KEYS has marks before other keys; write it last")
    writes = _line(header, "Writes")
    if writes not in ("", "nothing"):
        raise ValueError(f"lua/{verb}.lua: Writes is {writes!r}; write 'nothing', or leave the line out")
    uses = _line(header, "Uses")
    if "\n-- ARGV " not in header:
        raise ValueError(f"lua/{verb}.lua: ARGV is missing; write a name and a type or unit, or none")
    arguments = _arguments(verb, header)
    if (not writes) != (next(iter(arguments), "") == UNTIL):
        raise ValueError(
            f"lua/{verb}.lua: ARGV begins with 'until us' in a script that changes something, and only there"
        )
    if clash := sorted(keys.keys() & arguments.keys()):
        raise ValueError(
            f"lua/{verb}.lua: {clash[0]} is a key and an argument; give the argument another name"
        )
    return Manifest(
        keys, arguments, "\n-- Tail " in header, tuple(uses.split(", ")) if uses else (), not writes
    )


def _header(text: str) -> str:
    return text.partition("\n\n")[0]


def _keys(verb: str, header: str) -> dict[str, str]:
    keys: dict[str, str] = {}
    for each in filter(None, _line(header, "KEYS").split(", ")):
        name, _, kind = each.partition(" ")
        if not re.fullmatch(r"[a-z]+", name) or kind not in TYPES or name in keys:
            raise ValueError(
                f"lua/{verb}.lua: KEYS has {each!r}; write a name and a type, such as 'dead stream'"
            )
        keys[name] = kind
    return keys


def _arguments(verb: str, header: str) -> dict[str, str]:
    arguments: dict[str, str] = {}
    found = re.search(r"^-- ARGV {4}(.+(?:\n-- {9}.+)*)$", header, re.MULTILINE)
    lines = found[1].split("\n-- " + " " * 8) if found else []
    for line in [] if lines == ["none"] else lines:
        if line.startswith(" "):  # goes on with what there is to say
            continue
        name, _, rest = line.partition(" ")
        kind = rest.split("  ")[0]
        known = kind in NUMBERS or kind in TEXTS or kind in ("flag", LIMITS)
        if not re.fullmatch(r"[a-z][a-z_]*", name) or not known or name in arguments:
            raise ValueError(
                f"lua/{verb}.lua: ARGV has {line!r}; write a name and a type or unit, such as 'lease us'"
            )
        arguments[name] = kind
    return arguments


def _taken(kind: str, place: int) -> str:
    """How a script reads an argument that begins at a place of `ARGV`."""
    if kind == LIMITS:
        fields = (f"{name} = {_taken(each, place + n)}" for n, (name, each) in enumerate(POLICY.items()))
        return f"{{ {', '.join(fields)} }}"
    if kind == "flag":
        return f"ARGV[{place}] ~= ''"
    return f"tonumber(ARGV[{place}])" if kind in NUMBERS else f"ARGV[{place}]"


def _places(kind: str) -> int:
    return len(POLICY) if kind == LIMITS else 1


def _line(header: str, label: str) -> str:
    """What stands behind a label; a line that ends in a comma goes on in the next one."""
    found = re.search(rf"^-- {label} +((?:.*,\n-- +)*.+)$", header, re.MULTILINE)
    return re.sub(r",\n-- +", ", ", found[1]).strip() if found else ""


def _folder() -> Traversable:
    """In a wheel the scripts travel inside the package; in a clone they stand at its root."""
    packaged = files("relay") / "lua"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "lua"
