"""The bugs that the judge has to find stand where they are looked for, and one of them is found."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest

from chaos.judging.verdict import Verdict
from chaos.rows import row
from chaos.seeded import BUGS, SeededBug, look_for, shown
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


@pytest.mark.parametrize("shows", ["lost", "undone"])
def test_no_loss_is_an_excuse_where_nothing_may_be_lost(shows: str) -> None:
    """A bug by which an OK says too much shows in what servers lose, and there the ledgers explain it."""
    verdict = {shows: 1, f"{shows}_explained": 4}
    assert shown(verdict, shows, may_lose=False) == 5
    assert shown(verdict, shows, may_lose=True) == 1


def test_a_receipt_that_was_lost_is_an_excuse() -> None:
    assert shown({"uncounted": 1, "uncounted_explained": 4}, "uncounted", may_lose=False) == 1


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_the_fault_that_it_names_is_one_of_its_row(bug: SeededBug) -> None:
    assert not bug.fault or any(bug.fault in each.name for each in row(bug.row).faults())


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_one_is_found() -> None:
    """The cheapest of them, with few timers: what the harness plays is the code that it was given."""
    told = look_for(BUGS[0], 29, timers=60)
    assert told["found"] > 0
