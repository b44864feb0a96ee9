"""Which partition has a timer: a rule that other languages follow, too, so it never changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relay.core.partitions import MAX_PARTITIONS, Layout, hashed, is_count, partition_number, topic_of

VECTORS = json.loads((Path(__file__).parent / "partitions.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["timer_id"])
def test_published_vectors(vector: dict[str, Any]) -> None:
    timer_id = vector["timer_id"]
    assert hashed(timer_id) == vector["counts"]
    assert partition_number(timer_id, 8) == vector["of_8"] == vector["crc32"] % 8
    assert partition_number(timer_id, MAX_PARTITIONS) == vector["of_1024"] == vector["crc32"] % 1024


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
    assert layout.partitions == ("orders#0", "orders#1", "orders#2", "orders#3")
    assert layout.partition("a") == "orders#3"
    assert {topic_of(name) for name in layout.partitions} == {"orders"} == {topic_of("orders")}


@pytest.mark.parametrize("text", ["1", "0 8", "1 3", "1 2048", "-1 8", "x", "1 8 16", "1  8"])
def test_a_text_that_is_no_layout(text: str) -> None:
    with pytest.raises(ValueError, match="is not a layout"):
        Layout.parse("orders", text)


def test_shares_never_exceed_the_whole() -> None:
    layout = Layout.parse("orders", "1 8")
    assert [layout.share(total) for total in (0, 8, 15, 16, 1000)] == [0, 1, 1, 2, 125]
    assert Layout("orders").share(7) == 7


def test_counts_are_powers_of_two() -> None:
    assert [count for count in range(-1, 2050) if is_count(count)] == [2**n for n in range(11)]


def test_ids_spread_evenly() -> None:
    """Sixteen thousand ids of a usual form over eight partitions: each has between 11 and 14 %."""
    counts = [0] * 8
    for n in range(16_000):
        counts[partition_number(f"order-{n}", 8)] += 1
    assert min(counts) > 1_760, counts
    assert max(counts) < 2_240, counts
