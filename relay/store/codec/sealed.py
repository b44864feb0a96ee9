"""The form of a sealed content: an envelope with one header, `relay-sealed`, which is the key's id. Its body
is the sealed text, and what that seals is the envelope of the content.

So whoever reads envelopes sees that this one is sealed, and with which key.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from relay.core.trust.sealing import SUBJECT
from relay.core.validate import SEALED
from relay.store.codec.envelope import BODY, NO_HEADERS, encode

NAMED_AT, NAMED = BODY, len(SEALED).to_bytes(2, "big") + SEALED.encode()
"""Where a sealed content has the header's name, and how."""
_VALUE = NAMED_AT + len(NAMED) + 2
"""Where the key's id begins."""
_SUBJECT = SUBJECT.encode()
_SUBJECT_ENDS = _VALUE + len(_SUBJECT)
_OURS = NO_HEADERS[:14]
MOST_ID = 64
"""The bytes of the longest id of a key."""
_ENDS = Struct(">I")


@lru_cache(1_024)
def head(key_id: str) -> bytes:
    """How an envelope begins whose content is sealed with this key; the sealed text follows."""
    return encode(b"", {SEALED: key_id}, "")


def looks_sealed(stored: bytes) -> bool:
    """Whether these bytes may be a sealed content. This takes a tenth of what `key_of` takes."""
    return stored[NAMED_AT : _VALUE - 2] == NAMED


def key_of(stored: bytes) -> str | None:
    """The id of the key that a content says it is sealed with; None if it says nothing of the kind."""
    if stored[NAMED_AT : _VALUE - 2] != NAMED or not stored.startswith(_OURS):
        return None
    (end,) = _ENDS.unpack_from(stored, 14)
    if end > _VALUE + MOST_ID:
        return None
    try:
        key_id = stored[_VALUE:end].decode()
        return key_id if stored.startswith(head(key_id)) else None
    except UnicodeDecodeError:
        return None


def subject_key_of(stored: bytes) -> str | None:
    """The id of the key that a content is sealed with if that is a subject's."""
    if stored[_VALUE:_SUBJECT_ENDS] != _SUBJECT:  # so most contents take no more than this
        return None
    key_id = key_of(stored)
    return key_id if key_id is not None and key_id.startswith(SUBJECT) else None


def body_of(stored: bytes, key_id: str) -> bytes:
    """The sealed text of such a content."""
    return stored[len(head(key_id)) :]
