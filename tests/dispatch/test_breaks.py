"""Each rule of the scripts of lists and streams is held by a test: one line broken, and it must fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from relay.core.dispatch import Reclaim
from relay.core.outcomes import Verb
from relay.core.policy import TopicPolicy
from tests.dispatch import test_list as ready
from tests.dispatch import test_lost_claims as lost
from tests.dispatch import test_stream as stream
from tests.worlds.scripts.desk import BILLING, LIST, Desk
from tests.worlds.scripts.rules import Break

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow

Scenario = Callable[[Desk], Awaitable[None]]


class Held(NamedTuple):
    """A break, the dispatch that it is of, and what has to fail under it."""

    broken: Break
    policy: TopicPolicy
    killer: Scenario


def of_list(killer: Scenario, *broken: Any, **rest: Any) -> Held:
    return Held(Break(*broken, **rest), LIST, killer)


def of_stream(killer: Scenario, *broken: Any, **rest: Any) -> Held:
    return Held(Break(*broken, **rest), BILLING, killer)


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
tried_again = partial(stream.test_what_was_dropped_can_t_come_again, verb=Verb.NACK)
looks_alike = partial(ready.test_an_entry_that_looks_like_ours, theirs={"headers": {"a": {}}})

BREAKS = {
    # Bounds of a claim
    "any number that is not for us": of_stream(
        in_steps, "stream/claim", "claim-bounded", "", old="LOOK - looked,"
    ),
    "a round that begins anew without room": of_stream(
        stream.test_a_round_goes_on_after_claims_without_room,
        "stream/claim",
        "round-goes-on-without-room",
        "--",
        old="next_cursor = cursor --",
    ),
    "what was acknowledged is missed": of_stream(
        stream.test_a_plain_consumer_ends_what_waits,
        "stream/claim",
        "acknowledged-elsewhere-told-apart",
        "elseif true then",
        old="elseif before[n] > 0 then",
    ),
    "one occurrence for all that come again": of_stream(
        stream.test_equal_ids_come_again_as_two_occurrences,
        "stream/claim",
        "no-two-occurrences-alike",
        "hex(nonce)",
        old="string.sub(redis.sha1hex(nonce .. part[n]), 1, 32)",
    ),
    "what was dropped is rescheduled": of_stream(
        dropped, "stream/settle", "dropped-is-lost", "if not it then return forget(id) end"
    ),
    "what was dropped is tried again": of_stream(
        tried_again, "lib/outcomes", "lost-is-told", "if text and find then find(r) end"
    ),
    "foreign headers are taken as they are": of_list(
        looks_alike, "list/reclaim", "only-our-headers-taken", "#name", old="type(text) == 'string' and #name"
    ),
    "large ones behind a small one": of_list(
        ready.test_large_ones_behind_a_small_one,
        "lib/dispatch/promotion",
        "promotion-reads-by-room",
        "some = as_many_as_fit(max_bytes - size, largest, 100)",
    ),
    "large new ones behind small ones": of_stream(
        stream.test_large_ones_behind_small_ones,
        "stream/claim",
        "claim-bounded",
        "LOOK - looked, 100,",
        old="LOOK - looked, at_once,",
    ),
    "any number of bytes of a processing list": of_list(
        ready.test_large_entries_come_back_in_steps,
        "list/reclaim",
        "bytes-bounded",
        "",
        old="and size < BYTES",
    ),
    "what stands behind others is not seen": of_list(
        ready.test_behind_other_peoples_entries,
        "list/reclaim",
        "look-goes-on-behind",
        "'', scan",
        old="passed + #entries - #gone, scan",
    ),
    "what is finished among many is remembered": of_list(
        ready.test_what_is_finished_among_many_is_forgotten,
        "list/reclaim",
        "finished-waits-for-whole-look",
        "at_end and 0 or 1e18",
        old="at_end and 0 or patience + ROUND",
    ),
    "what is still at work among many is forgotten": of_list(
        ready.test_what_is_finished_among_many_is_forgotten,
        "list/reclaim",
        "finished-waits-for-whole-look",
        "0",
        old="at_end and 0 or patience + ROUND",
    ),
    "what comes back is taken last": of_list(
        ready.test_large_entries_come_back_in_steps,
        "list/reclaim",
        "oldest-returned-last",
        "for n = 1, #entries do",
        old="for n = #entries, 1, -1 do",
    ),
    # Promotion
    "early": of_list(
        ready.test_never_early,
        "lib/dispatch/promotion",
        "promotion-never-early",
        "'-inf', '+inf', 'W",
        old="'-inf', number(now_us / 1e6), 'W",
    ),
    "pushed before it is known that it can be removed": of_list(
        no_zrem, "lib/dispatch/promotion", "removal-tried-before-push"
    ),
    "pushed before it is known that it can be recorded": of_list(
        no_xadd, "list/promote", "record-asked-before-push"
    ),
    "nothing is removed": of_list(
        ready.test_a_due_timer_moves_whole, "lib/dispatch/promotion", "promoted-removed"
    ),
    "removed before it is pushed": of_list(
        no_push,
        "lib/dispatch/promotion",
        "push-before-removal",
        "redis.call('ZREM', timeline, unpack(ended))\n@1",
    ),
    "a push first": of_list(
        ready.test_a_full_redis_drains, "lib/dispatch/promotion", "promotion-begins-with-deletes", lines=3
    ),
    "an expired one is promoted": of_list(ready.test_the_expired_die, "lib/life", "expiry-by-the-clock"),
    "an id that is not UTF-8 is promoted": of_list(
        ready.test_who_can_t_be_named_in_json_dies, "lib/life", "unreadable-die"
    ),
    "a pause is not looked at": of_list(
        ready.test_a_pause_holds, "list/promote", "list-pause-holds", "if true then"
    ),
    "the latest first": of_list(
        ready.test_the_earliest_is_taken_first,
        "list/promote",
        "earliest-first",
        "table.insert(entries, 1, ''); entries[1] = entry_of",
        old="entries[n] = entry_of",
    ),
    "the occurrence begins anew": of_list(
        ready.test_the_lease_of_another_dispatch_lapses,
        "lib/dispatch/promotion",
        "promotion-keeps-occurrence",
        "own",
        old="(r.occurrence == NO_NONCE and own or hex(r.occurrence))",
    ),
    "one occurrence for all": of_list(
        ready.test_equal_messages_arrive_twice,
        "lib/dispatch/promotion",
        "occurrence-from-nonce",
        "local own = ''",
    ),
    "a sweep is not told": of_list(ready.test_a_sweep_is_told, "lib/timeline", "end-marked"),
    "no grace": of_list(
        ready.test_a_timer_without_payload_is_parked,
        "lib/life",
        "parked-once",
        "if not has_payload then return 'ORPHANED' end",
    ),
    "orphans stay": of_list(
        ready.test_an_orphan_is_removed, "lib/life", "parked-once", "if false then return 'ORPHANED' end"
    ),
    "no record of it": of_list(ready.test_the_journal_says_so, "lib/dispatch/promotion", "promotion-noted"),
    "buried before it is known that the rest can be pushed": of_list(
        ready.test_who_dies_beside_one_that_is_not_pushed,
        "lib/dispatch/promotion",
        "push-asked-before-burial",
        "",
        old="if may and #letters > 0 and #batch > 0 then may() end",
    ),
    "a lease that lapsed counts as late": of_list(
        ready.test_how_late_it_is,
        "list/promote",
        "lateness-of-first-deliveries",
        "if true then",
        old="if each[2].claims == 0 then",
    ),
    # The processing list
    "returned before it is known that it can be noted": of_list(
        no_hset, "list/reclaim", "note-asked-before-return"
    ),
    "buried before it is known that others can be returned": of_list(
        no_rpush, "list/reclaim", "push-asked-before-return"
    ),
    "a later clock counts": of_list(
        ready.test_an_entry_of_a_later_clock,
        "list/reclaim",
        "later-clocks-do-not-count",
        "if not it.since or it.since < 0 then",
    ),
    "idle times of a recall begin anew": of_stream(
        stream.test_idle_times_that_have_begun, "stream/recall", "idle-times-that-run-stay", "if true then"
    ),
    "a recall counts a delivery": of_stream(
        stream.test_idle_times_begin, "stream/recall", "recall-counts-no-delivery"
    ),
    "a recall takes entries": of_stream(
        stream.test_idle_times_begin, "stream/recall", "idle-times-begin", "'nobody'", old="owner"
    ),
    "given back at once": of_list(
        ready.test_what_the_dead_have_left_comes_back, "list/reclaim", "patience-kept", "else"
    ),
    "never given back": of_list(
        ready.test_what_the_dead_have_left_comes_back,
        "list/reclaim",
        "returned-as-next",
        "",
        old="if #back > 0 then redis.call('RPUSH', ready, unpack(back)) end",
    ),
    "given back behind all": of_list(
        ready.test_what_the_dead_have_left_comes_back,
        "list/reclaim",
        "returned-as-next",
        "redis.call('LPUSH', ready",
        old="redis.call('RPUSH', ready",
    ),
    "the time goes on": of_list(
        ready.test_the_time_begins_anew,
        "list/reclaim",
        "returns-start-anew",
        "string.format('%.0f;%d', it.since, it.times)",
        old="string.format('-%.0f;%d', now_us, it.times)",
    ),
    "returns are not counted": of_list(
        ready.test_what_kills_every_worker_dies, "list/reclaim", "returns-counted", "it.times = it.times"
    ),
    "what is finished is remembered": of_list(
        ready.test_who_finishes_is_left_alone,
        "list/reclaim",
        "finished-forgotten",
        "if false then",
        old="if #finished > 0 then",
    ),
    "other people's entries are taken": of_list(
        ready.test_other_peoples_entries_are_left_alone,
        "list/reclaim",
        "only-ours-taken",
        "",
        old="type(head.occurrence_id) ~= 'string' or",
    ),
    # The fence of a group
    "consumer not compared": of_stream(
        stream.test_an_entry_that_was_moved, "stream/settle", "group-fence", "", old="owner ~= consumer or"
    ),
    "deliveries not compared": of_stream(
        stream.test_who_comes_back_to_its_own_entry,
        "stream/settle",
        "group-fence",
        "",
        old="deliveries ~= tonumber(ARGV[at + 1]) or",
    ),
    "waiting not compared": of_stream(
        stream.test_a_nack_waits, "stream/settle", "group-fence", "", old="or waiting[n]"
    ),
    "a renewal compares nothing": of_stream(
        stream.test_the_dead_leave_their_entries,
        "stream/extend",
        "group-fence-on-renewal",
        "false",
        old="owner ~= consumer or deliveries ~= tonumber(ARGV[at + 1]) or waiting[n]",
    ),
    "a renewal counts a delivery": of_stream(
        stream.test_a_renewal_keeps_it, "stream/extend", "renewal-counts-no-delivery"
    ),
    "a renewal renews nothing": of_stream(stream.test_a_renewal_keeps_it, "stream/extend", "renewal-renews"),
    "a receipt is not noted": of_stream(
        stream.test_a_receipt_counts, "stream/extend", "stream-receipt-recorded", "k.received = 0"
    ),
    # Taking
    "groups begin behind the timers": of_stream(
        stream.test_a_promoter_and_a_reader,
        "stream/claim",
        "group-keeps-its-place",
        "redis.call('XGROUP', 'SETID', stream, group_name, '$') local promoted = promote(",
        old="local promoted = promote(",
    ),
    "a group that was lost begins behind the timers": of_stream(
        stream.test_a_group_that_was_lost,
        "stream/claim",
        "group-begins-where-told",
        "group_name, '$', 'MKSTREAM'",
        old="group_name, begins, 'MKSTREAM'",
    ),
    "a group that was lost is made behind the timers": of_stream(
        stream.test_a_group_that_was_lost_is_promoted_to,
        "stream/promote",
        "promoter-group-begins-where-told",
        "group_name, '$', 'MKSTREAM'",
        old="group_name, begins, 'MKSTREAM'",
    ),
    "what waited in a group that was lost is acknowledged": of_stream(
        stream.test_a_wait_in_a_group_that_was_lost,
        "stream/claim",
        "unknown-entries-forgotten",
        "acked[#acked + 1] = id",
    ),
    "a plain consumer's work is taken from it": of_stream(
        stream.test_a_plain_consumer_is_left_at_work,
        "stream/claim",
        "plain-consumer-left-at-work",
        "if false then",
    ),
    "what a plain consumer has is never taken": of_stream(
        stream.test_a_plain_consumer_is_left_at_work,
        "stream/claim",
        "plain-consumer-has-a-lease",
        "then",
        old="and idle * 1000 < lease then",
    ),
    "who had it last is not known": of_stream(
        stream.test_a_plain_consumer_is_left_at_work,
        "stream/settle",
        "last-delivery-known",
        "k.entry, k.claims = id, deliveries - k.unsent",
    ),
    "the idle are left": of_stream(
        stream.test_the_dead_leave_their_entries,
        "stream/claim",
        "idle-taken",
        "and false then",
        old="and summary[1] > 0 then",
    ),
    "who waits is taken when idle": of_stream(
        stream.test_a_nack_waits,
        "stream/claim",
        "waiting-not-taken",
        "if true then left",
        old="if not at then left",
    ),
    "a lapse is not counted": of_stream(stream.test_a_receipt_counts, "lib/life", "lapse-counts-receipt"),
    "a lapse is counted again and again": of_stream(
        stream.test_a_receipt_counts, "lib/life", "receipt-ends-with-lease"
    ),
    "a lapse is forgotten": of_stream(
        stream.test_a_receipt_counts, "stream/claim", "stream-lapse-kept", "if false then"
    ),
    "the expired are delivered": of_stream(stream.test_the_expired_die, "lib/life", "expiry-by-the-clock"),
    "limits are not looked at": of_stream(
        stream.test_the_last_lapse_is_a_death, "lib/life", "claim-asks-for-ends", "local reason = nil"
    ),
    "the dead stay pending": of_stream(
        stream.test_the_last_lapse_is_a_death, "stream/claim", "stream-dead-acknowledged"
    ),
    "somebody else's second try is taken": of_stream(
        stream.test_a_reschedule_is_its_groups,
        "stream/claim",
        "retries-are-their-groups",
        "if false then",
        old="if it.only_group and it.only_group ~= group_name then",
    ),
    "what is trimmed stays pending": of_stream(
        stream.test_a_limit_drops_and_says_so,
        "stream/claim",
        "trimmed-acknowledged",
        "missing = missing  take_again(left)",
        lines=4,
    ),
    "more is left until something happens": of_stream(
        stream.test_more_is_taken_at_once,
        "stream/claim",
        "more-told",
        "next_for_us()",
        old="more and number(now_us / 1e6) or next_for_us()",
    ),
    "more is told where there is none": of_stream(
        stream.test_more_is_taken_at_once,
        "stream/claim",
        "more-looked-for",
        "true",
        old="#redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', 1) > 0",
    ),
    "a dedicated one takes what is new": of_stream(
        dedicated, "stream/claim", "dedicated-takes-nothing-new", "while true do"
    ),
    "a pause is not looked at by a group": of_stream(
        stream.test_a_pause_holds, "stream/claim", "stream-pause-holds", "if false then"
    ),
    "no bound by bytes": of_stream(
        stream.test_bounded_by_bytes,
        "stream/claim",
        "claim-bounded",
        "limit",
        old="math.ceil((max_bytes - bytes) / (bytes / looked + 1))",
    ),
    # What a claim took whose reply was lost
    "a claim is not kept": of_stream(lost.test_it_is_as_the_claim_said, "stream/claim", "latest-claim-kept"),
    "found under any nonce": of_stream(
        lost.test_an_earlier_claim_is_not_found,
        "stream/claimed",
        "latest-claim-by-nonce",
        "claim[1]",
        old="claim[1] == nonce",
    ),
    "found when its lease is over": of_stream(
        lost.test_a_lease_that_has_run_out,
        "stream/claimed",
        "latest-claim-by-nonce",
        "",
        old=" and tonumber(claim[2]) * 1e6 > now_us",
    ),
    "a group that is gone is asked": of_stream(
        lost.test_a_group_that_is_gone,
        "stream/claimed",
        "latest-claim-by-nonce",
        "",
        old=" and not redis.pcall('XPENDING', stream, group_name).err",
    ),
    "found with another consumer": of_stream(
        partial(lost.test_what_is_not_held_any_more, change=lost.taken_over, again=True),
        "stream/claimed",
        "found-by-the-fence",
        "",
        old="owner ~= consumer or ",
    ),
    "found though it was delivered once more": of_stream(
        partial(lost.test_what_is_not_held_any_more, change=lost.delivered_once_more, again=False),
        "stream/claimed",
        "found-by-the-fence",
        "",
        old=" or deliveries ~= by_claim",
    ),
    "found though it waits": of_stream(
        partial(lost.test_what_is_not_held_any_more, change=lost.settled, again=False),
        "stream/claimed",
        "found-unless-it-waits",
    ),
    "found though it was trimmed": of_stream(
        partial(lost.test_what_is_not_held_any_more, change=lost.trimmed, again=False),
        "stream/claimed",
        "found-in-the-stream",
        "entry = entry or { id, {} } do",
        old="if entry then",
    ),
    # Ends
    "an ack leaves it pending": of_stream(
        stream.test_an_ack_ends_it_for_the_group_alone, "stream/settle", "ends-acknowledged"
    ),
    "a nack does not count": of_stream(stream.test_a_nack_waits, "lib/outcomes", "nack-counts"),
    "a nack does not wait": of_stream(
        stream.test_a_nack_waits, "lib/outcomes", "nack-waits", "local wait = 0"
    ),
    "the lease's end is not reckoned": of_stream(
        stream.test_a_nack_without_a_delay,
        "stream/settle",
        "lease-end-reckoned",
        ", 0)",
        old="- idle * 1000, 0)",
    ),
    "a retry before the due time": of_stream(
        partial(stream.test_a_retry_is_never_early, verb=Verb.NACK),
        "stream/settle",
        "stream-return-not-early",
        "k.at_us / 1e6)",
        old="math.max(k.at_us / 1e6, own_due(id, k.due)))",
    ),
    "a foreign due time holds up a retry": of_stream(
        partial(stream.test_a_retry_of_what_others_added, due_time="inf"),
        "stream/settle",
        "foreign-due-holds-up-nothing",
        "return due or 0",
        old="return due and due * 1000 <= added_ms + 1 and due or 0",
    ),
    "a release that was received does not count": of_stream(received, "lib/outcomes", "release-counts"),
    "what was not sent counts": of_stream(unsent, "stream/settle", "unsent-counted"),
    "attempts without end": of_stream(
        stream.test_out_of_attempts, "lib/outcomes", "return-asks-for-ends", "local reason = nil"
    ),
    "a letter without its group": of_stream(
        stream.test_out_of_attempts,
        "lib/dispatch/stream_group",
        "letter-names-group",
        ")",
        old=", 'group', group_name)",
    ),
    "a reschedule stays pending": of_stream(
        stream.test_a_reschedule_is_its_groups,
        "stream/settle",
        "stream-reschedule-acknowledges",
        "return 'OK'",
    ),
    "a reschedule forgets the new payload": of_stream(
        stream.test_a_reschedule_is_its_groups,
        "stream/settle",
        "stream-reschedule-takes-payload",
        "it.envelope",
        old="envelope ~= '' and envelope or it.envelope",
    ),
    "an end begins with an addition": of_stream(
        stream.test_a_full_redis_drains, "stream/settle", "stream-settle-begins-with-a-delete"
    ),
    # Tidying
    "one group's word is enough": of_stream(
        stream.test_trimmed_is_what_all_have_acknowledged,
        "stream/tidy",
        "all-groups-asked",
        "if not floor or before(floor, needs) then",
        old="if not floor or before(needs, floor) then",
    ),
    "what is pending is trimmed": of_stream(
        stream.test_trimmed_is_what_all_have_acknowledged, "stream/tidy", "pending-kept", "if false then"
    ),
    "consumers go with what they hold": of_stream(
        stream.test_consumers_that_are_gone,
        "stream/tidy",
        "consumers-with-work-kept",
        "if consumer.idle",
        old="if consumer.pending == 0 and consumer.idle",
    ),
    "nothing beyond whole nodes": of_stream(
        stream.test_many_are_trimmed,
        "stream/tidy",
        "last-node-trimmed",
        "trimmed = trimmed",
        old="trimmed = trimmed + redis.call('XTRIM', stream, 'MINID', floor)",
    ),
    "no limit": of_stream(
        stream.test_a_limit_drops_and_says_so,
        "stream/tidy",
        "dropped-only-behind-trim",
        "if false and",
        old="if most > 0 and",
    ),
    "dropped while there is more to trim": of_stream(
        stream.test_more_is_trimmed_at_once,
        "stream/tidy",
        "dropped-only-behind-trim",
        "most > 0 and",
        old="most > 0 and trimmed < step / 2 and",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_a_break_is_noticed(valkey: RunningServer, keyspace: Keyspace, name: str) -> None:
    """Whole, the scenario passes; broken, it fails."""
    held = BREAKS[name]
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
