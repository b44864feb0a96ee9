"""A load's run in Redis: `lua/bulk/insert.lua` inserts each timer once and keeps the run's ledger.

The script's header says what it promises, and which races it closes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from relay.core.instants import from_score
from relay.core.life import stands
from relay.core.partitions import MAX_PARTITIONS, Layout, layout_of, partition_numbers
from relay.core.timers import REPLACE, OnConflict
from relay.store.bulk.columns_call import Elsewhere, PackedRows
from relay.store.bulk.store import BATCH, BulkStore
from relay.store.codec.lease_record import due_of
from relay.store.server.scripts import Argument
from relay.store.verbs import bulk

KEPT = 7 * 86_400
"""Seconds for which a ledger is kept after the last batch of its run."""

LONGEST = 64
"""The most bytes of an id that a ledger holds unchanged."""

TOLD = b"\1"
"""Stands in the ledger before a timer of which the cold store was told. No id has control characters."""

COUNT = b"\2"
"""Stands in the first partition's ledger before a number of partitions by which the run has worked."""

COUNTS = tuple(1 << n for n in range(MAX_PARTITIONS.bit_length()))
_MARKERS = tuple(b"%b%d" % (COUNT, count) for count in COUNTS)


class Inserted(NamedTuple):
    """The numbers of a run's timers that were inserted, were in its ledger, and existed and were spared."""

    inserted: int = 0
    known: int = 0
    alive: int = 0


class Inserting:  # see 0070
    """Inserts the timers of one run over a `BulkStore`'s connections, with `AHEAD` batches under way.

    `on_conflict` says which timer stands where one exists.
    """

    def __init__(self, store: BulkStore, run: str, *, on_conflict: OnConflict = REPLACE) -> None:
        self._store = store
        self._run = run
        self._on_conflict = on_conflict
        self.done = Inserted()
        """The counts of all batches whose replies have come."""

    def insert(self, partition: str, rows: PackedRows, elsewhere: Elsewhere | None = None) -> None:
        """Insert a batch that has each timer once. `flush` waits until it is done. `elsewhere` is that of
        `UnderWay.send`. Raises `StoreError`."""
        call = bulk.insert(partition, self._run, KEPT, rows.expires, self._on_conflict)
        self._store.send(call, rows, self._count, elsewhere)

    def flush(self) -> None:
        """Wait for all that is under way. Raises `StoreError`."""
        self._store.flush()

    def _count(self, answer: Any) -> None:
        self.done = Inserted(*(mine + theirs for mine, theirs in zip(self.done, answer, strict=True)))


