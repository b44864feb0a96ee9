"""One-line breaks of what lets each nominal instant of a recurrence have one occurrence, and the scenarios
that notice each."""

from __future__ import annotations

from functools import partial

from tests.lua import test_calendars as calendars
from tests.lua import test_recur as recur
from tests.lua.killers_failure import Scenario
from tests.worlds.scripts.rules import Break

OF_RECUR = {
    "turns of what was read before": Break("recur/turn", "turns-compare-standing", "if false then", lines=1),
    "turns whatever has become of the last one": Break(
        "recur/turn", "turns-compare-last", "elseif false then"
    ),
    "an occurrence replaces what has its name": Break(
        "recur/turn", "living-occurrences-stay", "found[#found + 1] = at"
    ),
    "a full topic takes occurrences": Break("recur/turn", "full-topic-turns-later"),
    "nothing is cancelled": Break("recur/turn", "turns-cancel"),
    "what is cancelled keeps its room": Break("recur/turn", "cancelled-one-makes-room", "local frees = 0"),
    "a turn is not told": Break("recur/turn", "turn-noted"),
    "each look is told": Break("recur/turn", "looks-are-no-news", "if JOURNAL then", lines=1),
    "an old record counts for an occurrence": Break("recur/turn", "turn-clears-records"),
    "nobody wakes for an occurrence": Break("recur/turn", "turn-hints"),
    "changes of what was read before": Break("recur/keep", "changes-compare-standing"),
    "a standing without a rule refuses changes": Break(
        "recur/keep", "standings-need-rules", "local is = redis.call('HGET', standings, id) or ''"
    ),
    "a revision comes again": Break(
        "recur/calendar", "revisions-grow", "last + 1", old="math.max(last + 1, now_us)"
    ),
    "a clock that steps back gives an old revision": Break(
        "recur/calendar", "revisions-grow", "now_us", old="math.max(last + 1, now_us)"
    ),
    "a number that no number follows": Break("recur/calendar", "revisions-can-grow"),
    "a calendar that is put again is a change": Break("recur/calendar", "same-calendar-no-change"),
    "any number of calendars": Break("recur/calendar", "few-calendars"),
    "a removal is no change": Break("recur/calendar", "removal-raises-revision"),
    "known calendars are told again": Break("recur/calendars", "known-calendars-stay-away"),
    "what is not due is read": Break(
        "recur/due", "due-recurrences-only", "if i > 2 * limit or bytes > max_bytes then"
    ),
    "recurrences stay behind": Break("lib/move", "recurrences-move"),
    "a recurrence comes over one that stands": Break(
        "lib/move", "recurrences-that-stand-stay", "if true then"
    ),
    "a recurrence without a standing blocks the move": Break(
        "lib/move", "parts-may-be-missing", "redis.call('HSET', standings, name, what[3])"
    ),
}

pauses = partial(recur.test_a_change_while_a_turn_is_computed, change="pause")
removals = partial(recur.test_a_change_while_a_turn_is_computed, change="remove")

KILLERS: dict[str, tuple[Scenario, ...]] = {
    "turns of what was read before": (
        recur.test_two_relays_turn,
        recur.test_a_late_turn_of_what_has_run,
        pauses,
        removals,
    ),
    "turns whatever has become of the last one": (
        recur.test_the_last_one_ends_while_a_turn_is_computed,
        recur.test_the_last_one_comes_back_while_a_turn_is_computed,
    ),
    "an occurrence replaces what has its name": (recur.test_an_occurrence_that_is_there_already,),
    "a full topic takes occurrences": (recur.test_a_full_topic,),
    "nothing is cancelled": (recur.test_the_one_before_is_cancelled,),
    "what is cancelled keeps its room": (recur.test_a_full_topic_where_one_is_cancelled,),
    "a turn is not told": (recur.test_turns_in_the_journal,),
    "each look is told": (recur.test_looks_are_not_in_the_journal,),
    "an old record counts for an occurrence": (recur.test_what_is_left_of_a_timer_of_the_name,),
    "nobody wakes for an occurrence": (recur.test_a_turn_wakes_pollers,),
    "changes of what was read before": (recur.test_two_who_change_one, recur.test_two_who_create_one),
    "a standing without a rule refuses changes": (recur.test_one_that_has_lost_its_rule_can_be_put,),
    "a revision comes again": (calendars.test_revisions_grow, calendars.test_a_server_that_was_put_back),
    "a clock that steps back gives an old revision": (calendars.test_revisions_grow,),
    "a number that no number follows": (
        partial(calendars.test_a_revision_that_people_wrote, revision="1e300"),
        partial(calendars.test_a_revision_that_people_wrote, revision="nan"),
    ),
    "a calendar that is put again is a change": (calendars.test_put,),
    "any number of calendars": (calendars.test_as_many_as_may_be,),
    "a removal is no change": (calendars.test_removed,),
    "known calendars are told again": (calendars.test_a_call_that_knows_all_is_answered_by_nothing_else,),
    "what is not due is read": (recur.test_what_is_due,),
    "recurrences stay behind": (recur.test_a_recurrence_moves,),
    "a recurrence comes over one that stands": (recur.test_a_recurrence_moves_that_is_there_already,),
    "a recurrence without a standing blocks the move": (recur.test_a_recurrence_moves_that_lacks_a_part,),
}
