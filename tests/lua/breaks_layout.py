"""One-line breaks of what is kept of a topic's layout, and the scenarios that notice each."""

from __future__ import annotations

from functools import partial

from tests.lua import test_heartbeat as heartbeat
from tests.lua import test_layout as layout
from tests.lua.killers_failure import Scenario
from tests.worlds.scripts.rules import Break

OF_LAYOUT = {
    "the layout is overlooked": Break("layout/begin", "layout-stands"),
    "a topic that is in use begins": Break("layout/begin", "only-an-empty-topic-begins", "  kept = false"),
    "a topic with a journal begins": Break("layout/begin", "a-journal-is-kept-too"),
    "a lost layout stays lost": Break("layout/begin", "a-lost-layout-comes-back", "if false then"),
    "the layout is not told": Break("lib/prelude", "layout-told"),
    "an idle poll hears of no layout": Break(
        "timeline/claim", "idle-polls-hear-of-a-layout", "local is_laid_out = false"
    ),
    "a dead relay stays": Break("layout/heartbeat", "heartbeats-end", "local gone = {}"),
    "a relay of a later clock stays": Break(
        "layout/heartbeat", "heartbeats-of-a-later-clock-end", "  local ahead = {}"
    ),
    "a relay that leaves stays": Break(
        "layout/heartbeat", "who-leaves-is-forgotten", "relays, ''", "relays, relay"
    ),
}

KILLERS: dict[str, tuple[Scenario, ...]] = {
    "the layout is overlooked": (layout.test_a_new_topic_begins,),
    "a topic that is in use begins": tuple(
        partial(layout.test_a_topic_of_which_something_is_kept, name=name) for name in layout.KEPT
    ),
    "a topic with a journal begins": (layout.test_a_journal_is_kept_of_the_topic,),
    "a lost layout stays lost": (layout.test_a_layout_that_is_lost,),
    "the layout is not told": (layout.test_the_layout_is_told,),
    "an idle poll hears of no layout": (layout.test_an_idle_poll_hears_of_the_layout,),
    "a dead relay stays": (heartbeat.test_a_relay_that_is_silent,),
    "a relay of a later clock stays": (heartbeat.test_the_clock_steps_back,),
    "a relay that leaves stays": (heartbeat.test_a_relay_that_leaves,),
}
