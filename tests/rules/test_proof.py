"""The short forms of the proofs: a few thousand instants. The long form is `make prove-rules`."""

from __future__ import annotations

import pytest

from relay.rules.zones import find_zone, offset_at
from tests.rules import proof, rrule_proof
from tests.rules.oracle import clock, zone_names

pytestmark = pytest.mark.slow


def test_cron_against_the_judge_and_the_references() -> None:
    counts = proof.prove(1, 10_000, share=0.1)
    assert min(counts["cases"] // 10, counts["shifted"], counts["left out in gaps"]) > 30
    strange = [name for name in counts if "elsewhere" in name or name.endswith(": not as known")]
    assert strange == []
    assert all(counts[f"{name}: instants"] > 100 for name in proof.REFERENCES)


@pytest.mark.parametrize("seed", [1, 2])
def test_rrules_against_the_judge_and_dateutil(seed: int) -> None:
    counts = rrule_proof.prove(seed, 2_000)
    assert counts["RRULE: wall times held to dateutil"] > 1_000


def test_all_turns_of_all_zones_are_read_alike() -> None:
    """tzdata by `zoneinfo`, and by the judge's own reader."""
    turns = 0
    for name in zone_names():
        zone, read = find_zone(name), clock(name)
        for turn, before, after in read.turned(proof.FIRST, proof.LAST):
            assert zone is not None
            assert (offset_at(zone, turn - 1), offset_at(zone, turn)) == (before, after), name
            assert abs(after - before) <= 86_400, "see _REACH in relay/rules/walls.py"
            turns += 1
    assert turns > 20_000
