"""One-line breaks of the action log, and the scenarios that notice each."""

from __future__ import annotations

from tests.lua import test_record as record
from tests.lua.killers_failure import Scenario
from tests.worlds.scripts.rules import Break

OF_RECORD = {
    "each relay tells of a policy": Break("people/record", "one-entry-a-policy"),
    "the policy before is forgotten": Break("people/record", "policy-before-is-said"),
    "a full Redis is purged unrecorded": Break("people/record", "record-begins-with-a-delete"),
    "the record grows": Break(
        "people/record", "record-trimmed", "0", old="redis.call('XTRIM', actions, 'MAXLEN', keep)"
    ),
    "nobody has asked for it": Break("lib/journal", "who-asked-is-noted", "''", old="bytes(BATCH_BY, BY)"),
    "no relay has done it": Break("lib/journal", "who-asked-is-noted", "''", old="bytes(BATCH_RELAY, RELAY)"),
}

KILLERS: dict[str, tuple[Scenario, ...]] = {
    "each relay tells of a policy": (record.test_a_policy_has_one_entry,),
    "the policy before is forgotten": (record.test_a_policy_has_one_entry,),
    "a full Redis is purged unrecorded": (record.test_a_full_redis_takes_an_entry,),
    "the record grows": (record.test_the_oldest_entries_go,),
    "nobody has asked for it": (record.test_the_journal_says_who_asked,),
    "no relay has done it": (record.test_the_journal_says_which_relay,),
}
