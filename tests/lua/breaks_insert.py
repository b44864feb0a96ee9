"""One-line breaks of what a load's run relies on, and the scenarios that notice each."""

from __future__ import annotations

from tests.lua import test_insert as insert
from tests.lua.bench import Break
from tests.lua.killers_failure import Scenario

ADDED = "  redis.call('ZADD', KEYS[1], unpack(timers))\n"
CLEARED = "  if held then redis.call('HDEL', KEYS[3], unpack(added)) end\n"
WRITTEN = "if #decided > 0 then redis.call('SADD', KEYS[4], unpack(decided)) end\n"
INSERTED = "add_chosen(ARGV[1], ARGV[4], note_inserted)\n"

OF_INSERT = {
    "the run's ledger not read": Break("bulk/insert", "  if known[n] == 0 then\n", "  if true then\n"),
    "the run's ledger not written": Break("bulk/insert", WRITTEN, ""),
    "the run's ledger written first": Break("bulk/insert", INSERTED, WRITTEN + INSERTED),
    "the run's ledger never expires": Break("bulk/insert", "redis.call('EXPIRE', KEYS[4], ARGV[2])\n", ""),
    "long ids as they are": Break("bulk/insert", "  if #id > LONGEST then\n", "  if false then\n"),
    "insert spares nothing": Break("bulk/insert", "if spare and found[n] then", "if false then"),
    "insert always spares": Break("bulk/insert", "local spare = ARGV[3] == 'spare'", "local spare = true"),
    "what was spared comes later": Break(
        "bulk/insert",
        "    decided[#decided + 1] = name\n    if spare and found[n] then\n",
        "    if not (spare and found[n]) then decided[#decided + 1] = name end\n"
        "    if spare and found[n] then\n",
    ),
    "insert begins with a delete": Break("bulk/insert", ADDED + CLEARED, CLEARED + ADDED),
    "insert leaves the lease": Break("bulk/insert", CLEARED, ""),
    "envelopes of other inserted rows": Break("bulk/insert", "ids[n], envelopes[n]", "ids[n], envelopes[m]"),
    "scores of other inserted rows": Break(
        "bulk/insert", "= scores[n], ids[n], ids[n]", "= scores[m], ids[n], ids[n]"
    ),
    "inserted timers never expire": Break("bulk/insert", "if (expires[n] or 0) > 0 then", "if false then"),
    "no hint from insert": Break("bulk/insert", "hint(channel, before, head())", ""),
    "what is inserted not in the journal": Break(
        "bulk/insert", "      note(SCHEDULED,", "      note(EXTENDED,"
    ),
    "what is replaced not in the journal": Break("bulk/insert", "    if old then\n", "    if false then\n"),
}

KILLERS: dict[str, tuple[Scenario, ...]] = {
    "the run's ledger not read": (
        insert.test_what_was_delivered_stays_away,
        insert.test_what_was_cancelled_or_moved_stays_so,
        insert.test_a_lease_of_this_runs_timer_stands,
    ),
    "the run's ledger not written": (insert.test_what_was_delivered_stays_away,),
    "the run's ledger written first": (insert.test_a_ledger_that_is_refused,),
    "the run's ledger never expires": (insert.test_new_timers_are_inserted,),
    "long ids as they are": (insert.test_long_ids, insert.test_what_the_cold_store_was_told_of),
    "insert spares nothing": (insert.test_what_lives_is_spared,),
    "insert always spares": (insert.test_runs_are_apart,),
    "what was spared comes later": (insert.test_what_lives_is_spared,),
    "insert begins with a delete": (insert.test_a_full_redis_beside_a_lease,),
    "insert leaves the lease": (insert.test_new_timers_are_inserted,),
    "envelopes of other inserted rows": (insert.test_a_batch_of_the_largest_size,),
    "scores of other inserted rows": (insert.test_a_batch_of_the_largest_size,),
    "inserted timers never expire": (insert.test_timers_that_expire,),
    "no hint from insert": (insert.test_an_earlier_head_is_hinted,),
    "what is inserted not in the journal": (insert.test_the_journal_has_what_is_inserted,),
    "what is replaced not in the journal": (insert.test_the_journal_has_what_is_inserted,),
}
