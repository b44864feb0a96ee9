"""Which keys a topic's contents are sealed with, and how they get the one that seals now.

All that lies in Redis of a topic is read: contents of timers, recurrences and dead letters. Each script call
exchanges what still is as it was read, so relays may go on beside it, and whoever is killed leaves nothing
that a further run does not finish. What rests in a cold store, or in a snapshot, does not lie in Redis.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic, sleep

from relay.core.errors import OtherLayout, StoreFull, StoreRefused
from relay.core.partitions import Layout
from relay.core.timers import Content
from relay.core.trust.sealing import SUBJECT, DoesNotOpen
from relay.store.bulk.layouts import LOOK, MOVE_WAIT, still_moves
from relay.store.bulk.store import BulkStore
from relay.store.codec import envelope, sealed
from relay.store.codec.contents import Contents
from relay.store.codec.lease_record import text_of
from relay.store.codec.recurrence_text import read_rule, sealed_in, with_sealed
from relay.store.codec.subjects import TOMBSTONE, parts_of
from relay.store.server.blocking import BlockingServer
from relay.store.server.scripts import Call
from relay.store.verbs import reseal

PAGE = 50
"""The timers, recurrences or dead letters that are read at a time: some may have a MiB."""

BATCH, BATCH_BYTES = 100, 1 << 20
"""The most that one script call exchanges."""

PASSES = 10
"""The most times that all is gone through: a dead letter that lives again brings an old content back."""

PLAIN = ""
"""In the place of a key's id: what is not sealed."""

FORGOTTEN = TOMBSTONE.decode()
"""The same: subjects that were forgotten, and have no key."""

NOBODY = ""
"""In the place of the run that copies."""

TAKEN = "another `relay seal rotate` has begun on the same topic; let one of them end"
BUSY = "contents with old keys keep coming: does every relay seal with the new key? Then run it again"


class Sealed(StrEnum):
    """What of a topic is sealed: the keys of subjects, and contents."""

    SUBJECTS = "subjects"
    TIMERS = "timers"
    RECURRENCES = "recurrences"
    DEAD_LETTERS = "dead letters"


@dataclass(slots=True)
class Rotated:
    """How many contents got the key that seals now, and those that did not, by why they don't open."""

    changed: Counter[Sealed] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)


