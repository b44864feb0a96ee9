"""The keys of subjects for loads, which block: as `relay.store.timeline.subjects` brings them for relays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relay.core.errors import InvalidField
from relay.core.trust.sealing import subject_id
from relay.store.bulk.store import BulkStore
from relay.store.codec.contents import Contents
from relay.store.codec.subjects import SubjectKey
from relay.store.verbs import subjects as verbs

AT_ONCE = 1_000
"""The number of subjects that one call asks for."""


class BulkSubjects:  # see 0115
    """Asks for the keys that a task needs, and for those alone: a topic may have any number of subjects. The
    store is the caller's own."""

    def __init__(self, store: BulkStore, contents: Contents) -> None:
        assert contents.subjects is not None, "only a topic with a keyring has subjects"
        self._store = store
        self._known = contents.subjects

    def keep(self, topic: str, names: Sequence[str]) -> Mapping[str, SubjectKey | InvalidField]:
        """The key of each subject, or why it has none. One that has none gets a key, which is as durable as
        the load is at its end. A script call for each 1,000 that are not known, behind all that is under way.
        Raises `StoreError`."""
        found: dict[str, SubjectKey | InvalidField] = {}
        for some, fields in _in_parts(topic, names):
            if new := self._known.unknown(topic, fields, for_sealing=True):
                args = [part for field in new for part in (field, self._known.offered(topic, field))]
                kept = self._store.call(verbs.keep(topic, args))
                self._known.learn(topic, new, kept)
            found |= self._keys(topic, some, fields)
        return found

    def look(self, topic: str, names: Sequence[str]) -> Mapping[str, SubjectKey | InvalidField]:
        """The same of those that have a key, or had one; nothing is written. An HMGET for each 1,000 that are
        not known. Raises `StoreError`."""
        found: dict[str, SubjectKey | InvalidField] = {}
        for some, fields in _in_parts(topic, names):
            if new := self._known.unknown(topic, fields):
                self._store.flush()
                key = self._store.server.keys.key("subjects", topic)
                self._known.learn(topic, new, self._store.server.ask("HMGET", key, *new))
            found |= self._keys(topic, some, fields, only_there=True)
        return found

    def _keys(
        self, topic: str, names: Sequence[str], fields: Sequence[str], *, only_there: bool = False
    ) -> dict[str, SubjectKey | InvalidField]:
        found: dict[str, SubjectKey | InvalidField] = {}
        for name, field in zip(names, fields, strict=True):
            if only_there and not self._known.has(topic, field):
                continue
            try:
                found[name] = self._known.to_seal(topic, field)
            except InvalidField as refusal:
                found[name] = refusal
        return found


def _in_parts(topic: str, names: Sequence[str]) -> list[tuple[Sequence[str], list[str]]]:
    parts = [names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE)]
    return [(part, [subject_id(topic, name) for name in part]) for part in parts]
