"""Blocks that are neither commands nor code: what the demo prints, folders, messages, errors, variables."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest
from google.protobuf import text_format

from relay.client import errors
from relay.v1 import delivery_service_pb2
from tests.docs import pages
from tests.docs.console import plain
from tests.docs.pages import ROOT
from tests.servers import start_server
from tests.worlds.relay.processes import environment, free_address
from tests.worlds.relay.stage import one_relay

if TYPE_CHECKING:
    from tests.docs.pages import Block

pytestmark = pytest.mark.checkout

OURS = pages.run_by(__file__)
DEMO, FLEET, SECURE, FOLDERS, STREAM, ERRORS, REPLICAS, VARIABLES = (
    "Relay: timers on Redis",
    "three Valkey nodes",
    "A CA was made",
    "relay/core/",
    "→ open {",
    "RelayError ",
    "min-replicas",
    "OTEL_",
)
"""The words by which the tests below know their blocks."""


def the_block(words: str) -> Block:
    (found,) = [block for block in OURS if words in block.text]
    return found


def test_each_block_has_a_test() -> None:
    known = (DEMO, FLEET, SECURE, FOLDERS, STREAM, ERRORS, REPLICAS, VARIABLES)
    assert {the_block(words) for words in known} == set(OURS)


@pytest.mark.slow
def test_the_demo_prints_what_the_page_shows() -> None:
    """On a terminal, which gets a table. Rows and words are the page's; figures and line breaks are not. The
    console is there behind it, with the timers' lives, until somebody ends it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.demo"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=ROOT,
        env=environment({"TERM": "xterm", "COLUMNS": "110"}),
    )
    os.close(theirs)
    shown, looked_at = b"", ""
    try:
        while True:
            shown += os.read(ours, 65_536)
            if b"Ctrl-C ends it." in shown and not looked_at:
                address = re.search(r"http://\S+/console", shown.decode())
                assert address, shown.decode()
                life = f"{address[0]}/timer/life?topic=demo&id=killed"
                with urllib.request.urlopen(life, timeout=60) as answer:
                    looked_at = answer.read().decode()
                process.send_signal(signal.SIGINT)
    except OSError:  # the terminal's end: nobody writes to it any more
        assert process.wait(60) == 130, shown.decode()
    finally:
        process.kill()
        os.close(ours)
    said = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", shown.decode())
    assert story(said[said.rindex(DEMO) :]) == story(the_block(DEMO).text)
    assert looked_at.index("scheduled") < looked_at.index("received") < looked_at.index("acked")


@pytest.mark.slow
@pytest.mark.parametrize(("module", "words"), [("examples.fleet", FLEET), ("examples.secure", SECURE)])
def test_a_longer_demo_prints_what_the_page_shows(module: str, words: str) -> None:
    """Line by line; figures and sealed bytes are not the page's."""
    ran = subprocess.run(
        [sys.executable, "-m", module],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment({}),
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    texts = (re.sub(r"\S+…,", "…", text) for text in (ran.stdout, the_block(words).text))
    said, page = (re.sub(r"[\d.,]+", "0", text).split("\n") for text in texts)
    assert [line.strip() for line in said if line] == [line.strip() for line in page if line]


def story(text: str) -> list[str]:
    """The table's rows, with their cells in one piece, and the lines below it."""
    rows: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("│"):
            cells = [cell.strip() for cell in line.strip("│").split("│")]
            if cells[0]:
                rows.append(cells)
            else:
                rows[-1] = [f"{first} {more}".strip() for first, more in zip(rows[-1], cells, strict=True)]
    below = re.sub(r"[\d.]+ to \(time\)", "(time)", plain(text.rpartition("┘")[2]))
    return [*(plain(" | ".join(row)) for row in rows), *below.splitlines()]


def test_the_folders_are_those_of_the_house() -> None:
    """Each exists, and no room of the package or of the scripts is missing."""
    listed = [line.split()[0].rstrip("/") for line in the_block(FOLDERS).text.splitlines()]
    assert [path for path in listed if not (ROOT / path).exists()] == []
    rooms = {path.parent for path in (ROOT / "relay").glob("*/**/__init__.py")}
    rooms |= {path.parent for path in (ROOT / "lua").rglob("*.lua")}
    names = {str(path.relative_to(ROOT)) for path in rooms}
    assert names - {"relay/journal/v1"} <= set(listed)


def test_the_stream_in_text_form_is_what_the_protocol_knows() -> None:
    messages = re.findall(r"^([→←]) ((?:.*\n(?![→←]))*.*)$", the_block(STREAM).text, re.MULTILINE)
    assert len(messages) == 5
    for arrow, message in messages:
        kind = "DeliverRequest" if arrow == "→" else "DeliverResponse"
        text_format.Parse(message, getattr(delivery_service_pb2, kind)())


def test_the_errors_are_those_of_the_client() -> None:
    """Every one, each below its own base class."""
    above: dict[int, str] = {}
    told = {}
    for depth, name in re.findall(r"^([ │├└─]*)([A-Z]\w+)", the_block(ERRORS).text, re.MULTILINE):
        above[len(depth)] = name
        told[name] = above.get(len(depth) - 4, "")
    real = [each for each in vars(errors).values() if isinstance(each, type)]
    ours = [each for each in real if issubclass(each, errors.RelayError)]
    assert told == {each.__name__: each.__mro__[1].__name__ for each in ours} | {"RelayError": ""}


def test_a_server_takes_the_lines_about_replicas() -> None:
    config = dict(line.split() for line in the_block(REPLICAS).text.splitlines())
    with start_server("valkey", config=config) as server, server.client() as client:
        assert client.config_get("min-replicas*") == config


def test_a_relay_starts_with_the_variables_of_tracing() -> None:
    """The collector is away, which keeps no relay from starting; a value that makes no sense would."""
    text = the_block(VARIABLES).text.replace("collector:4317", free_address())
    with one_relay(dict(line.split("=", 1) for line in text.splitlines())) as relay:
        assert relay.health() == "SERVING"
