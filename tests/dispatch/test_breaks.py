"""Each rule of the scripts of lists and streams is held by a test: one line broken, and it must fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest

from relay.core.dispatch import Reclaim
from relay.core.outcomes import Verb
from relay.core.policy import TopicPolicy
from relay.store.server.scripts import source
from tests.dispatch import test_list as ready
from tests.dispatch import test_stream as stream
from tests.dispatch.desk import BILLING, LIST, Desk
from tests.lua.bench import Break

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

Scenario = Callable[[Desk], Awaitable[None]]


class Held(NamedTuple):
    """A break, the dispatch that it is of, and what has to fail under it."""

    broken: Break
    policy: TopicPolicy
    killer: Scenario


def of_list(script: str, old: str, new: str, killer: Scenario) -> Held:
    return Held(Break(script, old, new), LIST, killer)


def of_stream(script: str, old: str, new: str, killer: Scenario) -> Held:
    return Held(Break(script, old, new), BILLING, killer)


no_push = partial(ready.test_a_right_that_is_missing_loses_nothing, right="lpush")
no_zrem = partial(ready.test_a_right_that_is_missing_loses_nothing, right="zrem")
no_xadd = partial(ready.test_a_right_that_is_missing_loses_nothing, right="xadd")
no_hdel = partial(ready.test_a_right_that_is_missing_loses_nothing, right="hdel")
no_rpush = partial(ready.test_a_return_that_is_not_permitted, right="rpush")
no_hset = partial(ready.test_a_return_that_is_not_permitted, right="hset")
dedicated = partial(stream.test_who_reclaims, reclaim=Reclaim.DEDICATED, new=[], left=["a"])
sent = partial(stream.test_a_release, flags={}, attempt=1, claims=2)
unsent = partial(stream.test_a_release, flags={"unsent": True}, attempt=1, claims=1)
received = partial(stream.test_a_release, flags={"received": True}, attempt=2, claims=2)
in_steps = partial(stream.test_what_is_not_for_us_is_taken_in_steps, fields={"only_group": "audit"})
dropped = partial(stream.test_what_was_dropped_can_t_come_again, verb=Verb.RESCHEDULE)
looks_alike = partial(ready.test_an_entry_that_looks_like_ours, theirs={"headers": {"a": {}}})

BREAKS = {
    # Bounds of a claim
    "any number that is not for us": of_stream("stream/claim", "LOOK - looked, ", "", in_steps),
    "a round that begins anew without room": of_stream(
        "stream/claim",
        "  next_cursor = cursor --",
        "  --",
        stream.test_a_round_goes_on_after_claims_without_room,
    ),
    "what was acknowledged is missed": of_stream(
        "stream/claim",
        "elseif before[n] > 0 then",
        "elseif true then",
        stream.test_a_plain_consumer_ends_what_waits,
    ),
    "one occurrence for all that come again": of_stream(
        "stream/claim",
        "string.sub(redis.sha1hex(ARGV[3] .. part[n]), 1, 32)",
        "hex(ARGV[3])",
        stream.test_equal_ids_come_again_as_two_occurrences,
    ),
    "what was dropped is rescheduled": of_stream(
        "stream/settle",
        "  if not it then return lost(id) end\n  move",
        "  if not it then return forget(id) end\n  move",
        dropped,
    ),
    "foreign headers are taken as they are": of_list(
        "list/reclaim", "type(text) == 'string' and #name", "#name", looks_alike
    ),
    "large ones behind a small one": of_list(
        "list/promote",
        "math.min(at_once, math",
        "math.min(100, math",
        ready.test_large_ones_behind_a_small_one,
    ),
    "large new ones behind small ones": of_stream(
        "stream/claim",
        "LOOK - looked, at_once,",
        "LOOK - looked, 100,",
        stream.test_large_ones_behind_small_ones,
    ),
    "any number of bytes of a processing list": of_list(
        "list/reclaim", " and size < BYTES", "", ready.test_large_entries_come_back_in_steps
    ),
    "what stands behind others is not seen": of_list(
        "list/reclaim", "passed + #entries - #gone, scan", "'', scan", ready.test_behind_other_peoples_entries
    ),
    "what is finished among many is remembered": of_list(
        "list/reclaim",
        "at_end and 0 or patience + ROUND",
        "at_end and 0 or 1e18",
        ready.test_what_is_finished_among_many_is_forgotten,
    ),
    "what is still at work among many is forgotten": of_list(
        "list/reclaim",
        "at_end and 0 or patience + ROUND",
        "0",
        ready.test_what_is_finished_among_many_is_forgotten,
    ),
    "what comes back is taken last": of_list(
        "list/reclaim",
        "for n = #entries, 1, -1 do",
        "for n = 1, #entries do",
        ready.test_large_entries_come_back_in_steps,
    ),
    # Promotion
    "early": of_list(
        "list/promote", "'-inf', number(now_us / 1e6), 'W", "'-inf', '+inf', 'W", ready.test_never_early
    ),
    "pushed before it is known that it can be removed": of_list(
        "list/promote", "  redis.call('ZREM', KEYS[1], NO_NONCE)\n", "", no_zrem
    ),
    "pushed before it is known that it can be recorded": of_list(
        "list/promote", "  if JOURNAL then may_add() end\n", "", no_xadd
    ),
    "nothing is removed": of_list(
        "list/promote",
        "    redis.call('ZREM', KEYS[1], unpack(gone))\n",
        "",
        ready.test_a_due_timer_moves_whole,
    ),
    "removed before it is pushed": of_list(
        "list/promote",
        "  if #batch > 0 then push(batch) end\n",
        "  redis.call('ZREM', KEYS[1], unpack(gone))\n  if #batch > 0 then push(batch) end\n",
        no_push,
    ),
    "a push first": of_list(
        "list/promote",
        "  redis.call('HDEL', KEYS[3], NO_NONCE)\n  redis.call('HDEL', KEYS[2], NO_NONCE)\n"
        "  redis.call('ZREM', KEYS[1], NO_NONCE)\n",
        "",
        ready.test_a_full_redis_drains,
    ),
    "an expired one is promoted": of_list(
        "list/promote",
        "local reason = expired and 'expired' or",
        "local reason =",
        ready.test_the_expired_die,
    ),
    "an id that is not UTF-8 is promoted": of_list(
        "list/promote", "not readable(id) and 'unreadable'", "nil", ready.test_who_can_t_be_named_in_json_dies
    ),
    "a pause is not looked at": of_list(
        "list/promote",
        "if now_us >= (tonumber(till or 0) or 0) then",
        "if true then",
        ready.test_a_pause_holds,
    ),
    "the latest first": of_list(
        "list/promote",
        "entries[n] = entry_of",
        "table.insert(entries, 1, ''); entries[1] = entry_of",
        ready.test_the_earliest_is_taken_first,
    ),
    "the occurrence begins anew": of_list(
        "list/promote",
        "(r.occurrence == NO_NONCE and own or hex(r.occurrence))",
        "own",
        ready.test_the_lease_of_another_dispatch_lapses,
    ),
    "one occurrence for all": of_list(
        "list/promote", "local own = hex(nonce)", "local own = ''", ready.test_equal_messages_arrive_twice
    ),
    "a sweep is not told": of_list("list/promote", "    mark(gone)\n", "", ready.test_a_sweep_is_told),
    "no grace": of_list(
        "list/promote",
        "if not envelopes[n] and r.state ~= PARKED then",
        "if false then",
        ready.test_a_timer_without_payload_is_parked,
    ),
    "orphans stay": of_list(
        "list/promote",
        "if not envelopes[n] and r.state ~= PARKED then",
        "if not envelopes[n] then",
        ready.test_an_orphan_is_removed,
    ),
    "no record of it": of_list(
        "list/promote",
        "          note(\n            PROMOTED,\n            id,\n",
        "          local _ = (id ..\n",
        ready.test_the_journal_says_so,
    ),
    "buried before it is known that the rest can be pushed": of_list(
        "list/promote",
        "if may and #dead > 0 and #batch > 0 then may() end",
        "",
        ready.test_who_dies_beside_one_that_is_not_pushed,
    ),
    "a lease that lapsed counts as late": of_list(
        "list/promote", "if each[2].claims == 0 then", "if true then", ready.test_how_late_it_is
    ),
    # The processing list
    "returned before it is known that it can be noted": of_list(
        "list/reclaim", "  redis.call('HSET', KEYS[8], NO_NONCE, '')\n", "", no_hset
    ),
    "buried before it is known that others can be returned": of_list(
        "list/reclaim", "  if #back > 0 then may_push('RPUSH') end\n", "", no_rpush
    ),
    "given back at once": of_list(
        "list/reclaim",
        "elseif now_us - it.since >= patience then",
        "else",
        ready.test_what_the_dead_have_left_comes_back,
    ),
    "never given back": of_list(
        "list/reclaim",
        "  if #back > 0 then redis.call('RPUSH', KEYS[6], unpack(back)) end"[2:],
        "",
        ready.test_what_the_dead_have_left_comes_back,
    ),
    "given back behind all": of_list(
        "list/reclaim",
        "redis.call('RPUSH', KEYS[6]",
        "redis.call('LPUSH', KEYS[6]",
        ready.test_what_the_dead_have_left_comes_back,
    ),
    "the time goes on": of_list(
        "list/reclaim",
        "string.format('-%.0f;%d', now_us, it.times)",
        "string.format('%.0f;%d', it.since, it.times)",
        ready.test_the_time_begins_anew,
    ),
    "returns are not counted": of_list(
        "list/reclaim",
        "it.times = it.times + 1",
        "it.times = it.times",
        ready.test_what_kills_every_worker_dies,
    ),
    "what is finished is remembered": of_list(
        "list/reclaim", "if #finished > 0 then", "if false then", ready.test_who_finishes_is_left_alone
    ),
    "other people's entries are taken": of_list(
        "list/reclaim",
        "type(head.occurrence_id) ~= 'string' or ",
        "",
        ready.test_other_peoples_entries_are_left_alone,
    ),
    # The fence of a group
    "consumer not compared": of_stream(
        "stream/settle", "owner ~= consumer or ", "", stream.test_an_entry_that_was_moved
    ),
    "deliveries not compared": of_stream(
        "stream/settle",
        "deliveries ~= tonumber(ARGV[at + 1]) or ",
        "",
        stream.test_who_comes_back_to_its_own_entry,
    ),
    "waiting not compared": of_stream("stream/settle", " or waiting[n]", "", stream.test_a_nack_waits),
    "a renewal compares nothing": of_stream(
        "stream/extend",
        "owner ~= consumer or deliveries ~= tonumber(ARGV[at + 1]) or waiting[n]",
        "false",
        stream.test_the_dead_leave_their_entries,
    ),
    "a renewal counts a delivery": of_stream(
        "stream/extend", "  table.insert(held, 'JUSTID')\n", "", stream.test_a_renewal_keeps_it
    ),
    "a renewal renews nothing": of_stream(
        "stream/extend",
        "  redis.call('XCLAIM', KEYS[6], group, consumer, 0, unpack(held))\n",
        "",
        stream.test_a_renewal_keeps_it,
    ),
    "a receipt is not noted": of_stream(
        "stream/extend", "k.received = 1", "k.received = 0", stream.test_a_receipt_counts
    ),
    # Taking
    "groups begin behind the timers": of_stream(
        "stream/claim",
        "local done = promote(",
        "redis.call('XGROUP', 'SETID', KEYS[6], group, '$') local done = promote(",
        stream.test_a_promoter_and_a_reader,
    ),
    "a group that was lost begins behind the timers": of_stream(
        "stream/claim",
        "group, ARGV[16], 'MKSTREAM'",
        "group, '$', 'MKSTREAM'",
        stream.test_a_group_that_was_lost,
    ),
    "a group that was lost is made behind the timers": of_stream(
        "stream/promote",
        "ARGV[5], ARGV[12], 'MKSTREAM'",
        "ARGV[5], '$', 'MKSTREAM'",
        stream.test_a_group_that_was_lost_is_promoted_to,
    ),
    "what waited in a group that was lost is acknowledged": of_stream(
        "stream/claim",
        "forgotten[#forgotten + 1] = id",
        "acked[#acked + 1] = id",
        stream.test_a_wait_in_a_group_that_was_lost,
    ),
    "a plain consumer's work is taken from it": of_stream(
        "stream/claim",
        "      if at then\n        later",
        "      if false then\n        later",
        stream.test_a_plain_consumer_is_left_at_work,
    ),
    "what a plain consumer has is never taken": of_stream(
        "stream/claim", " and idle * 1000 < lease then", " then", stream.test_a_plain_consumer_is_left_at_work
    ),
    "who had it last is not known": of_stream(
        "stream/settle",
        "k.received, k.deliveries = 0, deliveries",
        "k.received = 0",
        stream.test_a_plain_consumer_is_left_at_work,
    ),
    "the idle are left": of_stream(
        "stream/claim", "and summary[1] > 0 then", "and false then", stream.test_the_dead_leave_their_entries
    ),
    "who waits is taken when idle": of_stream(
        "stream/claim", "if not at then left", "if true then left", stream.test_a_nack_waits
    ),
    "a lapse is not counted": of_stream(
        "stream/claim", "if k.received == 1 then", "if false then", stream.test_a_receipt_counts
    ),
    "a lapse is counted again and again": of_stream(
        "stream/claim", "k.attempts + 1, 1, 0\n", "k.attempts + 1, 1, 1\n", stream.test_a_receipt_counts
    ),
    "the expired are delivered": of_stream(
        "stream/claim",
        "local reason = expired and 'expired' or fate(before",
        "local reason = fate(before",
        stream.test_the_expired_die,
    ),
    "limits are not looked at": of_stream(
        "stream/claim", "or fate(before, now_us, limits)", "or nil", stream.test_the_last_lapse_is_a_death
    ),
    "the dead stay pending": of_stream(
        "stream/claim",
        "  redis.call('XACK', KEYS[6], group, unpack(acked))\n",
        "",
        stream.test_the_last_lapse_is_a_death,
    ),
    "somebody else's second try is taken": of_stream(
        "stream/claim",
        "if it.only_group and it.only_group ~= group then",
        "if false then",
        stream.test_a_reschedule_is_its_groups,
    ),
    "what is trimmed stays pending": of_stream(
        "stream/claim",
        "    missing = missing + 1\n    acked[#acked + 1] = id\n  end\n",
        "missing = missing",
        stream.test_a_limit_drops_and_says_so,
    ),
    "more is left until something happens": of_stream(
        "stream/claim",
        "more and number(now_us / 1e6) or next_for_us()",
        "next_for_us()",
        stream.test_more_is_taken_at_once,
    ),
    "more is told where there is none": of_stream(
        "stream/claim",
        "#redis.call('XRANGE', KEYS[6], '(' .. last, '+', 'COUNT', 1) > 0",
        "true",
        stream.test_more_is_taken_at_once,
    ),
    "a dedicated one takes what is new": of_stream(
        "stream/claim", "while ARGV[9] ~= '' do", "while true do", dedicated
    ),
    "a pause is not looked at by a group": of_stream(
        "stream/claim",
        "if now_us < (tonumber(till or 0) or 0) then",
        "if false then",
        stream.test_a_pause_holds,
    ),
    "no bound by bytes": of_stream(
        "stream/claim",
        "math.ceil((room - bytes) / (bytes / looked + 1))",
        "limit",
        stream.test_bounded_by_bytes,
    ),
    # Ends
    "an ack leaves it pending": of_stream(
        "stream/settle",
        "if #acked > 0 then redis.call('XACK', KEYS[6], group, unpack(acked)) end",
        "",
        stream.test_an_ack_ends_it_for_the_group_alone,
    ),
    "a nack does not count": of_stream(
        "stream/settle",
        "k.attempts, k.suspect = k.attempts + 1, 0",
        "k.suspect = 0",
        stream.test_a_nack_waits,
    ),
    "a nack does not wait": of_stream(
        "stream/settle", "(now_us + wait) / 1e6", "now_us / 1e6", stream.test_a_nack_waits
    ),
    "the lease's end is not reckoned": of_stream(
        "stream/settle", "- idle * 1000, 0)", ", 0)", stream.test_a_nack_without_a_delay
    ),
    "a release that was received does not count": of_stream(
        "stream/settle", "if received then k.attempts = k.attempts + 1 end", "", received
    ),
    "what was not sent counts": of_stream(
        "stream/settle", "k.unsent = k.unsent + 1", "k.unsent = k.unsent", unsent
    ),
    "attempts without end": of_stream(
        "stream/settle",
        "if reason then return die(id, k, deliveries, reason, text) end",
        "",
        stream.test_out_of_attempts,
    ),
    "a letter without its group": of_stream(
        "stream/settle", ", 'group', group)", ")", stream.test_out_of_attempts
    ),
    "a reschedule stays pending": of_stream(
        "stream/settle",
        "  seen[id] = 'again'\n  return forget(id)",
        "  seen[id] = 'again'\n  return 'OK'",
        stream.test_a_reschedule_is_its_groups,
    ),
    "a reschedule forgets the new payload": of_stream(
        "stream/settle",
        "envelope ~= '' and envelope or it.envelope",
        "it.envelope",
        stream.test_a_reschedule_is_its_groups,
    ),
    "an end begins with an addition": of_stream(
        "stream/settle",
        "redis.call('HDEL', KEYS[8], NO_NONCE)\nbury_here",
        "bury_here",
        stream.test_a_full_redis_drains,
    ),
    # Tidying
    "one group's word is enough": of_stream(
        "stream/tidy",
        "if not floor or before(needs, floor) then",
        "if not floor or before(floor, needs) then",
        stream.test_trimmed_is_what_all_have_acknowledged,
    ),
    "what is pending is trimmed": of_stream(
        "stream/tidy",
        "if group.pending > 0 then",
        "if false then",
        stream.test_trimmed_is_what_all_have_acknowledged,
    ),
    "consumers go with what they hold": of_stream(
        "stream/tidy",
        "if consumer.pending == 0 and consumer.idle",
        "if consumer.idle",
        stream.test_consumers_that_are_gone,
    ),
    "nothing beyond whole nodes": of_stream(
        "stream/tidy",
        "trimmed = trimmed + redis.call('XTRIM', KEYS[6], 'MINID', floor)",
        "trimmed = trimmed",
        stream.test_many_are_trimmed,
    ),
    "no limit": of_stream(
        "stream/tidy", "if most > 0 and", "if false and", stream.test_a_limit_drops_and_says_so
    ),
    "dropped while there is more to trim": of_stream(
        "stream/tidy",
        "most > 0 and trimmed < step / 2 and",
        "most > 0 and",
        stream.test_more_is_trimmed_at_once,
    ),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_a_break_is_noticed(valkey: RunningServer, keyspace: Keyspace, name: str) -> None:
    """Whole, the scenario passes; broken, it fails."""
    held = BREAKS[name]
    assert source(held.broken.script).count(held.broken.old) == 1, "else it would fail of that"
    for broken in (False, True):
        desk = Desk(valkey, keyspace.topic(), held.policy, *([held.broken] if broken else []))
        try:
            if broken:
                with pytest.raises(BaseException) as failure:  # noqa: PT011  (whichever way it fails)
                    await held.killer(desk)
                assert not isinstance(failure.value, KeyboardInterrupt | SystemExit)
            else:
                await held.killer(desk)
        finally:
            await desk.close()
