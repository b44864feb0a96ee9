"""Seals the rows of sealed topics, and leaves out of rejects what such a topic's rows hold."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as sf

from relay.core.errors import InvalidField, SubjectForgotten
from relay.pipeline.rows.columns import CONTENT, SEAL_WITH
from relay.pipeline.rows.packing import Group
from relay.pipeline.spark.redis_target import Target
from relay.store.bulk.store import BulkStore
from relay.store.bulk.subjects import BulkSubjects
from relay.store.codec import sealed
from relay.store.codec.contents import Contents
from relay.store.codec.subjects import SubjectKey

NO_KEYRING = (
    "{topic!r} is sealed, and this job has no keyring: name its file in sealing.keyring of the settings, or "
    "in the data source's option keyring. Nothing of the topic was written"
)

HELD = (*CONTENT, SEAL_WITH, "record")
"""The columns of a reject that hold what a timer of a sealed topic would have sealed."""

NO_SUBJECTS = "is set, and the topic is not sealed; leave it out, or set sealing for the topic"

NOT_SEALED = (
    "it is sealed, and {rows:,} of its rows rest in the clear, from before. This job would seal them, but it "
    "has no keyring: name its file in sealing.keyring of the settings"
)

_QUOTED = re.compile(r"['\"].*['\"]", re.DOTALL)


class RowSealing:  # see 0112
    """What a task knows of its topics: whether they are sealed, by the settings or by the mark that a relay
    has left in Redis.

    Without a `store` Redis is not asked. The keyring is read by the task that needs it: its path travels. One
    that `gives` gives keys to subjects that have none.
    """

    def __init__(self, target: Target, store: BulkStore | None, *, gives: bool = True) -> None:
        self._target = target
        self._store = store
        self._gives = gives
        self._known: dict[str, bool] = {}
        self._contents: Contents | None = None

    def sealed(self, topic: str) -> bool:
        """Whether a topic is sealed. Raises `StoreError`."""
        known = self._known.get(topic)
        if known is None:
            known = self._target.rules(topic).sealing
            if not known and self._store is not None:
                (known,) = self._store.sealed([topic])
            self._known[topic] = known
        return known

    def of(self, group: Group) -> Group:
        """The rows as they are to be stored. Raises `InvalidField` if they are to be sealed and can't be."""
        if not self.sealed(group.topic):
            return group
        keys: list[SubjectKey | None] = []
        if group.subjects is not None and self._gives:
            names = group.subjects.tolist()
            found = self._keys(group.topic, sorted({*names} - {""}))
            if refusal := next((each for each in found.values() if isinstance(each, InvalidField)), None):
                raise refusal  # it was forgotten since the row was checked; the task is run again
            given = {name: key for name, key in found.items() if isinstance(key, SubjectKey)}
            keys = [given.get(name) for name in names]
        ids, envelopes = group.timer_ids.to_pylist(), group.envelopes.to_pylist()
        stored = self._keyring(group.topic).sealed(group.topic, ids, envelopes, keys)
        return replace(group, envelopes=pa.array(stored, pa.large_binary()), subjects=None)

    def refused(self, topic: str, names: Sequence[str]) -> Mapping[str, str]:
        """Which subjects a topic does not take, and why. Those that it takes have a key from then on. Raises
        `InvalidField` without a keyring, or where it lacks the key of a subject's key: no row is to blame for
        that."""
        if not self.sealed(topic):
            return dict.fromkeys(names, NO_SUBJECTS) if self._store is not None else {}
        found = self._keys(topic, names) if self._store is not None else {}
        refusals = {name: each for name, each in found.items() if isinstance(each, InvalidField)}
        if other := next(
            (each for each in refusals.values() if not isinstance(each, SubjectForgotten)), None
        ):
            raise other
        return {name: each.problem for name, each in refusals.items()}

    def _keys(self, topic: str, names: Sequence[str]) -> Mapping[str, SubjectKey | InvalidField]:
        assert self._store is not None
        subjects = BulkSubjects(self._store, self._keyring(topic))
        return subjects.keep(topic, names) if self._gives else subjects.look(topic, names)

    def _keyring(self, topic: str) -> Contents:
        contents = self._contents = self._contents or self._target.contents()
        if contents is None:
            raise InvalidField("topic", NO_KEYRING.format(topic=topic))
        return contents

    def of_rejects(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rejects without contents where the topic is sealed, or can't be told and some topics are: id,
        times, place and reason are left."""
        if not rows.num_rows:
            return rows
        topics = rows.column("topic").dictionary_encode()
        hidden = [self._hides(topic) for topic in topics.dictionary.to_pylist()]
        nameless = self._hides(None)
        if not (any(hidden) or nameless):
            return rows
        each = pa.array([*hidden, nameless], pa.bool_())
        mask = each.take(pc.fill_null(topics.indices, len(hidden)))
        columns = {name: rows.column(name) for name in rows.schema.names}
        for name in HELD:
            columns[name] = pc.if_else(mask, pa.scalar(None, columns[name].type), columns[name])
        told = zip(columns["reason"].to_pylist(), mask.to_pylist(), strict=True)
        reasons = [_QUOTED.sub("'…'", reason) if hide else reason for reason, hide in told]
        columns["reason"] = pa.array(reasons, pa.string())
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=rows.schema)

    def _hides(self, topic: str | None) -> bool:
        if topic is not None:
            try:
                return self.sealed(self._target.admit(topic))
            except InvalidField:
                pass  # it may be a misspelt name of a sealed one
        return self._target.seals_any or any(self._known.values())


def sealed_topics(target: Target, topics: Collection[str]) -> frozenset[str]:
    """Those of the topics that are sealed. Raises `StoreError`."""
    names = list(topics)
    with target.open() as store:
        marked = zip(names, store.sealed(names), strict=True)
        return frozenset(name for name, mark in marked if mark or target.rules(name).sealing)


def is_plain(envelope: Column) -> Column:
    """Whether a stored content is not sealed."""
    return sf.substring(envelope, sealed.NAMED_AT + 1, len(sealed.NAMED)) != sf.lit(sealed.NAMED)


def seal_plain(rows: pa.RecordBatch, topic: str, contents: Contents) -> pa.RecordBatch:
    """Rows of the cold store, of one topic, with those contents sealed that are not."""
    stored = rows.column("envelope").to_pylist()
    plain = [n for n, each in enumerate(stored) if each is not None and not sealed.looks_sealed(each)]
    if not plain:
        return rows
    ids = rows.column("timer_id").take(pa.array(plain)).to_pylist()
    for n, each in zip(plain, contents.sealed(topic, ids, [stored[n] for n in plain]), strict=True):
        stored[n] = each
    place = rows.schema.get_field_index("envelope")
    return rows.set_column(place, rows.schema.field(place), pa.array(stored, rows.schema.field(place).type))
