"""Redis is known in one place."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import relay
from relay.store.keys import KeyNames
from relay.store.server.manifest import verbs

PACKAGE = Path(relay.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "v1" not in path.relative_to(PACKAGE).parts)
SERVER, VERBS = PACKAGE / "store" / "server", PACKAGE / "store" / "verbs"
OUTSIDE = [path for path in MODULES if SERVER not in path.parents]
MAKERS = {
    "open_client": {"store/server/server.py"},
    "options_of": {"store/server/connect.py", "store/server/blocking.py"},
}
"""What makes a connection, and who calls it."""
PRIVATE = {"execute_command", "connection_pool", "pubsub", "send_command", "read_response", "get_message"}
"""What redis-py calls its ways to a server."""
KEYS = PACKAGE / "store" / "keys.py"
FORMATS = {"timers_journal"}  # in the pipeline: what Spark calls a data source of ours
SETTINGS = {"settings", "cli"}  # they name the prefixes, as values a person may change


def module_id(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def imported(tree: ast.AST) -> set[str]:
    """The top-level packages that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_only_the_way_to_redis_imports_redis() -> None:
    """Nothing outside relay/store/server imports redis, the rest of the store neither."""
    assert [module_id(path) for path in OUTSIDE if "redis" in imported(tree_of(path))] == []


@pytest.mark.parametrize("maker", MAKERS)
def test_only_the_servers_hold_connections(maker: str) -> None:
    """What makes a connection is called by one class of each kind, which keeps it to itself: elsewhere nobody
    calls what only a connection has."""
    callers = {module_id(path) for path in MODULES if maker in called(path)}
    assert callers == MAKERS[maker]
    for path in MODULES:
        touched = {node.attr for node in ast.walk(tree_of(path)) if isinstance(node, ast.Attribute)}
        assert path not in OUTSIDE or not touched & PRIVATE, module_id(path)


def test_every_script_has_one_typed_function() -> None:
    """In the module of its folder; none calls a script that is not there."""
    found: dict[str, set[str]] = {}
    for path in VERBS.glob("*.py"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Call":
                assert isinstance(node.args[0], ast.Constant)
                found.setdefault(str(node.args[0].value), set()).add(path.stem)
    rooms = {"list": "ready_list"}
    assert found == {verb: {rooms.get(room := verb.partition("/")[0], room)} for verb in verbs()}


@cache
def tree_of(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"))


def called(path: Path) -> set[str]:
    """The plain names of the functions that a module calls."""
    calls = (node.func for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


def test_only_keys_names_keys() -> None:
    """No module but relay/store/keys.py spells out or puts together a key of a topic."""
    found = []
    for path in MODULES:
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if path == KEYS or part in SETTINGS:
            continue
        formats = FORMATS if part == "pipeline" else set()
        found += [
            f"{module_id(path)}:{node.lineno}"
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if node.value.startswith("timers_") and node.value not in formats
        ]
    assert found == []


def test_a_topics_keys() -> None:
    """Six keys, with prefixes that can be set; the peer's names for its two by default."""
    assert KeyNames().of("orders") == (
        "timers_timeline:orders",
        "timers_payloads:orders",
        "timers_leases:orders",
        "timers_dead:orders",
        "timers_pause:orders",
        "timers_journal:orders",
    )
    assert KeyNames().channel("orders") == "timers_wake:orders"
    assert KeyNames().key("ledger", "orders", run="r-1") == "timers_ledger:r-1:orders"
    assert KeyNames(hash_tags=True).key("ledger", "orders", run="r-1") == "timers_ledger:r-1:{orders}"
    assert KeyNames(hash_tags=True).key("absent", "") == "timers_topics:absent:{timers_topics:pace}"
    own = KeyNames(timeline="t", payloads="p", leases="l", dead="d", pause="s", journal="j", wake="w")
    assert (own.of("x"), own.channel("x")) == (("t:x", "p:x", "l:x", "d:x", "s:x", "j:x"), "w:x")
