"""The scripts of `lua/bulk`. What four of them take by columns goes behind these arguments: see
`relay.store.bulk.columns_call`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from relay.core.timers import REPLACE, OnConflict
from relay.store.codec.cold_counts import DAYS
from relay.store.server.scripts import Call
from relay.store.verbs.terms import KEEPS, Words, flag


def replace(topic: str, expires: str) -> Call[int]:
    """The reply: how many timers were stored."""
    return Call("bulk/replace", topic, (expires,), hints=True)


def insert(
    topic: str, run: str, kept: int, expires: str, on_conflict: OnConflict = REPLACE
) -> Call[Sequence[int]]:
    """The reply: how many were inserted, were in the ledger, and were alive and spared. `kept` in seconds."""
    args = (kept, KEEPS.get(on_conflict, ""), expires)
    return Call("bulk/insert", topic, args, hints=True, run=run)


def apply(
    topic: str,
    run: str,
    kept: int,
    batch: int | None,
    ops: str,
    expires: str,
    remember: int = 0,
    versions: str = "",
    moves: str = "",
) -> Call[Sequence[int | bytes]]:
    """The reply: a word; and how many were scheduled, cancelled, moved, in the ledger, and late, or a newer
    batch. `kept` in seconds, `remember` in microseconds."""
    args = (kept, "" if batch is None else batch, ops, remember, versions, moves, expires)
    return Call("bulk/apply", topic, args, hints=True, run=run)


def guarded_load(
    topic: str, epoch: str, plan: str, batch: str, versions: str, expires: str
) -> Call[Sequence[int | bytes]]:
    """The reply: a word; and how many were inserted, were alive, had been touched."""
    return Call("bulk/guarded_load", topic, (epoch, plan, batch, versions, expires), hints=True)


def retire(
    topic: str, version: str, token: str, timer_ids: Sequence[str | bytes]
) -> Call[Sequence[int | bytes]]:
    """The reply: a word; and how many lived."""
    return Call("bulk/retire", topic, (version, token, *timer_ids))


def open_marks(
    topic: str,
    plan: str,
    driver: str,
    *,
    lock: int,
    ttl: int,
    epoch: str,
    store: str,
    place: str,
    take_over: bool,
) -> Call[Words]:
    """The reply: a word, and whose they are. `lock` in microseconds, `ttl` in milliseconds."""
    args = ("open", plan, driver, lock, ttl, epoch, store, place, flag(take_over))
    return Call("bulk/marks", topic, args)


def keep_marks(topic: str, plan: str, driver: str, *, lock: int, ttl: int) -> Call[Words]:
    """The reply: whether they are this driver's."""
    return Call("bulk/marks", topic, ("keep", plan, driver, lock, ttl))


def close_marks(topic: str, plan: str, driver: str) -> Call[Words]:
    """The reply: whether they were this driver's."""
    return Call("bulk/marks", topic, ("close", plan, driver))


def tell_cold(topic: str, word: Literal["counts", "takes"], store: str, plan: int, text: str) -> Call[Words]:
    """The reply: whether it was written. `text` is in the form of `relay.store.codec.cold_counts`."""
    return Call("bulk/cold", topic, (word, store, plan, text, DAYS * 86_400))


def pace(lasts: int) -> Call[bytes]:
    """The reply: how many microseconds to wait. It is about no topic."""
    return Call("bulk/pace", "", (lasts,))