class Resealing:  # see 0112
    """Reads and exchanges the contents of topics. The store is the caller's own."""

    def __init__(self, store: BulkStore) -> None:
        self._store = store

    def count(self, topic: str) -> dict[Sealed, Counter[str]]:
        """Count keys of subjects, and contents, by the id of their key, `PLAIN` or `FORGOTTEN`; of contents
        with subjects' keys it is `SUBJECT`. Raises `StoreError`, and `InvalidField` for a topic that moves
        for too long."""
        found: dict[Sealed, Counter[str]] = {kind: Counter() for kind in Sealed}
        for _, value in _hash(self._store.server, "subjects", topic):
            found[Sealed.SUBJECTS][FORGOTTEN if value.startswith(TOMBSTONE) else parts_of(value)[0]] += 1
        for partition in self._at_rest(topic).partitions:
            for _, stored in _hash(self._store.server, "payloads", partition):
                found[Sealed.TIMERS][_key_of(stored)] += 1
            for _, text in _hash(self._store.server, "rules", partition):
                found[Sealed.RECURRENCES][_key_of(_sealed_in(text) or b"")] += 1
            for _, letter in _entries(self._store.server, "dead", partition):
                found[Sealed.DEAD_LETTERS][_key_of(letter.get(b"envelope", b""))] += 1
        return found

    def rotate(self, topic: str, contents: Contents, writes: str) -> Rotated:
        """Seal all with the key `writes` that is sealed with another or not at all. What is sealed with a
        subject's key stays as it is: that key is sealed again. Raises as `count` does, and `StoreRefused` if
        old contents keep coming, or if somebody else does the same."""
        done = Rotated()
        for _ in range(PASSES):
            done.closed.clear()
            before = done.changed.total()
            layout = self._at_rest(topic)
            self._rewrap(topic, contents, writes, done)
            try:
                for partition in layout.partitions:
                    _Pass(self._store, partition, contents, writes, done).run()
            except OtherLayout:
                continue
            # What a move has carried from one partition to another may never have been met.
            if done.changed.total() == before and self._at_rest(topic) == layout:
                return done
        raise StoreRefused(BUSY)

    def _rewrap(self, topic: str, contents: Contents, writes: str, done: Rotated) -> None:
        """Seal the keys of subjects with the key that seals now."""
        batch: list[bytes] = []
        for name, value in _hash(self._store.server, "subjects", topic):
            if value.startswith(TOMBSTONE) or parts_of(value)[0] == writes:
                continue
            try:
                batch += (name, value, contents.rewrapped(topic, name.decode(), value))
            except DoesNotOpen as failure:
                done.closed[f"the key of a subject, {failure.why}"] += 1
            if len(batch) >= 3 * BATCH:
                done.changed[Sealed.SUBJECTS] += self._store.call(reseal.subjects(topic, batch))
                batch = []
        if batch:
            done.changed[Sealed.SUBJECTS] += self._store.call(reseal.subjects(topic, batch))

    def _at_rest(self, topic: str) -> Layout:
        """The layout that Redis has now, however often it was asked before; waits while the topic moves. It
        only reads, unlike `BulkLayouts.at_rest`."""
        deadline = monotonic() + MOVE_WAIT
        while (found := self._store.layouts.look_up(topic)).towards:
            if monotonic() > deadline:
                raise still_moves(found, MOVE_WAIT)
            sleep(LOOK)
        return found


