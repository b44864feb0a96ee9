"""Which partition has a timer: a rule that other languages follow, too, so it never changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relay.core.partitions import (
    MAX_PARTITIONS,
    Layout,
    hashed,
    is_count,
    partition_number,
    partition_numbers,
    place_of,
    topic_of,
    under,
)

VECTORS = json.loads((Path(__file__).parent / "partitions.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["timer_id"])
def test_published_vectors(vector: dict[str, Any]) -> None:
    timer_id = vector["timer_id"]
    assert hashed(timer_id) == vector["counts"]
    assert partition_number(timer_id, 8) == vector["of_8"] == vector["crc32"] % 8
    assert partition_number(timer_id, MAX_PARTITIONS) == vector["of_1024"] == vector["crc32"] % 1024


@pytest.mark.parametrize("count", [8, 1024])
def test_many_at_once(count: int) -> None:
    """What loads ask for, of ids as Redis has them: those that are not UTF-8, too."""
    ids = [*(vector["timer_id"] for vector in VECTORS), "@2026-11-24T08:00:00Z", "a@b", "\udcff@\udcff"]
    stored = [each.encode(errors="surrogateescape") for each in ids]
    assert partition_numbers(stored, count) == [partition_number(each, count) for each in ids]
    of_count = [vector[f"of_{count}"] for vector in VECTORS]
    assert partition_numbers(stored, count)[: len(VECTORS)] == of_count


def test_the_published_sum_is_zlibs() -> None:
    """By its definition, a bit at a time, and not by the library that the code uses."""
    for vector in VECTORS:
        rest = 0xFFFFFFFF
        for byte in vector["counts"].encode():
            rest ^= byte
            for _ in range(8):
                rest = rest >> 1 ^ (0xEDB88320 if rest & 1 else 0)
        assert rest ^ 0xFFFFFFFF == vector["crc32"], vector


def test_an_id_that_is_not_utf_8_has_a_partition() -> None:
    """Foreign writers are free to use any bytes; these come as half characters."""
    timer_id = b"\xff@x".decode(errors="surrogateescape")
    assert 0 <= partition_number(timer_id, 8) < 8


def test_a_topic_without_a_layout_is_its_own_partition() -> None:
    layout = Layout.parse("orders", "")
    assert layout.partitions == ("orders",)
    assert layout.partition("a") == "orders"
    assert layout == Layout("orders")


def test_a_layout_names_its_partitions() -> None:
    layout = Layout.parse("orders", "1 4")
    assert layout.partitions == tuple(f"orders#{n} 1 4" for n in range(4))
    assert layout.partition("a") == "orders#3 1 4"
    assert {topic_of(name) for name in layout.partitions} == {"orders"} == {topic_of("orders")}


@pytest.mark.parametrize("topic", ["orders", "my orders", "a 1 2", "old#1", "old#1 2", "o#1 x 3"])
def test_a_topics_own_name_says_nothing_of_partitions(topic: str) -> None:
    """Names may have spaces, and those from before there were partitions may have a `#`."""
    assert (place_of(topic), under(topic)) == (topic, "")


def test_what_a_partitions_name_says() -> None:
    layout = Layout.parse("my orders", "12 8 16")
    name = layout.partitions[11]
    assert (topic_of(name), place_of(name), under(name)) == ("my orders", "my orders#11", "11 12 8 16")
    leaving = layout.emptied[3]
    assert (topic_of(leaving), place_of(leaving)) == ("my orders", "my orders#3")
    assert (under(leaving), layout.filled(leaving)) == ("3 12 8 16 leaving", name)


@pytest.mark.parametrize(
    ("text", "emptied", "filled"),
    [("1 4", (), ()), ("2 1 2", (0,), (1,)), ("2 2 4", (0, 1), (2, 3)), ("4 4 2", (2, 3), (0, 1))],
)
def test_what_a_move_empties_and_fills(text: str, emptied: tuple[int, ...], filled: tuple[int, ...]) -> None:
    """Each id that leaves a partition has another by the new number; all others stay."""
    layout = Layout.parse("orders", text)
    assert layout.emptied == tuple(f"{layout.partitions[n]} leaving" for n in emptied)
    assert [layout.filled(name) for name in layout.emptied] == [layout.partitions[n] for n in filled]
    for timer_id in map(str, range(100)):
        name = layout.partition(timer_id)
        old, new = (partition_number(timer_id, n) for n in (layout.count, layout.towards or layout.count))
        assert name.removesuffix(" leaving") == layout.partitions[old]
        assert (name in layout.emptied) == (old != new)
        if old != new:
            assert layout.filled(name) == layout.partitions[new]


@pytest.mark.parametrize(
    "text", ["1", "0 8", "1 3", "1 2048", "-1 8", "x", "1 8 32", "1 8 8", "1 1024 2048", "2 1 0", "1  8"]
)
def test_a_text_that_is_no_layout(text: str) -> None:
    with pytest.raises(ValueError, match="is not a layout"):
        Layout.parse("orders", text)


def test_shares_never_exceed_the_whole() -> None:
    layout = Layout.parse("orders", "1 8")
    assert [layout.share(total) for total in (0, 8, 15, 16, 1000)] == [0, 1, 1, 2, 125]
    assert Layout("orders").share(7) == 7


@pytest.mark.parametrize("text", ["2 4 8", "2 8 4"])
def test_shares_while_timers_move(text: str) -> None:
    """A topic far below its bound is not full: before the move, or after it, four partitions hold all."""
    assert Layout.parse("orders", text).share(1200) == 300


def test_counts_are_powers_of_two() -> None:
    assert [count for count in range(-1, 2050) if is_count(count)] == [2**n for n in range(11)]


def test_ids_spread_evenly() -> None:
    """Sixteen thousand ids of a usual form over eight partitions: each has between 11 and 14 %."""
    counts = [0] * 8
    for n in range(16_000):
        counts[partition_number(f"order-{n}", 8)] += 1
    assert min(counts) > 1_760, counts
    assert max(counts) < 2_240, counts
