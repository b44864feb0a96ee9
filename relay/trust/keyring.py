"""The keyring of this process: read from files, and taken over when they change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from relay.core.trust.sealing import DoesNotOpen, Unopened
from relay.trust.ciphers import Cipher
from relay.trust.files import WatchedFiles
from relay.trust.keyring_file import SETTING, read_keyring

log = logging.getLogger(__name__)


class FileKeyring:
    """A `Keyring` from a file and those that it names. Add its `source` to a `Watch`."""

    def __init__(self, file: Path) -> None:
        """Read the files. Raises `BadFile`."""
        self._file = file
        self._named: tuple[Path, ...] = ()
        self._ciphers: dict[str, Cipher] = {}
        self._keys: Mapping[str, bytes] = {}
        self.changed: Callable[[], None] = lambda: None
        """Whom to tell that the keys have changed."""
        self.source = WatchedFiles(SETTING, (file,), self.load, lambda: self._named)
        self.load()

    def __repr__(self) -> str:
        return f"FileKeyring(writes={self.writes!r}, reads={sorted(self._ciphers)})"

    @property
    def writes(self) -> str:
        """The id of the key that seals."""
        return self._sealing[0]

    def seal(self, bound: Sequence[bytes], plain: Sequence[bytes]) -> tuple[str, list[bytes]]:
        """See `Keyring.seal`."""
        key_id, cipher = self._sealing
        last = b"\0" + key_id.encode()
        return key_id, cipher.seal([each + last for each in bound], plain)

    def open(self, key_id: str, bound: bytes, sealed: bytes) -> bytes:
        """See `Keyring.open`. Raises `DoesNotOpen`."""
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise DoesNotOpen(Unopened(key_id))
        plain = cipher.open(bound + b"\0" + key_id.encode(), sealed)
        if plain is None:
            raise DoesNotOpen(Unopened(key_id, tampered=True))
        return plain

    def cipher(self, key_id: str, bound: bytes, sealed: bytes) -> Cipher:
        """See `Keyring.cipher`. Raises `DoesNotOpen`."""
        return Cipher(self.open(key_id, bound, sealed))

    def load(self) -> None:
        """Take over what the files say now. Raises `BadFile`, after which the keys are those before."""
        named: list[Path] = []
        try:
            writes, keys = read_keyring(self._file, named)
        finally:
            self._named = tuple(named)  # one that is missing may come
        if keys == self._keys and writes == self.writes:
            return
        before, self._keys = self._keys, keys
        self._ciphers = {
            key_id: self._ciphers[key_id] if before.get(key_id) == key else Cipher(key)
            for key_id, key in keys.items()
        }
        self._sealing = writes, self._ciphers[writes]
        if before:
            log.info(
                "the keyring has changed",
                extra={
                    "writes": writes,
                    "reads": sorted(self._ciphers),
                    "gone": sorted(before.keys() - keys.keys()),
                },
            )
            self.changed()
