"""One-line breaks of what the scripts do about failure and time: deaths, terms, and what people do."""

from __future__ import annotations

from tests.lua.bench import Break

THE_DEAD = {
    "one attempt too many": Break("prelude", "r.attempts >= limits.attempts", "r.attempts > limits.attempts"),
    "one claim too many": Break("prelude", "r.claims >= limits.claims", "r.claims > limits.claims"),
    "age not looked at": Break("prelude", "if limits.age > 0 and", "if false and"),
    "age ends first deliveries": Break(
        "prelude", "if limits.age > 0 and r.attempts > 0 and", "if limits.age > 0 and"
    ),
    "age between microseconds": Break(
        "prelude", "us - math.floor(r.due * 1e6 + 0.5) >", "us - r.due * 1e6 >"
    ),
    "age with what our scores add": Break(
        "timeline/settle", "fate(r, math.floor(r.score * 1e6), limits)", "fate(r, r.score * 1e6, limits)"
    ),
    "age by now": Break(
        "timeline/settle", "fate(r, math.floor(r.score * 1e6), limits)", "fate(r, now_us, limits)"
    ),
    "limits not asked on a return": Break(
        "timeline/settle", "local reason = text and fate(", "local reason = false and fate("
    ),
    "limits asked where nothing counted": Break(
        "timeline/settle", "local reason = text and fate(", "text = text or ''\n  local reason = fate("
    ),
    "limits not asked on a claim": Break(
        "timeline/claim",
        "local reason = expired and 'expired' or fate(r, now_us, limits)",
        "local reason = expired and 'expired'",
    ),
    "reject counts no attempt": Break(
        "timeline/settle", "  r.attempts = r.attempts + 1\n  return die(", "  return die("
    ),
    "unsent claims count": Break(
        "timeline/settle", "if string.find(flags, 'u', 1, true) then", "if false then"
    ),
    "claims below none": Break("timeline/settle", "math.max(r.claims - 1, 0)", "r.claims - 1"),
    "what was not received is backed off": Break(
        "timeline/settle", "(received and tonumber(delay) or 0)", "tonumber(delay)"
    ),
    "dead letters of claims lost": Break("timeline/claim", "limits.keep and (reason", "false and (reason"),
    "dead letters of outcomes lost": Break(
        "timeline/settle", "local keep = limits.keep", "local keep = false"
    ),
    "the dead kept against the policy": Break(
        "timeline/settle", "local keep = limits.keep", "local keep = true"
    ),
    "the expired kept like the dead": Break(
        "timeline/claim", "(reason ~= 'expired' or limits.keep_expired)", "true"
    ),
    "removed before they are buried": Break(
        "timeline/settle",
        "local names = bury(dead, now_us)",
        "if ended[1] then redis.call('ZREM', KEYS[1], unpack(ended)) end\nlocal names = bury(dead, now_us)",
    ),
    "dead letters begin with an addition": Break(
        "prelude", "if #dead > 0 then redis.call('XDEL', KEYS[4], '0-0') end", ""
    ),
    "last error lost": Break("prelude", "'error', text,", "'error', '',"),
    "last error cut short": Break(
        "timeline/settle",
        "local reason, text = cut(detail)",
        "local reason, text = cut(detail)\n  text = cut(text)",
    ),
    "content of the dead lost": Break("prelude", "'envelope', envelope or '')", "'envelope', '')"),
    "occurrence of the dead lost": Break("prelude", "'occurrence', r.occurrence,", "'occurrence', NO_NONCE,"),
    "a timer without payload dies": Break("timeline/claim", "if envelope and reason then", "if reason then"),
    "redriven over a living timer": Break(
        "people/redrive", "if taken[id] or redis.call('ZSCORE', KEYS[1], id) then", "if taken[id] then"
    ),
    "redriven twice in a call": Break(
        "people/redrive",
        "if taken[id] or redis.call('ZSCORE', KEYS[1], id) then",
        "if redis.call('ZSCORE', KEYS[1], id) then",
    ),
    "redrive leaves the letter": Break(
        "people/redrive", "redis.call('XDEL', KEYS[4], unpack(gone))", "redis.call('XDEL', KEYS[4], '0-0')"
    ),
    "redrive begins with an addition": Break(
        "people/redrive",
        "  redis.call('XDEL', KEYS[4], unpack(gone))\n  redis.call('ZADD', KEYS[1], unpack(moved))",
        "  redis.call('ZADD', KEYS[1], unpack(moved))\n  redis.call('XDEL', KEYS[4], unpack(gone))",
    ),
    "redriven as another occurrence": Break(
        "people/redrive", "own_score(now_us, r.due), letter.occurrence", "own_score(now_us, r.due), NO_NONCE"
    ),
    "redriven on the publishers' grid": Break(
        "people/redrive", "own_score(now_us, r.due), letter.occurrence", "now_us / 1e6, letter.occurrence"
    ),
    "redriven ahead of the record": Break(
        "people/redrive", "  redis.call('HSET', KEYS[3], unpack(kept))\n", ""
    ),
    "an empty stream left by redrive": Break(
        "people/redrive", "if redis.call('XLEN', KEYS[4]) == 0 then redis.call('DEL', KEYS[4]) end", ""
    ),
    "an empty stream left by purge": Break(
        "people/purge", "if removed > 0 and redis.call('XLEN', KEYS[4]) == 0 then", "if false then"
    ),
    "an empty stream left by trim": Break(
        "people/trim", "if removed > 0 and redis.call('XLEN', KEYS[4]) == 0 then", "if false then"
    ),
    "trimmed silently": Break(
        "people/trim",
        "removed = removed + redis.call('XTRIM', KEYS[4], 'MAXLEN', count)",
        "redis.call('XTRIM', KEYS[4], 'MAXLEN', count)",
    ),
    "pages carry the content": Break("people/letters", "if name ~= 'envelope' then", "if true then"),
    "pages read without end": Break("people/letters", "or bytes > room then", "then"),
    "pages repeat their last entry": Break(
        "people/letters", "and '-' or '(' .. ARGV[2]", "and '-' or ARGV[2]"
    ),
    "pages end too soon": Break("people/letters", "if #entries < step then", "if true then"),
    "no age trims": Break("people/trim", "if age > 0 then", "if false then"),
}

