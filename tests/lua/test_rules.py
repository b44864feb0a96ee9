"""Each rule that the scripts name is broken by a test, and each break finds its rule."""

from __future__ import annotations

import pytest

from tests.dispatch.test_breaks import BREAKS as OF_DISPATCH
from tests.lua.breaks import BREAKS
from tests.worlds.scripts.rules import LUA, Break, ruled

ALL: dict[str, Break] = {**BREAKS, **{name: held.broken for name, held in OF_DISPATCH.items()}}
FILES = sorted(str(file.relative_to(LUA).with_suffix("")) for file in LUA.rglob("*.lua"))

pytestmark = pytest.mark.checkout


def test_no_break_is_named_twice() -> None:
    assert len(ALL) == len(BREAKS) + len(OF_DISPATCH)


def test_every_rule_has_a_break() -> None:
    rules = {(file, rule) for file in FILES for rule in ruled(file).rules}
    assert rules == {(each.script, each.rule) for each in ALL.values()}


def test_a_name_stands_for_one_rule() -> None:
    names = [rule for file in FILES for rule in ruled(file).rules]
    assert sorted(names) == sorted(set(names))


def test_a_break_changes_the_script() -> None:
    whole = {
        script: "\n".join(ruled(script).lines).split() for script in {each.script for each in ALL.values()}
    }
    assert [name for name, each in ALL.items() if each.broken().split() == whole[each.script]] == []
