"""Keeps passwords out of what people read: logs, errors, printed settings."""

from __future__ import annotations

import re

MASK = "***"

# It extends to the last @ of a word: an unescaped @ or / in a password is a mistake, but must not show it.
_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<userinfo>\S*)@(?P<rest>\S*)")
_QUERY = re.compile(r"(?P<name>[?&][a-z_]*password=)[^&\s'\"]*", re.IGNORECASE)


def mask(text: str) -> str:
    """Return `text` with the credentials of every URL in it replaced by `***`; a user name stays.

    >>> mask("no route to redis://bob:hunter2@cache:6379/0")
    'no route to redis://bob:***@cache:6379/0'
    """
    if "://" not in text:
        return text
    return _QUERY.sub(rf"\g<name>{MASK}", _USERINFO.sub(_mask_userinfo, text))


def _mask_userinfo(match: re.Match[str]) -> str:
    if _QUERY.search(match["userinfo"]):
        return f"{match['scheme']}{MASK}"  # that @ is in a password among the options, whose end is unknown
    user, colon, _ = match["userinfo"].partition(":")
    # Without a colon, what stands there may be a password whose colon was forgotten.
    return f"{match['scheme']}{user + colon if colon else ''}{MASK}@{match['rest']}"
