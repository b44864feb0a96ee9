"""What all searches of the folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis.internal.conjecture.providers import CONSTANTS_CACHE, HypothesisProvider
from hypothesis.internal.constants_ast import Constants


@pytest.fixture(autouse=True)
def _same_search_everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hypothesis draws some values from the constants of all modules that are loaded by then. What else a
    worker ran before, or a line changed anywhere, would make it another search, and a find mere luck."""
    monkeypatch.setattr(HypothesisProvider, "_local_constants", Constants())
    CONSTANTS_CACHE.cache.clear()
    yield
    CONSTANTS_CACHE.cache.clear()
