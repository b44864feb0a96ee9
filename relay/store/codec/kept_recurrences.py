"""Recurrences as scripts say them, and which of them can be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache

from relay.core.recurring.recurrence import StoredRecurrence
from relay.core.timers import NO_CONTENT, Content
from relay.core.trust.sealing import DoesNotOpen, Unopened
from relay.store.codec import envelope
from relay.store.codec.contents import Contents
from relay.store.codec.lease_record import text_of
from relay.store.codec.recurrence_text import SEALED, read_rule, read_standing, sealed_in

_MAY_BE_SEALED = f'"{SEALED}"'.encode()


def sealed_of(flat: Sequence[bytes]) -> Iterator[bytes]:
    """The sealed contents of what scripts say of recurrences."""
    for rule in flat[1::4]:
        if _MAY_BE_SEALED in rule:
            with suppress(ValueError, LookupError, TypeError):
                if (stored := sealed_in(rule)) is not None:
                    yield stored


SHORT, REMEMBERED = 2_048, 1_000
"""The bytes of a text that is remembered once it is read, and the number of such texts."""


_rule_of = lru_cache(REMEMBERED)(read_rule)
_standing_of = lru_cache(REMEMBERED)(read_standing)


def kept_of(
    contents: Contents, partition: str, flat: Sequence[bytes]
) -> tuple[list[StoredRecurrence], dict[str, Unopened | None]]:
    """What scripts say of recurrences, see `say_recurrence`; and the ids of those that can't be read, with
    the reason if that is a sealed content. They stay as they are: another version may know better, and
    another relay may have the key. One whose subject was forgotten is read but for its content."""
    kept, unread = list[StoredRecurrence](), dict[str, Unopened | None]()
    for n in range(0, len(flat), 4):
        name, rule, standing, stands = flat[n : n + 4]
        timer_id = text_of(name)[0]

        forgotten = False

        def opened(stored: bytes, timer_id: str = timer_id) -> Content:
            nonlocal forgotten
            try:
                return envelope.decode(contents.opened(partition, timer_id, stored))
            except DoesNotOpen as failure:
                if not failure.why.forgotten:
                    raise
                forgotten = True
                return NO_CONTENT

        try:
            # Pages and metrics read the same ones again and again, and most have not changed. What is sealed
            # has to be opened each time: its key may be gone.
            is_short = len(rule) <= SHORT and _MAY_BE_SEALED not in rule
            wanted = _rule_of(name.decode(), rule) if is_short else read_rule(name.decode(), rule, opened)
            where = (_standing_of if len(standing) <= SHORT else read_standing)(standing)
        except DoesNotOpen as failure:
            unread[timer_id] = failure.why
        except (ValueError, LookupError, TypeError, AttributeError):
            unread[timer_id] = None
        else:
            kept.append(StoredRecurrence(wanted, where, stands == b"1", standing, forgotten))
    return kept, unread
