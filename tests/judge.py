"""The audit as a judge of end-to-end tests, and its own trial.

The journal is what Relay says of itself. So it is held against what others wrote down: the producer knows
what was accepted, the handlers what was delivered to them and what they came to the end of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from relay.core.audit import Audit, Promise, PromiseVerdict, Report
from relay.core.journal import JournalBatch, RecordKind
from relay.core.partitions import Layout, place_of
from relay.store.journal.entries import decode
from relay.store.keys import KeyNames
from tests.asked_for import AskedFor, ghosts

if TYPE_CHECKING:
    from redis import Redis

    from tests.worlds.relay.processes import Event

ON: Mapping[str, str] = {"RELAY_DEFAULTS__JOURNAL": "true"}
"""The setting that gives every topic of a relay a journal."""

PREFIX = f"{KeyNames().journal}:"

Handled = tuple[str, str]
"""A timer and its occurrence."""


def partitions_of(client: Redis, topic: str) -> list[str]:
    """The names of all partitions that a topic has or had; that of the topic, if it has no layout."""
    text = layout_of(client, topic)
    if not text:
        return [topic]
    keys = cast("list[bytes]", client.keys(f"{PREFIX}{topic}#*"))
    numbers = {int(key.decode().rpartition("#")[2]) for key in keys}
    count = max(len(Layout.parse(topic, text).partitions), *numbers, 0)
    return [f"{topic}#{n} {text}" for n in sorted(numbers | {*range(count)})]


def layout_of(client: Redis, topic: str) -> str:
    """The text of a topic's layout; empty if it has none."""
    key = KeyNames().key("layout", topic)
    return cast("bytes", client.get(key)).decode() if client.type(key) == b"string" else ""


def journal_of(client: Redis, topic: str) -> list[JournalBatch]:
    """All that Redis holds of a topic's journal, by the ids of the entries of all partitions."""
    found: list[tuple[tuple[int, ...], JournalBatch]] = []
    for partition in partitions_of(client, topic):
        place = place_of(partition)
        number = place.removeprefix(topic)
        key = KeyNames().key("journal", partition)
        entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", client.xrange(key))
        for name, fields in entries:
            order = tuple(map(int, name.split(b"-")))
            found.append((order, decode(f"{name.decode()}{number}", fields[b"b"])))
    return [batch for _, batch in sorted(found, key=lambda each: each[0])]


def topics_with_a_journal(client: Redis) -> list[str]:
    keys = cast("list[bytes]", client.keys(f"{PREFIX}*"))
    return sorted({key.decode().removeprefix(PREFIX).partition("#")[0] for key in keys})


def stands(client: Redis, topic: str, timer_id: str) -> tuple[bool, bool]:
    """Whether Redis has a timer, in any partition or on its way between two, and a record of it.

    An id that is not UTF-8 has surrogate escapes, as in a journal's records.
    """
    name = timer_id.encode(errors="surrogateescape")
    there = recorded = False
    for partition in partitions_of(client, topic):
        key = partial(KeyNames().key, topic=partition)
        there = there or client.zscore(key("timeline"), name) is not None
        there = there or bool(client.hexists(key("move"), b"t" + name))
        recorded = recorded or bool(client.hexists(key("leases"), name))
    return there, recorded


def report_of(
    client: Redis, topic: str, *, exclusive: bool = False, at_rest: bool = False
) -> tuple[list[JournalBatch], Report]:
    """What `relay audit` would say of the topic. Redis is asked between two readings, as there."""
    audit = Audit(exclusive=exclusive)
    batches = journal_of(client, topic)
    for batch in batches:
        audit.add(batch)
    names = list(audit.unreconciled())
    audit.reconcile(names, [stands(client, topic, name) for name in names])
    seen = {batch.entry for batch in batches}
    more = [batch for batch in journal_of(client, topic) if batch.entry not in seen]
    for batch in more:
        audit.add(batch)
    return batches + more, audit.report(at_rest=at_rest, reconciled=True)


