"""Journals for the pipeline's tests: histories of the store in memory, put into a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from random import Random
from typing import TYPE_CHECKING

from relay.core.journal import JournalBatch
from relay.store.keys import KeyNames
from tests.audit.files import encoded
from tests.audit.test_histories import in_memory

if TYPE_CHECKING:
    from tests.servers import RunningServer


@cache
def history(seed: int, *, finish: bool = True) -> tuple[JournalBatch, ...]:
    """Random, legal, with ids of its own (`a.7` for seed 7), and entries in the stream's order."""
    batches = asyncio.run(in_memory(Random(seed), finish=finish))
    return tuple(
        replace(
            batch,
            entry=f"{1_767_225_600_000 + n}-{seed}",
            records=tuple(
                record._replace(timer_id=record.timer_id and f"{record.timer_id}.{seed}")
                for record in batch.records
            ),
        )
        for n, batch in enumerate(batches)
    )


def long_history(seeds: Iterable[int], *, finish: bool = True) -> list[JournalBatch]:
    """Several of them, one after the other, as one journal."""
    made: list[JournalBatch] = []
    for seed in seeds:
        for batch in history(seed, finish=finish):
            first = made[-1].last + 1 if made else 1
            entry = f"{1_767_225_600_000 + len(made)}-0"
            made.append(replace(batch, entry=entry, first=first, last=first + len(batch.records) - 1))
    return made


def put(server: RunningServer, topic: str, batches: Iterable[JournalBatch]) -> None:
    """As Relay's scripts would have written them."""
    key = KeyNames().of(topic)[-1]
    with server.client() as client, client.pipeline(transaction=False) as calls:
        for batch in batches:
            calls.execute_command("XADD", key, batch.entry, "b", encoded(batch))
        calls.execute()


def count(batches: Iterable[JournalBatch]) -> int:
    """Changes."""
    return sum(len(batch.records) for batch in batches)
