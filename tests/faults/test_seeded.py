"""The bugs that the judge has to find stand where they are looked for, and one of them is found."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest

from chaos.judging.verdict import Verdict
from chaos.rows import row
from chaos.seeded import BUGS, SeededBug, look_for
from tests.worlds.relay.processes import ROOT


def test_there_are_twenty_of_all_kinds() -> None:
    assert len(BUGS) == 20
    assert max(Counter(bug.name for bug in BUGS).values()) == 1
    shown = {bug.shows for bug in BUGS}
    assert shown <= {field.name for field in fields(Verdict)}
    assert {"lost", "early", "undone", "uncounted", "twice", "instants_lost", "instants_double"} <= shown


@pytest.mark.checkout
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_its_text_stands_in_the_code(bug: SeededBug) -> None:
    """Once, where it is looked for; and what it becomes is Python still."""
    assert row(bug.row).name == bug.row
    for change in bug.changes:
        made = change.made_in(ROOT)
        if change.file.endswith(".py"):
            compile(made, change.file, "exec")


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_one_is_found() -> None:
    """The cheapest of them, with few timers: what the harness plays is the code that it was given."""
    told = look_for(BUGS[0], 29, timers=60)
    assert told["found"] > 0
