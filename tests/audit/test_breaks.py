"""Each promise is refuted by a history that breaks it, and proved by its legal twin."""

from __future__ import annotations

import pytest

from relay.core.audit import PromiseVerdict
from tests.audit import cases, cases_at_odds
from tests.audit.forge import audited, refuted, unsaid

CASES = {**cases.CASES, **cases_at_odds.CASES}


@pytest.mark.parametrize("name", CASES)
def test_break(name: str) -> None:
    """Refuted where nobody else may have done it, with an example; never proved elsewhere, either."""
    case = CASES[name]
    report = audited(case.broken().batches)
    assert case.promises <= refuted(report)
    for promise in case.promises:
        judgement = report.of(promise)
        assert judgement.refuted >= 1
        assert judgement.examples[0].timer_id == "t"
        assert judgement.examples[0].entries


@pytest.mark.parametrize("name", CASES)
def test_legal_twin(name: str) -> None:
    """Proved, whoever may write to the topic."""
    forge = CASES[name].legal()
    for exclusive in (True, False):
        report = audited(forge.batches, exclusive=exclusive)
        assert report.verdict is PromiseVerdict.PROVED, [
            (each.promise.title, each.examples, each.doubts) for each in report.judgements
        ]


FOREIGN = {
    "stored anew as if it had not been there",
    "removed for want of its payload",
    "removed by nobody known",
    "redriven over a living one",
    "its payload was left",
    "claimed as if it had been due sooner",
    "promoted as if it had been due sooner",
    "a lease from nowhere",
}
"""What a foreign writer, or a start in the middle, explains: then it can't be said."""

TOLD = {
    "delivered at the old due time",
    "delivered after it was cancelled",
    "adopted, and nobody is there",
    "promoted with another due time",
}
"""What only a foreign writer can have done, and may: no promise of ours."""


@pytest.mark.parametrize("name", CASES)
def test_break_where_others_write(name: str) -> None:
    """In a topic that foreign writers may share, what they can have done is not held against Relay."""
    report = audited(CASES[name].broken().batches, exclusive=False)
    if name in FOREIGN:
        assert not refuted(report)
        assert unsaid(report)
    elif name in TOLD:
        assert report.verdict is PromiseVerdict.PROVED
        assert report.counts.keys() & {"moved", "found", "adopted"}
    else:
        assert CASES[name].promises <= refuted(report)
