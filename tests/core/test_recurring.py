"""The names of occurrences: what `occurrence_name` writes, `relay.core.partitions` reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from relay.core.instants import LATEST
from relay.core.partitions import hashed, partition_number
from relay.core.recurring.rule import occurrence_name

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
IDS = st.text(min_size=1, max_size=40) | st.sampled_from(
    ["a@b", "@", "x@2026-11-24T08:00:00Z", "~2", "n@Z~3"]
)
INSTANTS = st.integers(0, LATEST) | st.integers(0, LATEST // 1_000_000).map(lambda second: second * 1_000_000)
RUNS = st.integers(1, 10**6)


def read(name: str) -> tuple[str, int, int]:
    """The name taken apart, by other means than it was made."""
    recurrence_id, _, rest = name.rpartition("@")
    when, _, run = rest.partition("~")
    since = datetime.fromisoformat(when) - EPOCH
    return recurrence_id, since // timedelta(microseconds=1), int(run or "1")


def test_names() -> None:
    assert occurrence_name("nightly", 1_795_507_200_000_000) == "nightly@2026-11-24T08:00:00Z"
    assert occurrence_name("nightly", 1_795_507_200_000_000, 2) == "nightly@2026-11-24T08:00:00Z~2"
    assert occurrence_name("nightly", 1_795_507_200_000_001) == "nightly@2026-11-24T08:00:00.000001Z"
    assert occurrence_name("n", 0) == "n@1970-01-01T00:00:00Z"


@given(IDS, INSTANTS, RUNS)
def test_an_occurrence_is_in_the_partition_of_its_recurrence(
    recurrence_id: str, nominal: int, run: int
) -> None:
    name = occurrence_name(recurrence_id, nominal, run)
    assert hashed(name) == recurrence_id
    assert partition_number(name, 1024) == partition_number(f"{recurrence_id}@2026-11-24T08:00:00Z", 1024)


@given(IDS, INSTANTS, RUNS)
def test_a_name_says_all_that_it_was_made_of(recurrence_id: str, nominal: int, run: int) -> None:
    assert read(occurrence_name(recurrence_id, nominal, run)) == (recurrence_id, nominal, run)
