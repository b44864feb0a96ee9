"""The shape of an error: its words without what is different each time."""

from __future__ import annotations

import re

from relay.console.shown import visible

MOST = 160
"""The characters of a shape."""

_VARIES = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"  # UUIDs
    r"|\b0x[0-9a-fA-F]+|\b(?=[0-9a-f]*[0-9])[0-9a-f]{12,}\b"  # addresses and hashes
    r"|'[^'\n]{0,200}'|\"[^\"\n]{0,200}\""  # what is quoted
    r"|[0-9]+(?:[.,:][0-9]+)*"  # numbers, times, addresses
)


def shape(error: str) -> str:
    """The first line of an error, with `…` where numbers, ids and quoted words stood. It has nothing that
    browsers change in a form, such as the carriage return of a line's end."""
    first = " ".join(error.strip().split("\n", 1)[0][:1_000].split())
    return visible(_VARIES.sub("…", first))[:MOST]
