"""What `relay doctor` says about calendars: which ones rules name that do not exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from itertools import chain
from shlex import quote

from relay.cli.daemon.doctor_findings import Finding
from relay.core.errors import OtherLayout, WrongKeyType
from relay.core.ports import MAX_PER_CALL
from relay.core.recurring.calendars import NO_CALENDARS
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.layouts import look_up
from relay.store.partitions.recurrences import RedisRecurrences
from relay.store.server.server import Server
from relay.store.timeline.calendars import RedisCalendars

MOST_LOOKED_AT = 5_000
"""The most recurrences of a topic that are looked at; one call reads up to 500 of them, whole."""


async def calendars(server: Server, topics: Iterable[str]) -> AsyncIterator[Finding]:
    """Yield what there is to say of calendars and of those that topics name; nothing where there are none.
    Topics that move are left out: to look at them would go on with the move. So are those with a key of a
    wrong type. Raises `StoreError`."""
    try:
        known = await RedisCalendars(server).read(NO_CALENDARS)
    except WrongKeyType as failure:
        words = "recurrences that name calendars wait; rename that key, or set another redis.topics_key"
        yield Finding("calendars", "wrong", f"{failure}: {words}")
        return
    missing = False
    for topic in topics:
        named = await _named(server, topic)
        for name in known.missing(sorted(named)):
            missing = True
            count = named[name]
            who = f"{count} recurrence{'s' if count > 1 else ''} of {topic!r}"
            words = f"{who} name{'' if count > 1 else 's'} the calendar {name!r}, which does not exist"
            advice = f"relay recur calendar put {quote(name)} --file FILE puts it; or change the rules"
            yield Finding("calendars", "note", f"{words}, so that it leaves out nothing: {advice}")
    if known.dates and not missing:
        yield Finding("calendars", "ok", f"{len(known.dates)}, and no rule names another one")


async def _named(server: Server, topic: str) -> Counter[str]:
    """The names of calendars that a topic's rules have, and how many recurrences have each."""
    store, named, seen, cursor = RedisRecurrences(server, Carrier(server)), Counter[str](), 0, ""
    layout = await look_up(server, topic)
    while seen < MOST_LOOKED_AT and not layout.towards:
        try:
            page = await store.page(layout, prefix="", limit=MAX_PER_CALL, cursor=cursor)
        except (OtherLayout, WrongKeyType):
            break
        named.update(chain.from_iterable(each.recurrence.rule.calendars for each in page.kept))
        seen += len(page.kept)
        if not (cursor := page.cursor):
            break
    return named
