"""The page about orchestrators: what it shows stands in the examples, which the tests beside this one run."""

from __future__ import annotations

import pytest

from tests.docs import pages
from tests.docs.pages import ROOT

pytestmark = pytest.mark.checkout

OURS = pages.run_by(__file__)


def test_the_page_shows_the_examples() -> None:
    files = [*ROOT.glob("examples/airflow/*.py"), *ROOT.glob("examples/dagster/*.py")]
    texts = [file.read_text(encoding="utf-8") for file in files]
    assert len(OURS) == 2
    assert [block.place for block in OURS if not any(block.text in text for text in texts)] == []
