"""One-line breaks of what the scripts do about failure and time: deaths, terms, and what people do."""

from __future__ import annotations

from tests.worlds.scripts.rules import Break

THE_DEAD = {
    "one attempt too many": Break(
        "lib/life", "attempts-limited", "r.attempts > limits.attempts", old="r.attempts >= limits.attempts"
    ),
    "one claim too many": Break(
        "lib/life", "claims-limited", "r.claims > limits.claims", old="r.claims >= limits.claims"
    ),
    "age not looked at": Break("lib/life", "age-limited", "if false and", old="if limits.age > 0 and"),
    "age ends first deliveries": Break(
        "lib/life", "age-limited", "if limits.age > 0 and", old="if limits.age > 0 and r.attempts > 0 and"
    ),
    "age between microseconds": Break(
        "lib/life", "age-limited", "us - r.due * 1e6 >", old="us - math.floor(r.due * 1e6 + 0.5) >"
    ),
    "age with what our scores add": Break(
        "lib/outcomes",
        "return-asks-for-ends",
        "fate(r, r.at_us + 0.5, limits)",
        old="fate(r, r.at_us, limits)",
    ),
    "age by now": Break(
        "lib/outcomes", "return-asks-for-ends", "fate(r, now_us, limits)", old="fate(r, r.at_us, limits)"
    ),
    "limits not asked on a return": Break("lib/outcomes", "return-asks-for-ends", "local reason = false"),
    "limits asked where nothing counted": Break(
        "lib/outcomes", "return-asks-for-ends", "text = text or ''\nlocal reason = fate(r, r.at_us, limits)"
    ),
    "limits not asked on a claim": Break("lib/life", "claim-asks-for-ends", "local reason = nil"),
    "reject counts no attempt": Break("lib/outcomes", "reject-counts"),
    "unsent claims count": Break(
        "lib/outcomes",
        "unsent-claim-uncounted",
        "if false then",
        old="if unsent then",
    ),
    "claims below none": Break(
        "lib/outcomes", "unsent-claim-uncounted", "r.claims - 1", old="math.max(r.claims - 1, 0)"
    ),
    "what was not received is backed off": Break(
        "lib/outcomes", "unreceived-waits-for-nothing", "local wait = tonumber(delay)"
    ),
    "what was unsent is not backed off": Break(
        "lib/outcomes", "unreceived-waits-for-nothing", "local wait = received and tonumber(delay) or 0"
    ),
    "dead letters of claims lost": Break(
        "lib/due_timers", "letters-by-policy", "false and (reason", old="limits.keep and (reason"
    ),
    "dead letters of outcomes lost": Break(
        "timeline/settle", "outcome-letters-by-policy", "local kept_too = false"
    ),
    "the dead kept against the policy": Break(
        "timeline/settle", "outcome-letters-by-policy", "local kept_too = true"
    ),
    "the expired kept like the dead": Break(
        "lib/due_timers", "letters-by-policy", "true", old="(reason ~= 'expired' or limits.keep_expired)"
    ),
    "removed before they are buried": Break(
        "timeline/settle",
        "burial-before-removal",
        "if ended[1] then redis.call('ZREM', timeline, unpack(ended)) end\n@1",
    ),
    "dead letters begin with an addition": Break("lib/letters", "burial-behind-a-delete"),
    "last error lost": Break(
        "lib/letters", "letter-keeps-error-and-content", "'error', '',", old="'error', text,"
    ),
    "last error cut short": Break("lib/outcomes", "reject-counts", "text = cut(text)\n@1"),
    "content of the dead lost": Break(
        "lib/letters", "letter-keeps-error-and-content", "'envelope', '',", old="'envelope', envelope or '',"
    ),
    "occurrence of the dead lost": Break(
        "lib/letters", "letter-keeps-occurrence", "'occurrence', NO_NONCE,", old="'occurrence', r.occurrence,"
    ),
    "a timer without payload dies": Break(
        "lib/life", "only-with-payload-dies", "if not has_payload and not fate(r, now_us, limits) then"
    ),
    "redriven over a living timer": Break("people/redrive", "redrive-spares-living", "if taken[id] then"),
    "redriven twice in a call": Break(
        "people/redrive", "redrive-spares-living", "if redis.call('ZSCORE', timeline, id) then"
    ),
    "redrive leaves the letter": Break(
        "people/redrive", "redrive-begins-with-a-delete", "redis.call('XDEL', dead, '0-0')"
    ),
    "redrive begins with an addition": Break(
        "people/redrive", "redrive-begins-with-a-delete", "@2\n@1", lines=2
    ),
    "redriven as another occurrence": Break(
        "lib/life", "redrive-keeps-occurrence-off-grid", "r.score = own_score(now_us, r.due)"
    ),
    "redriven on the publishers' grid": Break(
        "lib/life", "redrive-keeps-occurrence-off-grid", "r.score, r.occurrence = now_us / 1e6, occurrence"
    ),
    "redriven ahead of the record": Break("people/redrive", "redrive-writes-record"),
    "an empty stream left by redrive": Break("people/redrive", "redrive-leaves-no-empty-stream"),
    "an empty stream left by purge": Break(
        "people/purge",
        "purge-leaves-no-empty-stream",
        "if false then",
        old="if removed > 0 and redis.call('XLEN', dead) == 0 then",
    ),
    "an empty stream left by trim": Break(
        "people/trim",
        "trim-leaves-no-empty-stream",
        "if false then",
        old="if removed > 0 and redis.call('XLEN', dead) == 0 then",
    ),
    "trimmed silently": Break(
        "people/trim",
        "trim-counted",
        "redis.call('XTRIM', dead, 'MAXLEN', count)",
        old="removed = removed + redis.call('XTRIM', dead, 'MAXLEN', count)",
    ),
    "pages carry the content": Break("people/letters", "page-without-content", "if true then"),
    "pages read without end": Break(
        "people/letters", "page-bounded-by-bytes", "then", old="or bytes > max_bytes then"
    ),
    "pages repeat their last entry": Break(
        "people/letters", "page-starts-behind-last", "and '-' or after", old="and '-' or '(' .. after"
    ),
    "pages end too soon": Break(
        "people/letters", "page-ends-at-the-end", "if true then", old="if #entries < at_once then"
    ),
    "no age trims": Break("people/trim", "trim-by-age", "if false then"),
}

