"""Redis is known in one place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import relay
from relay.store.keys import KeyNames

PACKAGE = Path(relay.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "v1" not in path.relative_to(PACKAGE).parts)
OUTSIDE = [path for path in MODULES if path.relative_to(PACKAGE).parts[0] != "store"]
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


@pytest.mark.parametrize("path", OUTSIDE, ids=module_id)
def test_only_the_store_imports_redis(path: Path) -> None:
    """Nothing outside relay/store imports redis or a Redis command's name."""
    assert "redis" not in imported(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", [path for path in MODULES if path != KEYS], ids=module_id)
def test_only_keys_names_keys(path: Path) -> None:
    """No module but relay/store/keys.py spells out or puts together a key of a topic."""
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if part in SETTINGS:
        return
    formats = FORMATS if part == "pipeline" else set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert node.value in formats or not node.value.startswith("timers_"), f"line {node.lineno}"


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
    assert KeyNames().ledger_of("orders", "r-1") == "timers_ledger:r-1:orders"
    assert KeyNames(hash_tags=True).ledger_of("orders", "r-1") == "timers_ledger:r-1:{orders}"
    own = KeyNames(timeline="t", payloads="p", leases="l", dead="d", pause="s", journal="j", wake="w")
    assert (own.of("x"), own.channel("x")) == (("t:x", "p:x", "l:x", "d:x", "s:x", "j:x"), "w:x")
