"""AES-256-GCM by keys that are derived for a process, so that random nonces never run out; see 0108."""

from __future__ import annotations

import base64
import hmac
import os
from collections import OrderedDict
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32

VERSION = b"\x01"
"""How a sealed text begins. What follows is salt, nonce, ciphertext and tag."""
SALT = 16
NONCE = 12
TAG = 16
OVERHEAD = len(VERSION) + SALT + NONCE + TAG
"""The bytes by which a sealed text is longer than what it seals."""

PER_SALT = 1 << 24
"""The number of texts that one derived key seals: the chance that two of them share a nonce is 2^-49."""

MOST_DERIVED = 4_096
"""The number of derived keys that are kept. Each process that seals has had at least one."""

_BODY = len(VERSION) + SALT + NONCE
_INFO = b"relay sealing 1"
_MARK = b"relay mark of a key 1"


class Cipher:
    """One key of a keyring, or of a subject. Nothing shows the key: not `repr`, not an error."""

    __slots__ = ("_derived", "_key", "_left", "_pid", "_prefix", "_sealing")

    def __init__(self, key: bytes) -> None:
        """Take a key of `KEY_BYTES` bytes."""
        self._key = key
        self._derived: OrderedDict[bytes, AESGCM] = OrderedDict()
        self._left = 0
        self._pid = 0

    def __repr__(self) -> str:
        return "Cipher(***)"

    @property
    def mark(self) -> str:
        """Eight characters that another key does not have, but for a chance of 2^-48. They reveal nothing of
        the key."""
        return base64.urlsafe_b64encode(hmac.digest(self._key, _MARK, "sha256")[:6]).decode()

    def seal(self, bound: Sequence[bytes], plain: Sequence[bytes]) -> list[bytes]:
        """Seal texts, each for what it is bound to."""
        if self._left < len(plain) or self._pid != os.getpid():  # a fork has its parent's salt
            salt = os.urandom(SALT)
            self._prefix, self._sealing = VERSION + salt, self._of(salt)
            self._left, self._pid = PER_SALT, os.getpid()
        self._left -= len(plain)
        nonces, encrypt, prefix = os.urandom(NONCE * len(plain)), self._sealing.encrypt, self._prefix
        sealed = []
        for n, (associated, text) in enumerate(zip(bound, plain, strict=True)):
            nonce = nonces[NONCE * n : NONCE * n + NONCE]
            sealed.append(prefix + nonce + encrypt(nonce, text, associated))
        return sealed

    def open(self, bound: bytes, sealed: bytes) -> bytes | None:
        """Open a text; None if it was sealed by another key, for something else, or is changed."""
        if len(sealed) < OVERHEAD or sealed[:1] != VERSION:
            return None
        salt, nonce = sealed[1 : 1 + SALT], sealed[1 + SALT : _BODY]
        try:
            return (self._derived.get(salt) or self._of(salt)).decrypt(nonce, sealed[_BODY:], bound)
        except InvalidTag:
            return None

    def _of(self, salt: bytes) -> AESGCM:
        """The cipher by the key that is derived with a salt."""
        key = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=_INFO).derive(self._key)
        made = self._derived[salt] = AESGCM(key)
        if len(self._derived) > MOST_DERIVED:
            self._derived.popitem(last=False)
        return made
