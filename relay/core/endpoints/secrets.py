"""Keeps passwords out of what people read: logs, errors, printed settings."""

from __future__ import annotations

import re

MASK = "***"

_WORD = re.compile(r"\S+")
_QUERY = re.compile(r"(?P<name>[?&][a-z_]*password=)[^&\s'\"]*", re.IGNORECASE)


def mask(text: str) -> str:
    """Return `text` with the credentials of every URL in it replaced by `***`; a user name stays. The time
    grows with the text and no faster, since whatever is logged comes through here.

    >>> mask("no route to redis://bob:hunter2@cache:6379/0")
    'no route to redis://bob:***@cache:6379/0'
    """
    if "://" not in text:
        return text
    return _QUERY.sub(rf"\g<name>{MASK}", _WORD.sub(_mask_userinfo, text))


def _mask_userinfo(word: re.Match[str]) -> str:
    scheme, separator, rest = word[0].partition("://")
    # To the last @ of a word: an unescaped @ or / in a password is a mistake, but must not show it.
    userinfo, at, host = rest.rpartition("@")
    if not at:
        return word[0]
    if _QUERY.search(userinfo):
        return f"{scheme}{separator}{MASK}"  # that @ is in a password among the options, whose end is unknown
    user, colon, _ = userinfo.partition(":")
    # Without a colon, what stands there may be a password whose colon was forgotten.
    return f"{scheme}{separator}{user + colon if colon else ''}{MASK}@{host}"