THE_TERMS = {
    "create replaces": Break("timeline/schedule", "word = word or (there and 'UNCHANGED')", "word = word"),
    "create overlooks its own call": Break(
        "timeline/schedule", "nil, 0, found[n] or latest[id]", "nil, 0, found[n]"
    ),
    "a lease not asked for": Break("prelude", "if r.state == LEASED then return 'IN_FLIGHT' end", ""),
    "a due time not asked for": Break("prelude", "if string.sub(condition, 1, 1) == 'd' and", "if false and"),
    "conditions on the score": Break(
        "prelude",
        "tonumber(string.sub(condition, 2)), r.due)",
        "tonumber(string.sub(condition, 2)), r.score)",
    ),
    "conditions on equal doubles": Break(
        "prelude", "return told == due or (", "return told == due or false and ("
    ),
    "conditions on nothing hold": Break("timeline/schedule", "word = 'GONE'", "word = word"),
    "conditions overlook their own call": Break(
        "timeline/schedule", "if latest[id] then return keeping[id] or fresh(latest[id], 0) end", ""
    ),
    "cancel without asking": Break(
        "timeline/cancel", "if there and (condition ~= '' or JOURNAL) then", "if false then"
    ),
    "cancelled twice in a call": Break(
        "timeline/cancel",
        "local there, r = scores[n] and not seen[id], nil",
        "local there, r = scores[n], nil",
    ),
    "expiry not written": Break(
        "timeline/schedule", "for id, r in pairs(keeping) do", "for id, r in pairs({}) do"
    ),
    "expiry not looked at": Break(
        "timeline/claim", "local expired = r.expires > 0 and", "local expired = false and"
    ),
    "expiry on the publishers' grid": Break("prelude", "r.score = own_score(0, r.due)", ""),
    "expiry by adding doubles": Break(
        "timeline/schedule", "(math.floor(score * 1e6 + 0.5) + value) / 1e6", "score + value / 1e6"
    ),
    "expiry between microseconds": Break(
        "timeline/claim", "now_us / 1e6 >= r.expires", "now_us >= r.expires * 1e6"
    ),
    "expiry outlives a republish": Break(
        "prelude", "local new = fresh(score, 0)", "local new = fresh(score, r and r.expires or 0)"
    ),
    "expiry lost on a foreign lease": Break(
        "prelude",
        "r.state, r.received, r.approximate, r.score, r.nonce = PENDING,",
        "r.expires = 0\n  r.state, r.received, r.approximate, r.score, r.nonce = PENDING,",
    ),
    "no topic is full": Break("timeline/schedule", "if room < 0 then word = 'FULL' end", ""),
    "full one too early": Break("timeline/schedule", "if room < 0 then", "if room <= 0 then"),
    "a full topic refuses replacements": Break(
        "timeline/schedule", "if not word and not there then", "if not word then"
    ),
    "reschedule keeps the record": Break(
        "timeline/settle", "  forgotten[#forgotten + 1] = id\n  moved", "  moved"
    ),
    "reschedule keeps the payload": Break(
        "timeline/settle", "  if envelope ~= '' then\n", "  if false then\n"
    ),
    "reschedule empties the payload": Break(
        "timeline/settle", "  if envelope ~= '' then\n", "  if true then\n"
    ),
    "reschedule cuts the payload": Break(
        "timeline/settle",
        "local when, envelope = cut(detail)",
        "local when, envelope = cut(detail)\n  envelope = cut(envelope)",
    ),
    "reschedule without the fence": Break(
        "timeline/settle",
        "elseif holds(score, records[n], nonce) then",
        "elseif verb == 'reschedule' or holds(score, records[n], nonce) then",
    ),
    "reschedule takes a delay for an instant": Break(
        "prelude", "return string.byte(when) == 43 and", "return false and"
    ),
    "reschedule past 9999": Break(
        "timeline/settle", "math.min(instant(when, now_us), LATEST)", "instant(when, now_us)"
    ),
}