class RunLedger:
    """What a run has decided on, as it stands in the ledgers of topics' partitions.

    A timer that moves to another partition leaves its entry behind. So each number of partitions by which a
    run has worked is noted in the first partition's ledger before its first batch, and a timer is looked for
    wherever it would be by any of them. What is read elsewhere stays true: partitions that a move has emptied
    take no batches of the layout before it.

    Reads wait for what is under way. They raise `StoreError`, and `InvalidField` for a topic that moves.
    """

    def __init__(self, store: BulkStore, run: str) -> None:
        self._store = store
        self._run = run
        self._counts: dict[Layout, tuple[int, ...]] = {}

    def decided_elsewhere(self, partition: str, ids_of: Callable[[], Sequence[bytes]]) -> list[bool] | None:
        """Whether the run has decided on each of a partition's timers by another number of partitions; None
        if it never worked by another one, and then nobody is asked for the ids. From now on it has worked by
        this one."""
        layout = layout_of(partition)
        counts = self._before(layout, note=True)
        if not counts:
            return None
        self._store.flush()
        own, timer_ids = self._key(partition), ids_of()
        homes = {key: some for key, some in self._homes(layout, counts, timer_ids).items() if key != own}
        # What is still asked for is kept, too.
        self._store.server.ask_each([("EXPIRE", key, KEPT) for key in homes])
        return self._has(homes, timer_ids, ledger_name)

    def foreseen(
        self, topic: str, timer_ids: Sequence[bytes], due: Sequence[int], *, on_conflict: OnConflict
    ) -> Inserted:
        """What `Inserting` would make of these timers now, by reads alone; `due` in microseconds."""
        layout = self._layout(topic)
        decided = self._decided(layout, timer_ids, ledger_name)
        alive = 0
        if on_conflict is not REPLACE:
            living = self._living(layout, timer_ids)
            alive = sum(not decided[n] and stands(on_conflict, there, due[n]) for n, there in living.items())
        known = sum(decided)
        return Inserted(len(timer_ids) - known - alive, known, alive)

    def _living(self, layout: Layout, timer_ids: Sequence[bytes]) -> dict[int, int]:
        """The due times of those that exist, by their places."""
        commands: list[Sequence[Argument]] = []
        places: list[Sequence[int]] = []
        for number, some in by_number(layout.count, timer_ids).items():
            keys, partition = self._store.server.keys, layout.partitions[number]
            for part in parts_of(some):
                names = [timer_ids[n] for n in part]
                commands.append(("ZMSCORE", keys.key("timeline", partition), *names))
                commands.append(("HMGET", keys.key("leases", partition), *names))
                places.append(part)
        replies = iter(self._store.server.ask_each(commands))
        found: dict[int, int] = {}
        for part, scores, records in zip(places, replies, replies, strict=True):
            for n, score, record in zip(part, scores, records, strict=True):
                if score is not None:
                    due = due_of(record) if record else None
                    found[n] = from_score(float(score)) if due is None else due
        return found

    def is_told(self, topic: str, timer_ids: Sequence[bytes]) -> list[bool]:
        """Return for each timer whether this run has told the cold store of it."""
        return self._decided(self._layout(topic), timer_ids, lambda each: TOLD + ledger_name(each))

    def note_told(self, topic: str, timer_ids: Sequence[bytes]) -> None:
        """This run has stored these timers in the cold store, or superseded what rested there of them: it
        neither does so again nor inserts them."""
        layout = self._layout(topic)
        self._before(layout, note=True)
        commands: list[Sequence[Argument]] = []
        for number, some in by_number(layout.count, timer_ids).items():
            key = self._key(layout.partitions[number])
            for part in parts_of(some):
                names = [ledger_name(timer_ids[n]) for n in part]
                commands += ("SADD", key, *names, *(TOLD + each for each in names)), ("EXPIRE", key, KEPT)
        self._store.server.ask_each(commands)

    # ------------------------------------------------------------------------ where entries stand

    def _layout(self, topic: str) -> Layout:
        self._store.flush()
        return self._store.at_rest(topic)

    def _key(self, partition: str) -> str:
        return self._store.server.keys.key("ledger", partition, run=self._run)

    def _counts_key(self, partition: str) -> str:
        """Where the numbers of partitions are noted; `partition` is the first."""
        return self._key(partition)

    def _before(self, layout: Layout, *, note: bool = False) -> tuple[int, ...]:
        """The numbers of partitions by which the run has worked, without that of `layout`, which is noted if
        `note`. A topic without a layout had no other."""
        if layout in self._counts or not layout.epoch:
            return self._counts.get(layout, ())
        key = self._counts_key(layout.partitions[0])
        look: tuple[Argument, ...] = ("SMISMEMBER", key, *_MARKERS)
        commands: list[Sequence[Argument]] = [("TYPE", self._key(layout.partitions[0])), look]
        if note:
            marker = _MARKERS[COUNTS.index(layout.count)]
            commands += [("SADD", key, marker), ("EXPIRE", key, KEPT), look]
        self._store.flush()
        kind, before, *noted = self._store.server.ask_each(commands)
        now = noted[-1] if note else before
        found = {count for count, is_noted in zip(COUNTS, now, strict=True) if is_noted}
        if kind in (b"set", b"hash") and not any(before):  # it is of a topic that had no layout
            found.add(1)
            if note:
                self._store.server.ask("SADD", key, _MARKERS[0])
        counts = tuple(sorted(found - {layout.count}))
        if note:
            self._counts[layout] = counts
        return counts

    def _homes(
        self, layout: Layout, counts: Iterable[int], timer_ids: Sequence[bytes]
    ) -> dict[str, Sequence[int]]:
        """The ledgers in which the timers' entries stand by these numbers of partitions, each with the places
        of its timers."""
        homes: dict[str, dict[int, None]] = {}
        for count in counts:
            names = Layout(layout.topic, layout.epoch, count).partitions
            for number, some in by_number(count, timer_ids).items():
                homes.setdefault(self._key(names[number]), {}).update(dict.fromkeys(some))
        return {key: list(some) for key, some in homes.items()}

    def _decided(
        self, layout: Layout, timer_ids: Sequence[bytes], name: Callable[[bytes], bytes]
    ) -> list[bool]:
        counts = (layout.count, *self._before(layout))
        return self._has(self._homes(layout, counts, timer_ids), timer_ids, name)

    def _has(
        self,
        homes: Mapping[str, Sequence[int]],
        timer_ids: Sequence[bytes],
        name: Callable[[bytes], bytes],
    ) -> list[bool]:
        """Whether any of its ledgers has each timer under this name."""
        found = [False] * len(timer_ids)
        asked = [(key, part) for key, some in homes.items() for part in parts_of(some)]
        commands = [self._look(key, [name(timer_ids[n]) for n in part]) for key, part in asked]
        for (_, part), told in zip(asked, self._store.server.ask_each(commands), strict=True):
            for n, is_there in zip(part, self._told(told), strict=True):
                found[n] = found[n] or is_there
        return found

    def _look(self, key: str, names: Sequence[bytes]) -> Sequence[Argument]:
        """The command that asks a ledger for these entries."""
        return ("SMISMEMBER", key, *names)

    def _told(self, reply: Sequence[Any]) -> Sequence[bool]:
        """Which of them its reply says to be there."""
        return [bool(each) for each in reply]


def by_number(count: int, timer_ids: Sequence[bytes]) -> dict[int, Sequence[int]]:
    """The places of timers by the number of their partition."""
    if count == 1:
        return {0: range(len(timer_ids))}
    groups: dict[int, list[int]] = {}
    for place, number in enumerate(partition_numbers(timer_ids, count)):
        groups.setdefault(number, []).append(place)
    return dict(groups)


def parts_of(places: Sequence[int]) -> Iterable[Sequence[int]]:
    return (places[start : start + BATCH] for start in range(0, len(places), BATCH))


def ledger_name(timer_id: bytes) -> bytes:
    """What a ledger has for a timer, as `lua/bulk/insert.lua` writes it."""
    if len(timer_id) <= LONGEST:
        return timer_id
    return b"\0" + hashlib.sha1(timer_id, usedforsecurity=False).hexdigest().encode()
