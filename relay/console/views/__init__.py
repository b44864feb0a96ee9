"""All pages, by their paths behind `/console`: those that are read, and those that act."""

from __future__ import annotations

from collections.abc import Mapping

from relay.console.requests import Handler
from relay.console.views import (
    dead_actions,
    dead_letters,
    life,
    overview,
    people,
    recurrence_actions,
    recurrences,
    timer_actions,
    timers,
    topics,
)

PAGES: Mapping[str, Handler] = {
    "": overview.overview,
    "/topic": topics.topic,
    "/topic/pause": topics.ask_pause,
    "/topic/resume": topics.ask_resume,
    "/timers": timers.timers,
    "/timer": timers.timer,
    "/timer/life": life.life,
    "/timer/payload": timers.payload,
    "/timer/run": timer_actions.ask_run,
    "/timer/move": timer_actions.ask_move,
    "/timer/cancel": timer_actions.ask_cancel,
    "/dead": dead_letters.dead_letters,
    "/dead/letter": dead_letters.dead_letter,
    "/dead/redrive": dead_actions.ask_redrive,
    "/dead/purge": dead_actions.ask_purge,
    "/recurrences": recurrences.recurrences,
    "/recurrence": recurrences.recurrence,
    "/recurrence/preview": recurrences.preview,
    "/recurrence/pause": recurrence_actions.ask_pause,
    "/recurrence/resume": recurrence_actions.ask_resume,
    "/recurrence/trigger": recurrence_actions.ask_trigger,
    "/recurrence/backfill": recurrence_actions.ask_backfill,
    "/people": people.people,
}

ACTIONS: Mapping[str, Handler] = {
    "/topic/pause": topics.pause,
    "/topic/resume": topics.resume,
    "/timer/run": timer_actions.run,
    "/timer/move": timer_actions.move,
    "/timer/cancel": timer_actions.cancel,
    "/dead/redrive": dead_actions.redrive,
    "/dead/purge": dead_actions.purge,
    "/recurrence/pause": recurrence_actions.pause,
    "/recurrence/resume": recurrence_actions.resume,
    "/recurrence/trigger": recurrence_actions.trigger,
    "/recurrence/backfill": recurrence_actions.backfill,
}
