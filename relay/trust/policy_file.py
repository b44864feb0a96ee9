"""Reads `policy.yaml`: rules that say which principals may do what to which topics, and bounds that say what
they may cost."""

from __future__ import annotations

import difflib
import hashlib
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import yaml

from relay.core import validate
from relay.core.errors import InvalidField
from relay.core.trust.access import EVERY_TOPIC, AccessPolicy, AccessRule
from relay.core.trust.bounds import Bound
from relay.core.trust.globs import Glob, principal_glob
from relay.core.trust.verbs import AccessVerb
from relay.trust.files import BadFile, WatchedFiles, read

SETTING = "policy_file"

LISTS = ("rules", "bounds")
FIELDS = ("name", "principals", "topics", "verbs")
COUNTS = ("max_streams", "max_calls")
RATES = ("calls_per_second", "bytes_per_second")
BURST = "burst_seconds"
OF_BOUNDS = ("name", "principals", *COUNTS, *RATES, BURST)

MOST_RULES = 1_000
"""The most rules, and the most bounds."""
MOST_PATTERNS = 1_000
"""The most principals, or topics, of one rule."""
MOST_CHARACTERS = 2_048
"""The most characters of a pattern."""
LEAST, MOST = 0.001, 10**12
"""The bounds of numbers."""

_T = TypeVar("_T")
_TEXT = "tag:yaml.org,2002:str"
_NUMBER = re.compile(r"(0|[1-9][0-9_]{0,18})(\.[0-9]{1,9})?", re.ASCII)


class PolicyProblem(NamedTuple):
    """What is wrong in a policy, and where: its line, from 1 on, and its field."""

    line: int
    field: str
    problem: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.field}: {self.problem}"


class _Wrong(Exception):
    def __init__(self, node: yaml.Node | None, field: str, problem: str) -> None:
        super().__init__(problem)
        self.problem = PolicyProblem(node.start_mark.line + 1 if node else 1, field, problem)


class PolicyFile:
    """A policy in a file. Add its `source` to a `Watch`; `use` is called with each policy that is read.

    `stale` is whether the file holds something else than the policy in force, since it can't be used.
    """

    def __init__(self, path: Path, use: Callable[[AccessPolicy], None]) -> None:
        self._path = path
        self._use = use
        self.stale = False
        self.source = WatchedFiles(SETTING, (path,), self.load)

    def load(self) -> None:
        """Read the file and put it to use. Raises `BadFile`, and changes nothing then."""
        self.stale = True
        self._use(read_policy(self._path))
        self.stale = False


def read_policy(path: Path) -> AccessPolicy:
    """Read the policy in a file. Raises `BadFile` with a line for each problem."""
    content = read(SETTING, path)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise BadFile(SETTING, path, "is not UTF-8 text") from None
    policy, problems = parse(text)
    if problems:
        raise BadFile(SETTING, path, "is not a policy:\n" + "\n".join(map(str, problems)))
    policy.digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return policy


def parse(text: str) -> tuple[AccessPolicy, Sequence[PolicyProblem]]:
    """The policy that a text says, of the rules and bounds that are right, and the first problem of each
    other."""
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except RecursionError:
        return AccessPolicy(), [PolicyProblem(1, "rules", "is nested too deeply; see docs/how-to/policy.md")]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = "the text from here on is not valid YAML; look for indentation and quotes"
        return AccessPolicy(), [PolicyProblem(mark.line + 1 if mark else 1, "rules", problem)]
    problems: list[PolicyProblem] = []
    try:
        lists = _lists(root)
        rules = _entries(lists["rules"], "rules", _rule, problems)
        bounds = _entries(lists.get("bounds", []), "bounds", _bound, problems)
    except _Wrong as wrong:
        return AccessPolicy(), [wrong.problem]
    return AccessPolicy(rules, bounds), problems


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_N = TypeVar("_N", bound=_Named)


def _entries(
    nodes: Sequence[yaml.Node],
    list_name: str,
    read_one: Callable[[yaml.Node, int], _N],
    problems: list[PolicyProblem],
) -> list[_N]:
    """The entries that are right; `problems` gets those of the others."""
    found: list[_N] = []
    names: dict[str, int] = {}
    for number, node in enumerate(nodes, 1):
        try:
            entry = read_one(node, number)
            if entry.name in names:
                what = list_name.removesuffix("s")
                there = f"is that of the {what} in line {names[entry.name]}, too; give each its own"
                raise _Wrong(node, f"{list_name}[{number}].name", there)
            names[entry.name] = node.start_mark.line + 1
            found.append(entry)
        except _Wrong as wrong:
            problems.append(wrong.problem)
    return found


def _lists(root: yaml.Node | None) -> dict[str, Sequence[yaml.Node]]:
    if root is None:
        # Whoever empties a file by accident must not lock out everybody, or believe that all is allowed.
        raise _Wrong(None, "rules", "is missing; write `rules: []` to deny everything")
    found = _fields(root, "", LISTS)
    if "rules" not in found:
        raise _Wrong(root, "rules", "is missing; write `rules: []` to deny everything")
    for name, node in found.items():
        if not isinstance(node, yaml.SequenceNode):
            raise _Wrong(node, name, f"must be a list; begin each {name.removesuffix('s')} with a -")
        if len(node.value) > MOST_RULES:
            raise _Wrong(node, name, f"has {len(node.value)} entries; give at most {MOST_RULES:,}")
    return {name: node.value for name, node in found.items()}


