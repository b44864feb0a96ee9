"""`tools/journey.py` counts what it says it counts."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.worlds.relay.processes import ROOT, environment
from tools.journey import Window, lines, naming, product, rows

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.checkout

FILES = {
    "relay/hall.py": "def go():\n    stay()\n    return via(door)\n\ndef stay():\n    [1 for _ in 'x']\n",
    "relay/kitchen.py": "def door():\n    return window()\n\ndef window():\n    pass\n",
    "relay/client/street.py": "def via(other):\n    return other()\n",
    "relay/v1/stub.py": "def generated():\n    pass\n",
}


def house() -> dict[str, Any]:
    """The functions of these files, which lie in relay/ as far as their code objects know."""
    names: dict[str, Any] = {}
    for path, text in FILES.items():
        exec(compile(text, str(ROOT / path), "exec"), names)
    return names


def entered() -> Window:
    """A window in which the whole house is gone through once."""
    built = house()
    with Window() as window:
        built["go"]()
        built["generated"]()
    built["window"]()
    return window


def test_a_window_sees_functions_of_the_relays_side() -> None:
    """No comprehension, no application, nothing generated, and nothing after the window."""
    seen = ["relay/hall.py go", "relay/hall.py stay", "relay/kitchen.py door", "relay/kitchen.py window"]
    assert [function for function, _ in entered().calls] == seen


def test_a_move_is_a_call_into_another_file() -> None:
    """Through others, too; and of the functions that were asked for alone."""
    window = entered()
    assert window.moves(window.functions) == 1
    assert window.moves({"relay/hall.py go", "relay/hall.py stay", "relay/kitchen.py window"}) == 0


def test_a_window_counts_from_its_beginning_on() -> None:
    built = house()
    with Window(begin=2.0**40) as window:
        built["go"]()
    assert window.calls == []


def test_only_what_ran_in_each_repetition_counts() -> None:
    """What ran in one alone was background work; both ways count what either had."""
    out = [Window(calls=[("relay/a.py go", ""), (f"relay/{n}.py tick", "")]) for n in range(2)]
    back = Window(calls=[("relay/a.py go", ""), ("relay/b.py come", "relay/a.py")])
    table = rows([(each, back) for each in out], {})
    assert table["one Schedule"] == {"functions": 1, "files": 1, "names": ["relay/a.py go"]}
    assert table["both ways"]["names"] == ["relay/a.py go", "relay/b.py come"]
    assert table["claim to ACK"] == {"moves": 1}


def test_product_files_are_written_by_hand(tmp_path: Path) -> None:
    texts = {
        "relay/web/a.py": "content_type\n\nmy_content_types PurgeAll",
        "lua/people/b.lua": "-- PURGED\n",
        "proto/relay/v1/c.proto": "string content_type = 1;\n",
        "relay/v1/d.py": "content_type",
        "relay/journal/v1/e.py": "content_type",
        "relay/web/f.json": "content_type",
        "docs/g.py": "content_type",
    }
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    files = product(tmp_path)
    assert files == dict(list(texts.items())[:3])
    assert (naming(files, r"\bcontent_type\b"), naming(files, r"\bcontent_types\b")) == (2, 0)
    assert naming(files, "(?i)purge") == 2
    assert (lines(files, ".py"), lines(files, ".lua")) == (2, 1)


@pytest.mark.slow
@pytest.mark.server
def test_a_timer_is_followed_both_ways() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.journey", "--json"],
        cwd=ROOT,
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    out, both = table["one Schedule"], table["both ways"]
    assert "relay/engine/engine.py Engine.schedule" in out["names"]
    assert 10 <= out["files"] <= both["files"]
    ways = {
        "relay/store/timeline/redis_store.py RedisStore." + verb for verb in ("schedule", "claim", "settle")
    }
    assert ways <= set(both["names"])
    assert "relay/store/timeline/redis_store.py RedisStore.claim" not in out["names"]
    assert table["claim to ACK"]["moves"] >= 10