class _Pass:
    """One pass over one partition."""

    def __init__(
        self, store: BulkStore, partition: str, contents: Contents, writes: str, done: Rotated
    ) -> None:
        self._server, self._partition = store.server, partition
        self._contents, self._writes, self._done = contents, writes, done
        self._call = store.call

    def run(self) -> None:
        """Exchange what is to be exchanged. Timers come before dead letters, as they become such."""
        self._exchange(Sealed.TIMERS, "payloads", self._again, reseal.contents)
        self._exchange(Sealed.RECURRENCES, "rules", self._recurrence, reseal.rules)
        if any(self._again(*each) is not None for _, *each in self._dead()):
            try:
                self._copy_letters()
            except StoreFull:
                self._forget_copy()  # it may be what fills Redis
                raise
        elif self._server.ask("TYPE", self._server.keys.key("copy", self._partition)) != b"none":
            self._forget_copy()  # of a run that was killed; by now the letters may be purged

    def _exchange(
        self,
        kind: Sealed,
        name: str,
        again: Callable[[bytes, bytes], bytes | None],
        call: Callable[[str, list[bytes]], Call[int]],
    ) -> None:
        batch: list[bytes] = []
        for each, stored in _hash(self._server, name, self._partition):
            fresh = again(each, stored)
            if fresh is None:
                continue
            batch += (each, stored, fresh)
            if len(batch) >= 3 * BATCH or sum(map(len, batch)) >= BATCH_BYTES:
                self._done.changed[kind] += self._call(call(self._partition, batch))
                batch = []
        if batch:
            self._done.changed[kind] += self._call(call(self._partition, batch))

    def _again(self, timer_id: bytes, stored: bytes) -> bytes | None:
        """The content with the key that seals now; None if it has that one, or does not open."""
        if sealed.key_of(stored) == self._writes or sealed.subject_key_of(stored):
            return None
        name = text_of(timer_id)[0]
        try:
            plain = self._contents.opened(self._partition, name, stored)
        except DoesNotOpen as failure:
            self._done.closed[str(failure.why)] += 1
            return None
        return self._contents.sealed(self._partition, [name], [plain])[0]

    def _recurrence(self, recurrence_id: bytes, text: bytes) -> bytes | None:
        try:
            stored = sealed_in(text)
            if stored is None:
                wanted = read_rule(text_of(recurrence_id)[0], text)
                stored = envelope.encode(*Content.of(wanted))
        except (ValueError, KeyError, TypeError):
            self._done.closed["not known to this version of Relay"] += 1
            return None
        fresh = self._again(recurrence_id, stored)
        return None if fresh is None else with_sealed(text, fresh)

    # -------------------------------------------------------------- dead letters
    # Entries of a stream can't be changed. So all are copied under their own ids, which journals know, and
    # the copy takes the place of the stream.

    def _dead(self, after: bytes = b"") -> Iterator[tuple[bytes, bytes, bytes]]:
        """The letters behind an entry: the entry's id, the timer's, the content."""
        for entry, letter in _entries(self._server, "dead", self._partition, after):
            yield entry, letter.get(b"timer_id", b""), letter.get(b"envelope", b"")

    def _forget_copy(self) -> None:
        self._call(reseal.begin(self._partition, NOBODY))

    def _copy_letters(self) -> None:
        run, last, word, changed = secrets.token_hex(8), b"", b"BEHIND", 0
        self._call(reseal.begin(self._partition, run))
        while word != b"OK":
            if word == b"BEHIND":
                last, count = self._copy_behind(run, last)
                changed += count
            elif word == b"DIFFERS":
                self._drop(run)
            word = _own(self._call(reseal.swap(self._partition, run)))
        self._done.changed[Sealed.DEAD_LETTERS] += changed

    def _copy_behind(self, run: str, last: bytes) -> tuple[bytes, int]:
        """Copy the letters behind the last one that was; return the last one now, and how many got the
        key."""
        batch: list[bytes] = []
        changed = 0
        for entry, timer_id, stored in self._dead(last):
            fresh = self._again(timer_id, stored)
            changed += fresh is not None
            batch += (entry, stored if fresh is None else fresh)
            last = entry
            if len(batch) >= 2 * PAGE or sum(map(len, batch)) >= BATCH_BYTES:
                _own(self._call(reseal.copy(self._partition, run, batch)))
                batch = []
        if batch:
            _own(self._call(reseal.copy(self._partition, run, batch)))
        return last, changed

    def _drop(self, run: str) -> None:
        """Take letters that have gone out of the copy."""
        entries = [entry for entry, _ in _entries(self._server, "copy", self._partition, b"0-1")]
        for start in range(0, len(entries), BATCH):
            _own(self._call(reseal.drop(self._partition, run, entries[start : start + BATCH])))


def _key_of(stored: bytes) -> str:
    return SUBJECT if sealed.subject_key_of(stored) else sealed.key_of(stored) or PLAIN


def _own(word: bytes) -> bytes:
    if word == b"OTHER":
        raise StoreRefused(TAKEN)
    return word


def _sealed_in(text: bytes) -> bytes | None:
    try:
        return sealed_in(text)
    except (ValueError, KeyError, TypeError):
        return None


def _hash(server: BlockingServer, name: str, partition: str) -> Iterator[tuple[bytes, bytes]]:
    """What a hash holds throughout, each once or more."""
    for pairs in server.scan("HSCAN", server.keys.key(name, partition), PAGE):
        yield from zip(pairs[::2], pairs[1::2], strict=True)


def _entries(
    server: BlockingServer, name: str, partition: str, after: bytes = b""
) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
    """A stream's entries behind one, with their fields."""
    key, start = server.keys.key(name, partition), b"(" + after if after else b"-"
    while True:
        entries = server.ask("XRANGE", key, start, "+", "COUNT", PAGE)
        for entry, fields in entries:
            yield entry, dict(zip(fields[::2], fields[1::2], strict=True))
        if len(entries) < PAGE:
            return
        start = b"(" + entries[-1][0]
