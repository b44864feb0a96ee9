"""What people have at a terminal: --watch of every command that prints a table, and Tab."""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from relay.cli.terminal import tables
from relay.client import RelayClient
from tests.worlds.relay.processes import ROOT, Relay, environment
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import until

pytestmark = pytest.mark.slow

WATCHED = {
    ("list", "t"): "a",
    ("history", "t", "a"): "scheduled",
    ("recur", "list", "t"): "nightly",
    ("recur", "history", "t", "nightly"): "nightly@",
    ("dead", "list", "t"): "dead-1",
    ("top",): "t ",
}
"""The commands, and what each look shows."""


async def test_each_shows_it_again(stage: Stage) -> None:
    """At least three times, at once into a pipe, and Ctrl-C ends it with 0 and without a word."""
    relay = stage.relay()
    async with RelayClient(relay.target, timeout=60.0) as client:
        await client.topics.pause("t")
        await client.schedule("t", b"", timer_id="a", delay=timedelta(days=1))
        await client.recur("nightly", topic="t", every=86_400)
        await client.recurrences.trigger("t", "nightly")
    letter: dict[Any, Any] = {
        "timer_id": "dead-1",
        "reason": "rejected",
        "attempts": 1,
        "claims": 1,
        "due": "1.5",
    }
    told: dict[Any, Any] = {"died": "2000000", "occurrence": b"o" * 16, "error": "no", "envelope": b""}
    stage.client.xadd("timers_dead:t", {**letter, **told})
    await asyncio.gather(*(watched(relay, *arguments, shows=word) for arguments, word in WATCHED.items()))


async def watched(relay: Relay, *arguments: str, shows: str) -> None:
    watch = () if arguments == ("top",) else ("--watch",)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "relay.cli", *arguments, *watch),
        *("--interval", "100ms", "--target", relay.target),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=environment({}),
    )
    assert process.stdout is not None
    seen = ""
    while seen.count(shows) < 3:
        line = (await process.stdout.readline()).decode()
        assert line, (arguments, seen, await process.communicate())
        seen += line
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert (arguments, process.returncode, err) == (arguments, 0, b"")


async def test_a_remark_stands_below_a_display_and_does_not_push_it_down(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A terminal would scroll by a line a second while somebody watches more topics than the limit."""
    screen, looks = StringIO(), 0
    monkeypatch.setattr(tables, "console", lambda: Console(file=screen, force_terminal=True, width=80))

    async def look() -> str:
        nonlocal looks
        if (looks := looks + 1) > 3:
            raise LookupError
        tables.remark("there are more")
        return "row"

    with pytest.raises(LookupError):
        await asyncio.create_task(tables.watch(0.0, look))
    up = "\r\x1b[2K\x1b[1A\x1b[2K"
    assert f"row\r\nthere are more{up}row\r\nthere are more{up}".replace("\r\n", "\n") in screen.getvalue()
    tables.remark("without a display")
    assert capsys.readouterr().err == "without a display\n"


async def test_tab_offers_topics(stage: Stage) -> None:
    """Those that begin with what is typed. Where no relay answers, none, and no word disturbs the line."""
    relay = stage.relay()
    async with RelayClient(relay.target, timeout=60.0) as client:
        for topic in ("orders", "orders-eu", "reports"):
            await client.schedule(topic, b"", delay=timedelta(days=1))
        await until(lambda: completed(relay.target, "orders", "orders-eu"), "all topics are registered")
    assert await completed("127.0.0.1:1")


async def completed(target: str, *expected: str) -> bool:
    """Whether Tab behind `relay get or` offers just these, as bash asks for it."""
    asked = {"_RELAY_COMPLETE": "complete_bash", "COMP_WORDS": "relay get or", "COMP_CWORD": "2"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "import sys; from relay.cli import main; sys.argv = ['relay']; main()"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=environment({**asked, "RELAY_TARGET": target}),
    )
    out, err = await process.communicate()
    assert err == b""
    return out.decode().split() == list(expected)
