"""The short form: some thousand damaged inputs for each parser, the same at every run."""

from __future__ import annotations

import time

import pytest

from tests.hostile.mutation import damaged
from tests.hostile.targets import TARGETS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_takes_or_refuses(name: str) -> None:
    """Only errors that are documented, in a time that is bounded, with words that are fit for who sent it."""
    target = TARGETS[name]
    taken = refused = 0
    for number, data in enumerate(damaged(name, target.valid, target.words, target.inputs)):
        began = time.process_time()
        try:
            good = target.meet(data)
        except Exception as fault:
            raise AssertionError(f"{name}, input {number}: {data[:1_000]!r}") from fault
        took = time.process_time() - began
        assert took <= target.seconds, f"{name}, input {number} took {took:.1f} s: {data[:500]!r}"
        assert good or number >= len(target.valid), f"{name} refuses the valid input {data!r}"
        taken, refused = taken + good, refused + (not good)
    assert taken
    assert refused or not target.refuses
