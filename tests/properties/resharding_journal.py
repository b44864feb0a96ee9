"""What the journals of a topic's partitions tell of its timers, held against what lies in Redis."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, cast

from relay.core.audit import Audit, PromiseVerdict
from relay.core.instants import from_score
from relay.core.journal import JournalBatch, Journals, RecordKind
from relay.store.codec import lease_record
from relay.store.journal.entries import decode
from tests.properties.resharding_redis import leases_of
from tests.properties.resharding_seam import Nodes
from tests.properties.resharding_truth import Violation

JOURNALS = Journals(lambda _: 100_000)
"""Every topic has one."""

MERGES = 3
"""Orders in which the entries of several partitions are read, beside one partition after the other."""

Standing = tuple[int, int, int, bytes]
"""When a timer is due, how many attempts and claims have counted, and the nonce of its lease."""


def replayed(nodes: Nodes, count: int, seed: int) -> set[RecordKind]:
    """Replay the journals of `count` partitions; return which kinds of records they have. Raises `Violation`
    unless they prove every promise, and tell of each timer what Redis has of it: where it is, when it is due,
    what has counted, and who holds it."""
    streams = [_stream(nodes, number) for number in range(count)]
    if not any(streams):
        return set()
    there = {number: _standing(nodes, number) for number in range(count)}
    orders = [[batch for stream in streams for batch in stream]]
    orders.append([batch for stream in reversed(streams) for batch in stream])
    orders += [_merged(Random(seed + n), streams) for n in range(MERGES)]
    for batches in orders:
        audit = Audit(exclusive=True)
        for batch in batches:
            audit.add(batch)
        ids = list(audit.unreconciled())
        living = {name: bool(claims) for part in there.values() for name, (_, _, claims, _) in part.items()}
        audit.reconcile(ids, [(name in living, living.get(name, False)) for name in ids])
        report = audit.report(reconciled=True)
        if report.verdict is not PromiseVerdict.PROVED:
            told = [(each.promise.title, each.doubts, each.examples) for each in report.judgements]
            raise Violation(f"the journals don't prove it: {told}")
        if (found := _told(audit)) != (wanted := {n: part for n, part in there.items() if part}):
            raise Violation(f"the journals tell of {found}, and there is {wanted}")
    return {record.kind for stream in streams for batch in stream for record in batch.records}


def _stream(nodes: Nodes, number: int) -> list[JournalBatch]:
    """A partition's whole journal."""
    entries = cast("Any", nodes.of(number).xrange(nodes.key("journal", number)))
    return [decode(f"{name.decode()}#{number}", fields[b"b"]) for name, fields in entries]


def _merged(chance: Random, streams: Sequence[list[JournalBatch]]) -> list[JournalBatch]:
    """Each stream in its order, and all together in any."""
    rest, found = [list(stream) for stream in streams], []
    while any(rest):
        found.append(chance.choice([stream for stream in rest if stream]).pop(0))
    return found


def _told(audit: Audit) -> dict[int, dict[str, Standing]]:
    """What the journals know, by partition."""
    found: dict[int, dict[str, Standing]] = {}
    for timer_id, timer, on_way, place in audit._rules.remaining():
        if on_way is not None:
            raise Violation(f"the journals say that {timer_id} is on its way: {on_way}")
        nonce = timer.live_lease.nonce if timer.live_lease else b""
        standing = timer.due or 0, timer.attempts or 0, timer.claims or 0, nonce
        found.setdefault(place.number, {})[timer_id] = standing
    return found


def _standing(nodes: Nodes, number: int) -> dict[str, Standing]:
    """What Redis has."""
    client, found = nodes.of(number), {}
    timeline = cast("Any", client.zrange(nodes.key("timeline", number), 0, -1, withscores=True))
    for name, score in timeline:
        raw = cast("bytes", client.hget(leases_of(nodes, number), name)) or b""
        record = lease_record.read(raw) if raw else None
        if record is None:
            found[name.decode()] = (from_score(score), 0, 0, b"")
        else:
            nonce = record.nonce if record.state == lease_record.LEASED else b""
            found[name.decode()] = (from_score(record.due), record.attempts, record.claims, nonce)
    return found
