"""The keys of subjects, in Redis: asked for before contents are sealed or opened."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from relay.core.partitions import topic_of
from relay.core.trust.sealing import subject_id
from relay.store.codec.contents import Contents
from relay.store.codec.subjects import SubjectKey, forgotten_at, subjects_in, subjects_of
from relay.store.server.server import Server
from relay.store.verbs import subjects as verbs

AT_ONCE = 1_000
"""The number of subjects that one script call gives keys: Lua unpacks no more than 8,000 values."""


class Subjects:  # see 0116
    """Brings what `contents` has to know of subjects, for all contents of a call at once. They lie beside the
    topic's first partition, wherever its timers are."""

    def __init__(self, server: Server, contents: Contents) -> None:
        self._server = server
        self._known = contents.subjects

    async def keep(self, partition: str, names: Sequence[str]) -> list[SubjectKey | None]:
        """The keys of subjects, in the order of their names, None for an empty one. One that has none gets a
        key, which is as durable afterwards as the call needs it. A script call for each 1,000 that are not
        known. Raises `InvalidField` for a subject that was forgotten, and `StoreError`."""
        assert self._known is not None, "only a topic with a keyring has subjects"
        topic = topic_of(partition)
        fields = [name and subject_id(topic, name) for name in names]
        # What was known before a call may have made room for others meanwhile.
        while new := self._known.unknown(topic, filter(None, fields), for_sealing=True):
            kept: list[bytes] = []
            for start in range(0, len(new), AT_ONCE):
                some = new[start : start + AT_ONCE]
                args = [part for field in some for part in (field, self._known.offered(topic, field))]
                told = await self._server.call(verbs.keep(topic, args))
                kept += told
            self._known.learn(topic, new, kept)  # all at once: other calls make room for theirs meanwhile
        return [self._known.to_seal(topic, field) if field else None for field in fields]

    async def look(self, partition: str, stored: Iterable[bytes]) -> None:
        """Know the subjects of contents, so that these can be opened. At most one HMGET. Raises
        `StoreError`."""
        if self._known is not None:
            await self._look(partition, subjects_in(stored))

    async def look_for(self, partition: str, key_ids: Iterable[str]) -> None:
        """Know the subjects of keys, as `look` does."""
        await self._look(partition, subjects_of(key_ids))

    async def _look(self, partition: str, fields: Collection[str]) -> None:
        if not fields or self._known is None:
            return
        topic = topic_of(partition)
        key = self._server.keys.key("subjects", topic)
        while unknown := self._known.unknown(topic, fields):
            self._known.learn(topic, unknown, await self._server.ask("HMGET", key, *unknown))

    async def forget(self, topic: str, name: str) -> int | None:
        """Forget a subject: return since when it is, in microseconds, or None if there is no such subject.
        One script call. Raises `StoreError`."""
        field = subject_id(topic, name)
        value = await self._server.call(verbs.forget(topic, field))
        if self._known is not None:
            self._known.forget(topic, field)
        return forgotten_at(value)
