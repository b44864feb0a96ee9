"""The keyring of this process: read from a file, and taken over when that changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from relay.core.trust.sealing import DoesNotOpen, Unopened
from relay.trust.ciphers import Cipher
from relay.trust.keyring_file import KeyringError, read_keyring

LOOK = 1.0
"""Seconds between two looks at the file. A mounted Secret changes by a link, which no single file's events
tell of."""

log = logging.getLogger(__name__)


class FileKeyring:
    """A `Keyring` from a file."""

    def __init__(self, file: Path) -> None:
        """Read the file. Raises `KeyringError`."""
        self._file = file
        self._ciphers: dict[str, Cipher] = {}
        self._keys: Mapping[str, bytes] = {}
        self._said = ""
        self._take(*read_keyring(file))

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

    def look(self) -> bool:
        """Take over what the file says now; return whether that is something else. A file that is wrong
        leaves the keys as they are, which is logged once for each problem."""
        try:
            writes, keys = read_keyring(self._file)
        except KeyringError as problem:
            if str(problem) != self._said:
                self._said = str(problem)
                log.error(
                    "the keyring can't be taken over; its old keys stay in use", extra={"problem": self._said}
                )
            return False
        if self._said:
            self._said = ""
            log.info("the keyring can be read again")
        if writes == self.writes and keys == self._keys:
            return False
        gone = self._keys.keys() - keys.keys()
        self._take(writes, keys)
        log.info(
            "the keyring has changed",
            extra={"writes": writes, "reads": sorted(self._ciphers), "gone": sorted(gone)},
        )
        return True

    async def run(self) -> None:
        """Look at the file until cancelled."""
        while True:
            await anyio.sleep(LOOK)
            await anyio.to_thread.run_sync(self.look)

    def _take(self, writes: str, keys: Mapping[str, bytes]) -> None:
        self._ciphers = {
            key_id: self._ciphers[key_id] if self._keys.get(key_id) == key else Cipher(key)
            for key_id, key in keys.items()
        }
        self._keys = keys
        # One reference, since `look` runs in a thread beside `seal`, and the old key may be gone.
        self._sealing = writes, self._ciphers[writes]