def _rule(node: yaml.Node, number: int) -> AccessRule:
    place = f"rules[{number}]"
    found = _fields(node, f"{place}.", FIELDS)
    for name in FIELDS[1:]:
        if name not in found:
            raise _Wrong(node, f"{place}.{name}", "is missing; a rule has principals, topics and verbs")
    name = f"rule {number}"
    if "name" in found:
        name = _text(found["name"], f"{place}.name")
    principals = _listed(found, place, "principals", principal_glob)
    topics = _listed(found, place, "topics", _topic_glob)
    return AccessRule(name, principals, topics, frozenset(_listed(found, place, "verbs", _verb)))


def _bound(node: yaml.Node, number: int) -> Bound:
    place = f"bounds[{number}]"
    found = _fields(node, f"{place}.", OF_BOUNDS)
    if "principals" not in found:
        raise _Wrong(node, f"{place}.principals", "is missing; a bound says whom it holds for")
    if not found.keys() & {*COUNTS, *RATES}:
        choices = ", ".join((*COUNTS, *RATES))
        raise _Wrong(node, place, f"bounds nothing; give some of {choices}")
    if BURST in found and not found.keys() & set(RATES):
        raise _Wrong(found[BURST], f"{place}.{BURST}", f"has no effect without {' or '.join(RATES)}")
    name = _text(found["name"], f"{place}.name") if "name" in found else f"bound {number}"
    counts = {each: _count(found[each], f"{place}.{each}") for each in COUNTS if each in found}
    rates = {
        each: _number(found[each], f"{place}.{each}", LEAST) for each in (*RATES, BURST) if each in found
    }
    return Bound(
        name,
        _listed(found, place, "principals", principal_glob),
        counts.get("max_streams"),
        counts.get("max_calls"),
        rates.get("calls_per_second"),
        rates.get("bytes_per_second"),
        rates.get(BURST, 1.0),
    )


def _number(node: yaml.Node, field: str, least: float) -> float:
    # YAML has more forms, of which 010 is 8 and 1:30 is 90; nobody means those.
    plain = isinstance(node, yaml.ScalarNode) and node.style is None and _NUMBER.fullmatch(node.value)
    value = float(node.value.replace("_", "")) if plain else math.nan
    if not least <= value <= MOST:
        raise _Wrong(node, field, f"must be a number from {least:g} to {MOST:,}, in digits")
    return value


def _count(node: yaml.Node, field: str) -> int:
    value = _number(node, field, 0)
    if not value.is_integer():
        raise _Wrong(node, field, "must be a whole number")
    return int(value)


def _fields(node: yaml.Node, place: str, known: Sequence[str]) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        raise _Wrong(node, place.rstrip(".") or "rules", f"must be a mapping with {', '.join(known)}")
    found: dict[str, yaml.Node] = {}
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else ""
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            right = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise _Wrong(key, f"{place}{name or '?'}", f"is not known here; {right}")
        if name in found:
            raise _Wrong(key, f"{place}{name}", "comes twice; write it once")
        found[name] = value
    return found


def _listed(found: dict[str, yaml.Node], place: str, name: str, check: Callable[[str], _T]) -> list[_T]:
    node, place = found[name], f"{place}.{name}"
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        raise _Wrong(node, place, "must be a list with at least one entry, as in [orders]")
    if len(node.value) > MOST_PATTERNS:
        raise _Wrong(node, place, f"has {len(node.value)} entries; give at most {MOST_PATTERNS:,}")
    return [_checked(each, f"{place}[{number}]", check) for number, each in enumerate(node.value, 1)]


def _text(node: yaml.Node, field: str) -> str:
    if not isinstance(node, yaml.ScalarNode) or node.tag != _TEXT or not node.value:
        raise _Wrong(node, field, "must be text; put it in quotes")
    if len(node.value) > MOST_CHARACTERS:
        raise _Wrong(node, field, f"has {len(node.value)} characters; give at most {MOST_CHARACTERS:,}")
    text: str = node.value
    return text


def _checked(node: yaml.Node, field: str, check: Callable[[str], _T]) -> _T:
    text = _text(node, field)
    try:
        return check(text)
    except ValueError as wrong:
        raise _Wrong(node, field, f"{text!r} {wrong}") from None


def _topic_glob(text: str) -> Glob:
    if text != EVERY_TOPIC:
        try:
            validate.topic("topic", text)
        except InvalidField as wrong:
            raise ValueError(f"can't match a topic: {wrong.problem}") from None
    return Glob(text)


def _verb(text: str) -> AccessVerb:
    try:
        return AccessVerb(text)
    except ValueError:
        verbs = ", ".join(AccessVerb)
        raise ValueError(f"is not a verb; write some of {verbs}") from None
