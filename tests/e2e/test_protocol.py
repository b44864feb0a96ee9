"""`docs/reference/protocol.md` says what goes over the wire, and what it tells people to type works."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import pages
from tests.worlds.relay.processes import ROOT
from tests.worlds.relay.stage import Stage

pytestmark = pytest.mark.checkout

BUF = ".venv/bin/buf"


@pytest.mark.slow
def test_the_transcript_is_what_the_wire_says() -> None:
    """The play, on a real relay, gives the very messages of the page."""
    done = play()
    for _ in range(2):  # on a busy machine an extension may be written after the reschedule: one more problem
        done = play() if done.returncode else done
    assert done.returncode == 0, done.stdout + done.stderr


def play() -> subprocess.CompletedProcess[str]:
    """The play, held against the page."""
    return subprocess.run(
        [sys.executable, "-m", "tools.transcript", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


OPENED = '<!-- transcript: a -->\n```text\n→ {"token": "AAAAAAAAAAAAAAAAAAAAAAAA", "attempt": 1}\n```\n'
LATER = """<!-- transcript: b -->
```text
← {
  "at": "2026-11-21T15:04:21.6Z", "tokens": ["AAAAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBBBB"]
}
```
"""


FIRST, SECOND = "C" * 24, "/+" + "D" * 22


@pytest.mark.parametrize(
    ("arrow", "fields", "same"),
    [
        ("←", {"at": "2031-01-01T00:00:00Z", "tokens": [FIRST, SECOND]}, True),
        ("←", {"at": "2031-01-01T00:00:00Z", "tokens": [SECOND, FIRST]}, False),
        ("←", {"tokens": [FIRST, SECOND]}, False),
        ("→", {"at": "2031-01-01T00:00:00Z", "tokens": [FIRST, SECOND]}, False),
    ],
    ids=["other values", "another token again", "a field less", "the other side"],
)
def test_only_values_of_a_run_may_differ(arrow: str, fields: dict[str, object], same: bool) -> None:
    """Times, tokens and layout may; who says what, which fields, and which token comes again may not."""
    from tools.transcript import differences

    first = f'→ {{"token": "{FIRST}", "attempt": 1}}'
    run = {"a": [first], "b": [f"{arrow} {json.dumps(fields)}"]}
    assert (differences(OPENED + LATER, run) == []) is same
    assert differences(OPENED, run), "a part that the page lacks"
    assert differences(OPENED + LATER, {"a": run["a"]}), "a part that is not recorded"


def test_by_hand(stage: Stage) -> None:
    """The lines with buf, as they stand."""
    buf = Path(sys.executable).parent / "buf"
    target = stage.relay().target
    lines = [
        line.removeprefix("$ ")
        for block in pages.run_by(__file__)
        if block.language == "console"
        for line in block.text.splitlines()
    ]
    said = [
        subprocess.run(
            ["sh", "-c", line.replace(BUF, shlex.quote(str(buf))).replace("127.0.0.1:7451", target)],
            cwd=stage.directory,
            env={**os.environ, "HOME": str(stage.directory)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for line in lines
    ]
    assert all(f"{BUF} curl" in line for line in lines)
    methods, scheduled, got, delivered = said
    assert "relay.v1.DeliveryService/Deliver" in methods
    assert '"TIMER_STATE_PENDING"' in scheduled
    assert '"payload": "NDI="' in got
    assert '"opened"' in delivered
    assert '"token"' in delivered
    assert stage.left("invoices")[0] == 1
