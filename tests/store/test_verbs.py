"""The typed functions of the scripts give each script what its header declares."""

from __future__ import annotations

from typing import Any

import pytest

from relay.core.outcomes import NO_LIMITS, ClaimRequest
from relay.core.recurring.forecast import Window
from relay.store.keys import KeyNames
from relay.store.server.manifest import manifest, verbs
from relay.store.server.scripts import Call, Scripts
from relay.store.verbs import (
    bulk,
    layout,
    move,
    people,
    ready_list,
    recur,
    reseal,
    stream,
    subjects,
    timeline,
)

REQUEST = ClaimRequest(limit=1, lease=2, nonce=b"n" * 16, max_bytes=3)
ONE = stream.Consumer("billing", "one")
PROMOTE = ready_list.PromoteRequest(
    limit=1, max_bytes=2, park_grace=3, nonce=b"n" * 16, limits=NO_LIMITS, at_once=4
)
CALLS: list[Call[Any]] = [
    timeline.schedule("t", 0, ("a", "+1", b"")),
    timeline.cancel("t", ("a", "")),
    timeline.run("t", ["a"]),
    timeline.get("t", "a"),
    timeline.page("t", 1, "", b""),
    timeline.page("t", 1, "", b"", 100),
    timeline.claim("t", REQUEST, park_grace=4, at_once=5),
    timeline.claimed("t", REQUEST, "(1.5", "2.5"),
    timeline.settle("t", NO_LIMITS, (b"n" * 16, "ack", "", 1, "a")),
    timeline.extend("t", 1, ("a", b"n" * 16, "")),
    timeline.ahead("t", 1, "0", 2),
    timeline.recall("t", 1, 2, NO_LIMITS, ("a", "")),
    timeline.orphans("t", "leases", "0", 1),
    timeline.repair("t", ["a"]),
    people.stats("t"),
    people.pause("t", "in", 1),
    people.letters("t", 1, "", 2, 3),
    people.redrive("t", ["1-0"]),
    people.purge("t", ["1-0"]),
    people.trim("t", 1, 2),
    people.record(9, "", ["principal", "token:a"]),
    people.forecast("t", Window(), None),
    ready_list.promote("t", PROMOTE),
    ready_list.reclaim("t", left_after=1, limit=2, limits=NO_LIMITS, at_once=3, skip=0, scan="0"),
    stream.claim("t", ONE, REQUEST, park_grace=4, cursor="0-0", reads_new=True, at_once=5, begin="$"),
    stream.claimed("t", ONE, b"n" * 16),
    stream.settle("t", ONE, 1, NO_LIMITS, ("1-0", 1, "ack", "")),
    stream.extend("t", ONE, 1, ("1-0", 1, "")),
    stream.recall("t", "billing", "-", 1),
    stream.promote("t", "billing", PROMOTE, begin="$"),
    stream.tidy("t", "billing", 1, 2, 3),
    stream.redrive("t", b"billing", ["1-0"]),
    bulk.replace("t", ""),
    bulk.insert("t", "run", 1, expires=""),
    bulk.apply("t", "run", 1, 2, "", expires=""),
    bulk.guarded_load("t", "epoch", "plan", "0", "", ""),
    bulk.retire("t", "1", "token", ["a"]),
    bulk.open_marks("t", "1", "d", lock=1, ttl=2, epoch="e", store="s", place="p", take_over=False),
    bulk.keep_marks("t", "1", "d", lock=1, ttl=2),
    bulk.close_marks("t", "1", "d"),
    bulk.pace(1),
    bulk.tell_cold("t", "takes", "s", 1, "2"),
    layout.begin("t", 8),
    layout.change("t", "1 2", "2 2 4", 5),
    layout.heartbeat("t", "r", 1),
    layout.tell_pause("t", 1),
    move.mark("t"),
    move.scan("t", "0", 10),
    move.leave("t", "t", ["a"]),
    move.put("t", ["1", "ta", b""]),
    move.void("t", "1"),
    move.left("t", "1"),
    move.back("t", ["1", "ta", b""]),
    recur.turn("t", 0, ("r", b"", "", b"", 1, 0, 1, "", "", 0)),
    recur.keep("t", recur.Keeping("r", b"", b"", b"", 1, 0, 1, "put")),
    recur.due("t", 1, 0),
    recur.get("t", ["r"]),
    recur.page("t", 1, b"-", b"+"),
    recur.keep_calendar("de", "2026-12-25", 100),
    recur.remove_calendar("de"),
    recur.calendars(""),
    reseal.contents("t", ["a", b"read", b"written"]),
    reseal.rules("t", ["r", b"read", b"written"]),
    reseal.subjects("t", ["s", b"read", b"written"]),
    reseal.begin("t", "run"),
    reseal.copy("t", "run", ["1-1", b"written"]),
    reseal.drop("t", "run", ["1-1"]),
    reseal.swap("t", "run"),
    subjects.keep("t", ["s", b"key"]),
    subjects.forget("t", "s"),
]
COLUMNS = dict.fromkeys(("bulk/replace", "bulk/insert", "bulk/apply", "bulk/guarded_load"), 3)
"""Arguments that come behind those of the call: a batch by columns."""
LEAST = {"timeline/list": 3, "bulk/marks": 3}
"""Arguments that these take at least: the others may be left out."""


def test_each_script_is_here() -> None:
    assert {call.verb for call in CALLS} == set(verbs())


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.verb)
def test_a_call_has_the_arguments_and_keys_of_the_header(call: Call[Any]) -> None:
    """As many as are declared, more where the header has a tail; the journal's comes last."""
    declared = manifest(call.verb)
    scripts = Scripts(KeyNames())
    prepared = scripts.prepare(call, lambda _: 0)
    assert len(prepared.keys) == len(declared.keys)
    given = len(prepared.command()) - 2 - len(prepared.head) + COLUMNS.get(call.verb, 0)
    fixed = sum(5 if kind == "limits" else 1 for kind in declared.arguments.values())
    if declared.tail:
        assert given >= fixed
    else:
        assert LEAST.get(call.verb, fixed) <= given <= fixed
    assert call.hints == ("channel" in declared.arguments)
    noted = scripts.prepare(call, lambda _: 7)
    if declared.writes and "timeline" in declared.keys:
        assert (noted.keys[-1], noted.command()[-1]) == (KeyNames().key("journal", call.topic), 7)
    else:
        assert noted == prepared