THE_TERMS = {
    "create replaces": Break("timeline/schedule", "create-spares", "word = word"),
    "create overlooks its own call": Break(
        "timeline/schedule", "create-sees-own-call", "nil, 0, found[n]", old="nil, 0, found[n] or latest[id]"
    ),
    "a lease not asked for": Break("lib/conditions", "lease-asked-for"),
    "no lease not asked for": Break("lib/conditions", "no-lease-asked-for"),
    "a content not asked for": Break(
        "lib/conditions",
        "content-asked-for",
        "if false then",
        old="if not stored or redis.sha1hex(stored) ~= string.sub(condition, 2, 41) then",
    ),
    "the content before this call is asked for": Break(
        "timeline/schedule", "own-content-is-another", "id)", old="not latest[id] and id)"
    ),
    "a due time not asked for": Break(
        "lib/conditions",
        "due-time-asked-for",
        "if false and",
        old="if string.sub(condition, 1, 1) == 'd' and",
    ),
    "conditions on the score": Break(
        "lib/conditions",
        "due-time-asked-for",
        "tonumber(string.sub(condition, 2)), r.score)",
        old="tonumber(string.sub(condition, 2)), r.due)",
    ),
    "conditions on equal doubles": Break(
        "lib/conditions",
        "due-time-as-told",
        "return told == due or false and (",
        old="return told == due or (",
    ),
    "no delivery under way is told": Break(
        "lib/conditions", "delivery-under-way-told", "local under_way = false"
    ),
    "each record told as a delivery": Break(
        "lib/conditions",
        "delivery-under-way-told",
        "'IN_FLIGHT'",
        old="'IN_FLIGHT' and understand(tonumber(score), raw).state == LEASED",
    ),
    "a lease told whatever the score": Break(
        "lib/conditions",
        "delivery-under-way-told",
        "unpack_record(raw)",
        old="understand(tonumber(score), raw)",
    ),
    "a delivery told once more in its call": Break(
        "timeline/schedule", "own-call-is-not-under-way", "record(n)", old="not latest[id] and record(n)"
    ),
    "conditions on nothing hold": Break("timeline/schedule", "condition-needs-a-timer", "word = word"),
    "conditions overlook their own call": Break("timeline/schedule", "conditions-see-own-call"),
    "cancel without asking": Break("timeline/cancel", "cancel-asks", "if false then"),
    "cancelled twice in a call": Break(
        "timeline/cancel", "cancelled-once", "local there, r = scores[n] and not word, nil"
    ),
    "expiry not written": Break("timeline/schedule", "expiry-written", "for id, r in pairs({}) do"),
    "expiry not looked at": Break(
        "lib/life", "expiry-by-the-clock", "if false and", old="if r.expires > 0 and"
    ),
    "expiry on the publishers' grid": Break("lib/prelude", "expiring-score-off-grid"),
    "expiry by adding doubles": Break(
        "timeline/schedule",
        "expiry-in-microseconds",
        "score + value / 1e6",
        old="(math.floor(score * 1e6 + 0.5) + value) / 1e6",
    ),
    "expiry between microseconds": Break(
        "lib/life", "expiry-by-the-clock", "now_us >= r.expires * 1e6", old="now_us / 1e6 >= r.expires"
    ),
    "expiry outlives a republish": Break(
        "lib/prelude", "intent-starts-afresh", "local new = fresh(score, r and r.expires or 0)"
    ),
    "expiry lost on a foreign lease": Break("lib/prelude", "foreign-lease-ends-ours", "r.expires = 0\n@1"),
    "no topic is full": Break("timeline/schedule", "topic-limited"),
    "full one too early": Break(
        "timeline/schedule", "topic-limited", "if room <= 0 then", old="if room < 0 then"
    ),
    "a full topic refuses replacements": Break(
        "timeline/schedule", "full-topic-replaces", "if not word then"
    ),
    "reschedule keeps the record": Break("timeline/settle", "reschedule-clears-record"),
    "reschedule keeps the payload": Break("timeline/settle", "reschedule-payload", "if false then"),
    "reschedule empties the payload": Break("timeline/settle", "reschedule-payload", "if true then"),
    "reschedule cuts the payload": Break(
        "lib/outcomes", "reschedule-before-9999", "envelope = cut(envelope)\n@1"
    ),
    "reschedule without the fence": Break(
        "timeline/settle",
        "fence-for-all",
        "elseif verb ~= 'reschedule' and not holds(score, records[n], nonce) then",
    ),
    "reschedule takes a delay for an instant": Break(
        "lib/prelude", "delays-from-now", "return value, true", old="return (now_us + value) / 1e6, true"
    ),
    "reschedule past 9999": Break(
        "lib/outcomes",
        "reschedule-before-9999",
        "instant(when, now_us)",
        old="math.min(instant(when, now_us), LATEST)",
    ),
}

