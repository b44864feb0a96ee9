"""A script's header is its manifest: what it declares is what the script gets, and a wrong line is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relay.store.keys import RECURRENCES, KeyNames
from relay.store.server import manifest as manifests
from relay.store.server.manifest import manifest, parse, verbs
from relay.store.server.scripts import Script, source

LUA = Path(__file__).parents[2] / "lua"
VERBS = verbs()
HEADER = "-- a/b.lua: do it.\n--\n{}\n-- ARGV    until us\n\nreturn 1\n"
ARGUED = (
    "-- a/b.lua: do it.\n--\n-- KEYS    timeline zset\n-- Writes  nothing\n{}\n-- Returns nothing\n\n"
    "return 1\n"
)


def test_what_a_header_declares() -> None:
    declared = manifest("stream/claim")
    assert list(declared.keys) == [
        *("timeline", "payloads", "leases", "dead", "pause", "stream", "retries", "group", "latest", "marks")
    ]
    assert (declared.marks, declared.writes) == (True, True)
    assert declared.uses[-2:] == ("dispatch/stream_entry", "dispatch/stream_group")
    assert not manifest("timeline/get").writes


def test_the_text_begins_with_what_was_declared() -> None:
    """The types of its keys; a local for each key and each argument; where the tail begins. Before it stands
    what makes Lua 5.1 and 5.4 the same."""
    assert source("timeline/settle").startswith(
        manifests.text_of("lib/server/dialect") + "\n"
        "local KINDS = { 'zset', 'hash', 'hash', 'stream', 'hash' }\n"
        "local timeline, payloads, leases, dead, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]\n"
        "local until_us = tonumber(ARGV[1])\n"
        "local channel = ARGV[2]\n"
        "local limits = { attempts = tonumber(ARGV[3]), claims = tonumber(ARGV[4]), age = tonumber(ARGV[5]),"
        " keep = ARGV[6] ~= '', keep_expired = ARGV[7] ~= '' }\n"
        "local tail = 8\n"
    )
    head = (
        source("timeline/extend+journal")
        .removeprefix(manifests.text_of("lib/server/dialect"))
        .splitlines()[2]
    )
    assert head == "local timeline, payloads, leases, marks = KEYS[1], KEYS[2], KEYS[3]", "and no marks"
    assert "local tail" not in manifest("timeline/claim").head()


def test_what_its_arguments_are() -> None:
    declared = manifest("timeline/claim")
    assert dict(declared.arguments) == {
        "until": "us",
        "limit": "count",
        "lease": "us",
        "nonce": "nonce",
        "max_bytes": "bytes",
        "grace": "us",
        "limits": "limits",
        "at_once": "count",
        "behind": "us",
    }
    assert not declared.tail
    assert manifest("timeline/cancel").tail
    assert dict(manifest("people/stats").arguments) == {}


def test_what_there_is_to_say_of_an_argument_may_take_lines() -> None:
    lines = "-- ARGV    one us      from now\n--                     on\n--         two flag\n-- Tail    ids"
    declared = parse("a/b", ARGUED.format(lines))
    assert (dict(declared.arguments), declared.tail) == ({"one": "us", "two": "flag"}, True)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("-- ARGV    lease", "ARGV has 'lease'; write a name and a type or unit, such as 'lease us'"),
        ("-- ARGV    lease microseconds", "ARGV has 'lease microseconds'"),
        ("-- ARGV    lease us\n--         lease us", "ARGV has 'lease us'"),
        ("-- ARGV    Lease us", "ARGV has 'Lease us'"),
        ("-- ARGV    lease us from now", "ARGV has 'lease us from now'"),
        ("-- ARGV    timeline text", "timeline is a key and an argument"),
        ("-- Argv    none", "ARGV is missing"),
        (
            "-- ARGV    until us",
            "ARGV begins with 'until us' in a script that changes something, and only there",
        ),
    ],
)
def test_an_argument_that_is_none_is_named(line: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as raised:
        parse("a/b", ARGUED.format(line))
    assert str(raised.value).startswith("lua/a/b.lua: ")


def shared(folder: Path) -> list[str]:
    """The files that scripts use, by the names that `Uses` has for them."""
    return [file.relative_to(folder).with_suffix("").as_posix() for file in folder.rglob("*.lua")]


@pytest.mark.checkout
@pytest.mark.parametrize("part", sorted(shared(LUA / "lib")))
def test_who_uses_a_file_takes_its_keys(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file of `lua/lib` says that it takes, the script that uses it has to take."""
    needed = re.search(r"^-- KEYS +(.*)$", manifests.text_of(f"lib/{part}"), re.MULTILINE)
    if needed is None or part == "journal":
        return
    used = HEADER.format(f"-- KEYS    pace string\n-- Uses    {part}")
    whole = manifests.text_of
    monkeypatch.setattr(manifests, "text_of", lambda name: used if name == "a/b" else whole(name))
    with pytest.raises(ValueError, match=rf"^lua/a/b\.lua: Uses has {part}, and KEYS has no \w+ \w+"):
        manifest("a/b")


@pytest.mark.checkout
@pytest.mark.parametrize("verb", VERBS)
def test_every_key_has_a_name_that_keys_py_knows(verb: str) -> None:
    """And one type, whichever script takes it; what a script uses is there."""
    declared = manifest(verb)
    made = {
        "layout",
        "move",
        "first",
        "relays",
        "copy",
        "applied",
        "even",
        "odd",
        "subjects",
        "cold",
        *RECURRENCES,
    }
    assert declared.keys.keys() <= {*dir(KeyNames()), *made}
    everywhere = {name: kind for other in VERBS for name, kind in manifest(other).keys.items()}
    assert dict(declared.keys) == {name: everywhere[name] for name in declared.keys}
    assert [part for part in declared.uses if not (LUA / "lib" / f"{part}.lua").exists()] == []
    assert Script(verb).keys == tuple(declared.keys)


def test_a_line_that_ends_in_a_comma_goes_on() -> None:
    declared = parse("a/b", HEADER.format("-- KEYS    timeline zset,\n--         marks hash"))
    assert dict(declared.keys) == {"timeline": "zset", "marks": "hash"}
    assert declared.writes


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("-- KEYS    timeline", "KEYS has 'timeline'; write a name and a type"),
        ("-- KEYS    timeline sorted", "KEYS has 'timeline sorted'"),
        ("-- KEYS    timeline zset, timeline zset", "KEYS has 'timeline zset'"),
        ("-- KEYS    marks hash, timeline zset", "marks before other keys"),
        ("-- KEYS    timeline zset\n-- Writes  little", "Writes is 'little'; write 'nothing'"),
        ("-- Keys    timeline zset", "KEYS is missing"),
        ("-- KEYS    timeline zset\n-- ARGV    none", "ARGV begins with 'until us' in a script that changes"),
    ],
)
def test_a_line_that_is_no_manifest_is_named(line: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as raised:
        parse("a/b", HEADER.format(line))
    assert str(raised.value).startswith("lua/a/b.lua: ")
