"""How much a script reads of payloads before it knows how large they are.

A script asks for several payloads with one command, since a command for each costs more than a small payload.
The server copies all of them, also where one alone would have been enough, and does nothing else meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from relay.core.policy import TopicPolicy

AT_A_TIME = 16 << 20
"""The most bytes that one command reads, for payloads as large as the topic accepts; it reads at least
one."""

MOST = 16
"""Payloads that one command reads, where they are small. Four at a time, a claim takes the server about 7 %
longer, one at a time about a quarter; more than these make it hardly quicker."""

Largest = Callable[[str], int]
"""The most bytes that a payload of a topic has; of what others write there is none to be known."""


def usual(_topic: str) -> int:
    """As many as a topic accepts by default."""
    return TopicPolicy().max_payload_bytes


def at_once(largest: int, most: int = MOST) -> int:
    """How many payloads to read with one command, if none has more bytes than `largest`."""
    return max(1, min(most, AT_A_TIME // max(largest, 1)))