THE_PEOPLE = {
    "run takes a lease away": Break("timeline/run", "elseif r.state == LEASED then", "elseif false then"),
    "run ends a parked timer's grace": Break(
        "timeline/run",
        "r.state, r.score, r.approximate = PENDING, own_score(now_us, r.due), 0",
        "r.score, r.approximate = own_score(now_us, r.due), 0",
    ),
    "run waits for the due time": Break("timeline/run", "r.due = math.min(r.due, now_us / 1e6)", ""),
    "run moves the due time": Break(
        "timeline/run", "r.due = math.min(r.due, now_us / 1e6)", "r.due = now_us / 1e6"
    ),
    "run begins with an addition": Break("timeline/run", "redis.call('HDEL', KEYS[3], kept[1])", ""),
    "run on the publishers' grid": Break(
        "timeline/run", "PENDING, own_score(now_us, r.due), 0", "PENDING, now_us / 1e6, 0"
    ),
    "no hint from run": Break("timeline/run", "hint(ARGV[1], before, head())", ""),
    "no hint from redrive": Break("people/redrive", "hint(ARGV[1], before, head())", ""),
    "pause not looked at": Break(
        "timeline/claim", "if now_us < (tonumber(till or 0) or 0) then", "if false then"
    ),
    "pause begins with an addition": Break(
        "people/pause", "redis.call('DEL', KEYS[5])\nredis.call('SET'", "redis.call('SET'"
    ),
    "resume wakes nobody": Break("people/pause", "if head() ~= '' then hint", "if false then hint"),
    "resume wakes for nothing": Break("people/pause", "if head() ~= '' then hint", "if true then hint"),
    "a pause that is past": Break("people/pause", "if till <= now_us then", "if till < 0 then"),
    "a pause that is past ends another": Break(
        "people/pause", "if ARGV[2] == 'end' then", "if ARGV[2] == 'end' or till <= now_us then"
    ),
    "a pause past 9999": Break("people/pause", "till = math.min(till, LATEST * 1e6)", ""),
    "a pause since 1970": Break("people/pause", "(ARGV[2] == 'in' and now_us or 0)", "0"),
    "the later counted as due": Break("people/stats", "'-inf', number(now_us / 1e6)", "'-inf', '+inf'"),
    "the look for orphans forgets the end": Break(
        "timeline/orphans", "if #ids == 500 or i + 2 > #page[2] then", "if #ids == 500 then"
    ),
    "timers are taken for orphans": Break("timeline/orphans", "if not score then", "if true then"),
    "repair without asking again": Break("timeline/repair", "if not score and", "if"),
    "repair leaves the records": Break(
        "timeline/repair", "redis.call('HDEL', KEYS[3], unpack(orphans))", "0"
    ),
}
