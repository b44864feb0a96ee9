"""What sweeps say of cold stores, as it lies in Redis; `lua/bulk/cold.lua` says which fields there are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from relay.core.instants import SECOND
from relay.core.recurring.cold_counts import ColdCounts, Span

DAYS = 7
"""Days for which Redis keeps what a sweep has said, unless one says it again. What is older counts no more:
nobody sweeps that store."""

COUNTS, TAKES = b"counts:", b"takes:"


@dataclass(frozen=True, slots=True)
class ToldCounts:
    """What a sweep has said last. `plan` is the last one behind which it has counted, `writes` tells which
    writes it has counted from others."""

    plan: int
    writes: str
    counts: ColdCounts


def counts_text(writes: str, counts: ColdCounts) -> str:
    """Write counts, without the plan's number, which the script puts before them. Times are in seconds, of a
    span its first one and its length."""
    spans = [(each.start // SECOND, (each.end - each.start) // SECOND, each.timers) for each in counts.spans]
    return json.dumps({"at": counts.counted, "writes": writes, "spans": spans}, separators=(",", ":"))


def read_counts(text: bytes) -> ToldCounts | None:
    """Read what `counts_text` has written, with the number; None for what another version has written."""
    number, _, said = text.partition(b" ")
    try:
        found = json.loads(said)
        spans = [
            Span(start * SECOND, (start + length) * SECOND, timers)
            for start, length, timers in found["spans"]
        ]
        return ToldCounts(int(number), str(found["writes"]), ColdCounts(int(found["at"]), tuple(spans)))
    except (ValueError, TypeError, LookupError, OverflowError):
        return None


def counts_of(fields: Mapping[bytes, bytes], now: int | None) -> list[ColdCounts]:
    """Read what each cold store has of a topic, without what a sweep takes that has not counted
    again since. Counts are too old by `now` (microseconds); without it, by the newest ones of any store: the
    key ends with those."""
    read = {name: read_counts(text) for name, text in fields.items() if name.startswith(COUNTS)}
    all_told = {name: told for name, told in read.items() if told is not None}
    if now is None:
        now = max((told.counts.counted for told in all_told.values()), default=0)
    found: list[ColdCounts] = []
    for name, told in all_told.items():
        if told.counts.counted < now - DAYS * 86_400 * SECOND:
            continue
        plan, until = _read_take(fields.get(TAKES + name.removeprefix(COUNTS), b""))
        found.append(told.counts.without(until) if plan > told.plan else told.counts)
    return found


def _read_take(text: bytes) -> tuple[int, int]:
    """The plan that takes, and until when; none for what another version has written."""
    plan, _, until = text.partition(b" ")
    try:
        return int(plan), int(until)
    except ValueError:
        return 0, 0
