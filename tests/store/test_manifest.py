"""A script's header is its manifest: what it declares is what the script gets, and a wrong line is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.store.keys import KeyNames
from relay.store.server.manifest import manifest, parse
from relay.store.server.scripts import Script, source

LUA = Path(__file__).parents[2] / "lua"
VERBS = sorted(
    str(file.relative_to(LUA).with_suffix("")) for file in LUA.rglob("*.lua") if file.parent.name != "lib"
)
HEADER = "-- a/b.lua: do it.\n--\n{}\n-- ARGV    none\n\nreturn 1\n"


def test_what_a_header_declares() -> None:
    declared = manifest("stream/claim")
    assert list(declared.keys) == [
        *("timeline", "payloads", "leases", "dead", "pause", "stream", "retries", "group", "marks")
    ]
    assert (declared.own_keys, declared.marks, declared.writes) == (8, True, True)
    assert declared.uses == ("promotion", "stream_group")
    assert not manifest("timeline/get").writes


def test_the_text_begins_with_what_was_declared() -> None:
    """The types of its keys, and which of them is that of the marks."""
    first = source("timeline/settle").splitlines()[0]
    assert first == "local KINDS, MARKS = { 'zset', 'hash', 'hash', 'stream', 'hash' }, KEYS[5]"
    assert source("timeline/extend+journal").splitlines()[0].endswith(", nil")


@pytest.mark.checkout
@pytest.mark.parametrize("verb", VERBS)
def test_every_key_has_a_name_that_keys_py_knows(verb: str) -> None:
    """And one type, whichever script takes it; what a script uses is there."""
    declared = manifest(verb)
    assert declared.keys.keys() <= set(dir(KeyNames()))
    everywhere = {name: kind for other in VERBS for name, kind in manifest(other).keys.items()}
    assert dict(declared.keys) == {name: everywhere[name] for name in declared.keys}
    assert [part for part in declared.uses if not (LUA / "lib" / f"{part}.lua").exists()] == []
    assert Script(verb).keys == declared.own_keys


def test_a_line_that_ends_in_a_comma_goes_on() -> None:
    declared = parse(
        "a/b", HEADER.format("-- KEYS    timeline zset,\n--         marks hash\n-- Writes  nothing")
    )
    assert dict(declared.keys) == {"timeline": "zset", "marks": "hash"}
    assert not declared.writes


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("-- KEYS    timeline", "KEYS has 'timeline'; write a name and a type"),
        ("-- KEYS    timeline sorted", "KEYS has 'timeline sorted'"),
        ("-- KEYS    timeline zset, timeline zset", "KEYS has 'timeline zset'"),
        ("-- KEYS    marks hash, timeline zset", "marks before other keys"),
        ("-- KEYS    timeline zset\n-- Writes  little", "Writes is 'little'; write 'nothing'"),
        ("-- Keys    timeline zset", "KEYS has ''"),
    ],
)
def test_a_line_that_is_no_manifest_is_named(line: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as raised:
        parse("a/b", HEADER.format(line))
    assert str(raised.value).startswith("lua/a/b.lua: ")
