"""Contents as they are stored: envelopes, which are sealed for the topics that want it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from relay.core.errors import ContentSealed
from relay.core.partitions import topic_of
from relay.core.timers import Content
from relay.core.trust.sealing import SUBJECT, DoesNotOpen, Keyring, Unopened, bound_to
from relay.store.codec import envelope, sealed
from relay.store.codec.subjects import SubjectKey, SubjectKeys, bound_key, parts_of, wrapped


def never(_topic: str) -> bool:
    """No topic is sealed."""
    return False


class Contents:
    """Makes and reads what lies in Redis of contents.

    A topic says whether what comes in is sealed. What is there already is read as it is: sealed, if it says
    so, and plain otherwise. A partition's name stands for its topic.
    """

    def __init__(self, keyring: Keyring | None = None, wanted: Callable[[str], bool] = never) -> None:
        """`wanted` says of a topic whether it is sealed; then there is a keyring."""
        self._keyring = keyring
        self._wanted = wanted
        self.subjects = None if keyring is None else SubjectKeys(keyring)
        """The keys of subjects; without a keyring none opens. Whoever seals or opens contents has to know
        those of theirs: see `relay.store.timeline.subjects`."""

    def seals(self, partition: str) -> bool:
        """Whether what comes in for a topic is sealed."""
        return self._keyring is not None and self._wanted(topic_of(partition))

    def encode(self, partition: str, timer_id: str, content: Content, key_id: str = "") -> bytes:
        """Make what is stored of a content; `key_id` is the one of a subject's key, if one is to seal it.
        Raises `struct.error` for a header that is too long, and `DoesNotOpen` without that key."""
        stored = envelope.encode(*content)
        if key_id and self.subjects is not None:
            return _sealed_by(self.subjects.sealing(key_id, partition), partition, timer_id, stored)
        if key_id:
            raise DoesNotOpen(Unopened(key_id))
        return self.sealed(partition, [timer_id], [stored])[0] if self.seals(partition) else stored

    def encode_all(
        self,
        partition: str,
        timer_ids: Sequence[str],
        payloads: Sequence[bytes],
        headers: Sequence[Mapping[str, str]],
        content_types: Sequence[str],
        subjects: Sequence[SubjectKey | None] = (),
    ) -> list[bytes]:
        """The same of many. `subjects` has the keys of theirs, if any has one."""
        stored = list(map(envelope.encode, payloads, headers, content_types))
        if subjects or self.seals(partition):
            return self.sealed(partition, timer_ids, stored, subjects)
        return stored

    def sealed(
        self,
        partition: str,
        timer_ids: Sequence[str],
        stored: Sequence[bytes],
        subjects: Sequence[SubjectKey | None] = (),
    ) -> list[bytes]:
        """Seal envelopes, whatever the topic wants. Raises `ValueError` without a keyring."""
        if subjects:
            return [
                _sealed_by(key, partition, timer_id, each)
                if key is not None
                else self.sealed(partition, [timer_id], [each])[0]
                for key, timer_id, each in zip(subjects, timer_ids, stored, strict=True)
            ]
        if self._keyring is None:
            raise ValueError("there is no keyring")
        bound = [bound_to(partition, each) for each in timer_ids]
        key_id, texts = self._keyring.seal(bound, stored)
        head = sealed.head(key_id)
        return [head + text for text in texts]

    def rewrapped(self, topic: str, field: str, value: bytes) -> bytes:
        """A subject's key with the key that seals now. Raises `DoesNotOpen`, and `ValueError` without a
        keyring."""
        if self._keyring is None:
            raise ValueError("there is no keyring")
        key_id, text = parts_of(value)
        return wrapped(self._keyring, topic, field, self._keyring.open(key_id, bound_key(topic, field), text))

    def decode(self, partition: str, timer_id: str, stored: bytes) -> Content:
        """Read the content of a timer. Raises `ContentSealed`."""
        try:
            return envelope.decode(self.opened(partition, timer_id, stored))
        except DoesNotOpen as failure:
            raise ContentSealed(
                f"topic {topic_of(partition)!r}: the content of {timer_id!r} is {failure.why}"
            ) from None

    def opened(self, partition: str, timer_id: str, stored: bytes) -> bytes:
        """The envelope of a content, which may be sealed. Raises `DoesNotOpen`."""
        key_id = sealed.key_of(stored)
        if key_id is None:
            return stored
        if self._keyring is None:
            raise DoesNotOpen(Unopened(key_id))
        bound, body = bound_to(partition, timer_id), sealed.body_of(stored, key_id)
        if not key_id.startswith(SUBJECT) or self.subjects is None:
            return self._keyring.open(key_id, bound, body)
        plain = self.subjects.sealing(key_id, partition).cipher.open(bound + b"\0" + key_id.encode(), body)
        if plain is None:
            raise DoesNotOpen(Unopened(key_id, tampered=True))
        return plain

    def decode_all(
        self, partition: str, timer_ids: Sequence[str], stored: Sequence[bytes]
    ) -> tuple[envelope.Columns, dict[int, Unopened]]:
        """Read the contents of timers by columns, see `envelope.decode_all`; and say by their places which
        of them don't open. Those have an empty content."""
        if not any(map(sealed.looks_sealed, stored)):
            return envelope.decode_all(stored), {}
        closed: dict[int, Unopened] = {}
        plain = []
        for place, (timer_id, each) in enumerate(zip(timer_ids, stored, strict=True)):
            try:
                plain.append(self.opened(partition, timer_id, each))
            except DoesNotOpen as failure:
                closed[place] = failure.why
                plain.append(envelope.NO_HEADERS)
        return envelope.decode_all(plain), closed


def _sealed_by(key: SubjectKey, partition: str, timer_id: str, stored: bytes) -> bytes:
    bound = bound_to(partition, timer_id) + b"\0" + key.key_id.encode()
    return sealed.head(key.key_id) + key.cipher.seal([bound], [stored])[0]


PLAIN = Contents()
"""Without a keyring: nothing is sealed, and what is sealed does not open."""