THE_PEOPLE = {
    "run takes a lease away": Break("lib/life", "run-spares-leases"),
    "run ends a parked timer's grace": Break("lib/life", "run-unparks", "r.approximate = 0"),
    "run waits for the due time": Break("lib/life", "run-lowers-due-time"),
    "run moves the due time": Break("lib/life", "run-lowers-due-time", "r.due = now_us / 1e6"),
    "run begins with an addition": Break("lib/timeline", "writes-begin-with-a-delete", lines=2),
    "run on the publishers' grid": Break("timeline/run", "run-off-grid", "r.score = now_us / 1e6"),
    "no hint from run": Break("timeline/run", "run-hints"),
    "no hint from redrive": Break("people/redrive", "redrive-hints"),
    "pause not looked at": Break("timeline/claim", "pause-holds", "if false then"),
    "pause begins with an addition": Break("people/pause", "pause-begins-with-a-delete"),
    "resume wakes nobody": Break(
        "people/pause", "resume-wakes-if-timers", "if false then hint", old="if head() ~= '' then hint"
    ),
    "resume wakes for nothing": Break(
        "people/pause", "resume-wakes-if-timers", "if true then hint", old="if head() ~= '' then hint"
    ),
    "a pause that is past": Break(
        "people/pause", "past-pause-refused", "if till < 0 then", old="if till <= now_us then"
    ),
    "a pause that is past ends another": Break(
        "people/pause", "end-only-by-end", "if mode == 'end' or till <= now_us then"
    ),
    "a pause past 9999": Break("people/pause", "pause-before-9999"),
    "a pause since 1970": Break("people/pause", "pause-from-now", "0", old="(mode == 'in' and now_us or 0)"),
    "the later counted as due": Break(
        "people/stats", "due-counted-by-now", "'-inf', '+inf'", old="'-inf', number(now_us / 1e6)"
    ),
    "what is due now falls due later": Break(
        "people/forecast", "due-at-the-start-is-overdue", "''", old="n == 1 and '(' or ''"
    ),
    "a border is in two intervals": Break(
        "people/forecast", "intervals-are-half-open", "at(after)", old="'(' .. at(after)"
    ),
    "any number of records is looked at": Break(
        "people/forecast", "few-records-are-looked-at", "if true then"
    ),
    "what was leased once is leased": Break(
        "people/forecast", "leases-apart", "if score and score > from / 1e6 then"
    ),
    "the look for orphans forgets the end": Break(
        "timeline/orphans", "orphans-to-the-end", "if #ids == 500 then"
    ),
    "timers are taken for orphans": Break(
        "timeline/orphans", "orphans-have-no-score", "if true then", old="if not score then"
    ),
    "repair without asking again": Break(
        "timeline/repair", "repair-asks-again", "if", old="if not score and"
    ),
    "repair leaves the records": Break(
        "timeline/repair", "repair-clears-records", "0", old="redis.call('HDEL', leases, unpack(orphans))"
    ),
}