def told(report: Report) -> str:
    """What speaks against the promises, for a test that fails."""
    lines = [
        f"{each.promise.title}: {each.verdict.value}, {each.refuted} broken, {dict(each.doubts)}, "
        + "; ".join(f"{one.timer_id} {one.what} ({', '.join(one.entries)})" for one in each.examples)
        for each in report.judgements
        if each.verdict is not PromiseVerdict.PROVED
    ]
    return "\n".join([*lines, *(str(gap) for gap in report.gaps)])


def not_refuted(client: Redis, topic: str) -> Report:
    """Whatever the test did, and whoever else wrote: no promise is refuted."""
    _, report = report_of(client, topic)
    refuted = [each for each in report.judgements if each.verdict is PromiseVerdict.REFUTED]
    assert not refuted, f"the audit of {topic}: {told(report)}"
    return report


def judged(
    client: Redis,
    topic: str,
    events: Sequence[Event],
    *,
    accepted: Collection[str] = (),
    exclusive: bool = True,
    at_rest: bool = True,
    doubted: Collection[Promise] = (),
    asked: Sequence[AskedFor] = (),
) -> Report:
    """All promises are proved but for those `doubted`, which must not be refuted, and the journal agrees with
    what the producer (`accepted`: the timers that were answered OK) and the handlers wrote down. Nothing has
    happened to the timers of `asked` but what their callers asked for at that moment."""
    batches, report = report_of(client, topic, exclusive=exclusive, at_rest=at_rest)
    for each in report.judgements:
        allowed = (
            {PromiseVerdict.PROVED, PromiseVerdict.UNSAID}
            if each.promise in doubted
            else {PromiseVerdict.PROVED}
        )
        assert each.verdict in allowed, f"the audit of {topic}: {told(report)}"
    Trial(batches).agrees(accepted, [event for event in events if event.topic == topic])
    late = ghosts(asked, batches)
    assert not late, f"{len(late)} ghosts, such as: {late[0]}"
    return report


class Trial:
    """A journal by itself, read without the audit: what it says was stored, claimed and committed."""

    def __init__(self, batches: Iterable[JournalBatch]) -> None:
        self.stored: Counter[str] = Counter()
        self.claimed: Counter[tuple[str, str, int]] = Counter()
        self.committed: Counter[Handled] = Counter()
        occurrences: dict[tuple[str, bytes], str] = {}
        for batch in batches:
            for record in batch.records:
                if record.kind in (RecordKind.SCHEDULED, RecordKind.REPLACED):
                    self.stored[record.timer_id] += 1
                elif record.kind is RecordKind.CLAIMED:
                    occurrence = f"{record.timer_id}/{record.occurrence.hex()}"
                    occurrences[record.timer_id, record.nonce] = occurrence
                    self.claimed[record.timer_id, occurrence, record.attempts + 1] += 1
                elif record.kind is RecordKind.ACKED:
                    self.committed[record.timer_id, occurrences[record.timer_id, record.nonce]] += 1

    def agrees(self, accepted: Collection[str], events: Iterable[Event]) -> None:
        """With the producer's ledger and the handlers'. A handler of a foreign worker has no attempt."""
        missing = set(accepted) - self.stored.keys()
        assert not missing, f"accepted, and not in the journal: {sorted(missing)[:10]}"
        own = [event for event in events if event.attempt]
        starts = Counter((e.timer_id, e.occurrence, e.attempt) for e in own if e.event == "start")
        unclaimed = starts - self.claimed
        assert not unclaimed, f"handled more often than the journal has claims: {_few(unclaimed)}"
        ends = Counter((e.timer_id, e.occurrence) for e in own if e.event == "end")
        unhandled = self.committed - ends
        assert not unhandled, f"committed, and no handler came to its end: {_few(unhandled)}"
        twice = {handled: count for handled, count in self.committed.items() if count > 1}
        assert not twice, f"committed twice: {_few(twice)}"

    def committed_ids(self) -> Counter[str]:
        """How often each timer was committed, in all its occurrences."""
        found: Counter[str] = Counter()
        for (timer_id, _), count in self.committed.items():
            found[timer_id] += count
        return found


def _few(found: Mapping[Any, int]) -> dict[Any, int]:
    return dict(list(found.items())[:10])
