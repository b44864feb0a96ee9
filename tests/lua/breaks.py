"""One-line breaks of the scripts, at least one for each promise and each rule of the fence."""

from __future__ import annotations

from tests.lua.bench import Break
from tests.lua.breaks_failure import THE_DEAD, THE_PEOPLE, THE_TERMS
from tests.lua.breaks_insert import OF_INSERT
from tests.lua.breaks_journal import THE_JOURNAL
from tests.lua.breaks_load import OF_LOAD

THE_FENCE = {
    "nonce not compared": Break("prelude", "    and string.sub(raw, 38, 53) == nonce\n", ""),
    "state not compared": Break("prelude", "    and string.sub(raw, 1, 2) == LEASED_RECORD\n", ""),
    "score not compared": Break("prelude", "    and struct.unpack('<d', raw, 14) == score\n", "\n"),
    "a foreign score taken for ours": Break(
        "prelude", "if r and r.score == score then return r end", "if r then return r end"
    ),
    "record kept on schedule": Break(
        "timeline/schedule", "redis.call('HDEL', KEYS[3], unpack(written))\n", "\n"
    ),
    "record kept on cancel": Break("timeline/cancel", "redis.call('HDEL', KEYS[3], unpack(gone))\n", "\n"),
    "our scores on the publishers' grid": Break("prelude", "local OFF_GRID = 2 ^ -21", "local OFF_GRID = 0"),
    "renewal changes the nonce": Break(
        "timeline/extend", "r.score = math.max(r.score, deadline)", "r.score, r.nonce = deadline, NO_NONCE"
    ),
    "renewal shortens the lease": Break(
        "timeline/extend", "r.score = math.max(r.score, deadline)", "r.score = deadline"
    ),
    "end of a lease keeps the nonce": Break(
        "timeline/settle",
        "r.state, r.nonce, r.received = PENDING, NO_NONCE, 0",
        "r.state, r.received = PENDING, 0",
    ),
    "end of a lease keeps the state": Break(
        "timeline/settle",
        "r.state, r.nonce, r.received = PENDING, NO_NONCE, 0",
        "r.received = 0",
    ),
    "claim keeps the nonce": Break(
        "timeline/claim",
        "r.state, r.nonce, r.score, r.claims = LEASED, ARGV[3], deadline, r.claims + 1",
        "r.state, r.score, r.claims = LEASED, deadline, r.claims + 1\n"
        "        if r.nonce == NO_NONCE then r.nonce = ARGV[3] end",
    ),
    "parking keeps the nonce": Break(
        "timeline/claim", "r.state, r.nonce, r.score = PARKED, NO_NONCE,", "r.state, r.score = PARKED,"
    ),
    "foreign lease keeps the token": Break(
        "prelude",
        "r.state, r.received, r.approximate, r.score, r.nonce = PENDING, 0, 1, score, NO_NONCE",
        "r.received, r.approximate, r.score = 0, 1, score",
    ),
    "duplicates not refused": Break(
        "timeline/settle", "if seen[id] then return fail('DUPLICATE', id) end", ""
    ),
    "renewed twice in a call": Break(
        "timeline/extend", "if seen[id] then return fail('DUPLICATE', id) end", ""
    ),
    "stale record of a gone timer kept": Break(
        "timeline/settle", "forgotten[#forgotten + 1] = id -- a record", "-- a record"
    ),
}

THE_TIME = {
    "claim ahead of time": Break(
        "timeline/claim", "'-inf', number(now_us / 1e6)", "'-inf', number((now_us + 1) / 1e6)"
    ),
    "return before the due time": Break(
        "prelude",
        "return math.max(math.floor(us), math.ceil(due * 1e6)) / 1e6 + OFF_GRID",
        "return math.floor(us) / 1e6 + OFF_GRID",
    ),
    "nack before the due time": Break(
        "timeline/settle",
        "own_score(now_us + tonumber(delay), r.due)",
        "own_score(now_us + tonumber(delay), 0)",
    ),
    "release before the due time": Break(
        "timeline/settle",
        "own_score(now_us + (received and tonumber(delay) or 0), r.due)",
        "own_score(now_us + (received and tonumber(delay) or 0), 0)",
    ),
    "due time lost on claim": Break(
        "timeline/claim",
        "  r.received = 0\n  local expired",
        "  r.received, r.due = 0, r.score\n  local expired",
    ),
    "due time lost after a foreign lease": Break(
        "prelude", "r.approximate, r.score, r.nonce = PENDING", "r.approximate, r.due, r.nonce = PENDING"
    ),
    "a republish into the past overlooked": Break(
        "prelude", "if not r or whole_us(score) or score < r.due then", "if not r or whole_us(score) then"
    ),
    "a republish on the grid overlooked": Break(
        "prelude", "if not r or whole_us(score) or score < r.due then", "if not r or score < r.due then"
    ),
    "numbers with 14 digits": Break("prelude", "return string.format('%.17g', x)", "return tostring(x)"),
    "a back-off with 14 digits": Break(
        "timeline/settle", "moved[#moved + 2] = r.score, id", "moved[#moved + 2] = tostring(r.score), id"
    ),
    "claim by a stale order": Break(
        "timeline/claim", "'WITHSCORES', 'LIMIT', 0, ARGV[1]", "'WITHSCORES', 'LIMIT', 1, ARGV[1]"
    ),
}

THE_COUNT = {
    "release counts without a receipt": Break(
        "timeline/settle",
        "local received = r.received == 1 or string.find(flags, 'r', 1, true)",
        "local received = true",
    ),
    "release overlooks the recorded receipt": Break(
        "timeline/settle",
        "local received = r.received == 1 or string.find(flags, 'r', 1, true)",
        "local received = string.find(flags, 'r', 1, true)",
    ),
    "release overlooks the relay's word": Break(
        "timeline/settle",
        "local received = r.received == 1 or string.find(flags, 'r', 1, true)",
        "local received = r.received == 1",
    ),
    "lapse does not count": Break("timeline/claim", "r.attempts = r.attempts + r.received\n", "\n"),
    "lapse always counts": Break(
        "timeline/claim", "r.attempts = r.attempts + r.received\n", "r.attempts = r.attempts + 1\n"
    ),
    "lapse raises no suspicion": Break("timeline/claim", "r.suspect = math.max(r.suspect, r.received)", ""),
    "nack does not count": Break(
        "timeline/settle", "  r.attempts = r.attempts + 1\n  r.suspect = 0\n", "  r.suspect = 0\n"
    ),
    "receipt not recorded": Break("timeline/extend", "if received then r.received = 1 end", ""),
    "receipt outlives its lease": Break(
        "timeline/claim", "  r.received = 0\n  local expired", "  local expired"
    ),
    "occurrence not kept": Break(
        "timeline/claim",
        "if r.occurrence == NO_NONCE then r.occurrence = ARGV[3] end",
        "r.occurrence = ARGV[3]",
    ),
    "attempts lost on a foreign lease": Break(
        "prelude",
        "  if r.state == LEASED then r.attempts = r.attempts + r.received end\n",
        "  r.attempts = 0\n",
    ),
    "attempts kept by a republish": Break(
        "prelude",
        "    new.approximate = whole_us(score) and 0 or 1\n",
        "    new.approximate, new.attempts = whole_us(score) and 0 or 1, r and r.attempts or 0\n",
    ),
}

THE_KEYS = {
    "parked timer removed at once": Break(
        "timeline/claim", "if not envelope and r.state == PARKED then", "if not envelope then"
    ),
    "parked timer never removed": Break(
        "timeline/claim", "if not envelope and r.state == PARKED then", "if false then"
    ),
    "ack leaves the payload": Break("timeline/settle", "redis.call('HDEL', KEYS[2], unpack(ended))\n", "\n"),
    "ack leaves the record": Break(
        "timeline/settle",
        "ended[#ended + 1] = id\n  forgotten[#forgotten + 1] = id\n",
        "ended[#ended + 1] = id\n",
    ),
    "cancel leaves the payload": Break("timeline/cancel", "redis.call('HDEL', KEYS[2], unpack(gone))", ""),
    "claim begins with an addition": Break(
        "timeline/claim", "  else\n    redis.call('HDEL', KEYS[3], ids[1])\n  end", "  end"
    ),
    "settle begins with an addition": Break(
        "timeline/settle", "elseif #kept > 0 then\n  redis.call('HDEL', KEYS[3], kept[1])\nend", "end"
    ),
    "extend begins with an addition": Break(
        "timeline/extend", "elseif #kept > 0 then\n  redis.call('HDEL', KEYS[3], kept[1])\nend", "end"
    ),
    "schedule begins with a delete": Break(
        "timeline/schedule",
        "redis.call('ZADD', KEYS[1], unpack(scores))\n  redis.call('HDEL', KEYS[3], unpack(written))\n",
        "redis.call('HDEL', KEYS[3], unpack(written))\n  redis.call('ZADD', KEYS[1], unpack(scores))\n",
    ),
    "types not probed": Break("prelude", "if found ~= kind and found ~= 'none' then", "if false then"),
    "no hint from schedule": Break("timeline/schedule", "hint(ARGV[1], before, head())", ""),
    "no hint from settle": Break("timeline/settle", "hint(ARGV[1], before, after)", ""),
    "a hint that is refused ends the script": Break(
        "prelude", "redis.pcall('PUBLISH'", "redis.call('PUBLISH'"
    ),
    "a hint that is refused goes untold": Break(
        "prelude", "    unheard = type(sent) == 'table' and", "    sent ="
    ),
    "a journal hides that a hint was refused": Break("journal", "reply_of(reply)", "reply"),
    "a hint each time": Break(
        "prelude", "(before == '' or tonumber(after) < tonumber(before))", "(before == '' or true)"
    ),
    "scores compared as strings": Break("prelude", "tonumber(after) < tonumber(before)", "after < before"),
    "limit ignored": Break("timeline/claim", "'LIMIT', 0, ARGV[1]", "'LIMIT', 0, 500"),
    "byte bound ignored": Break(
        "timeline/claim", "if taken > 0 and bytes > enough then return taken end", ""
    ),
    "a big timer never taken": Break("timeline/claim", "if taken > 0 and bytes >", "if bytes >"),
    "payloads read without measure": Break(
        "timeline/claim",
        "some = math.max(1, math.min(most, math.floor((enough - bytes) / largest)))",
        "some = #ids",
    ),
    "the first payload not read alone": Break(
        "timeline/claim",
        "taken, bytes, largest, some = 0, 0, 1, 1",
        "taken, bytes, largest, some = 0, 0, 1, most",
    ),
    "large ones read in vain behind a small one": Break(
        "timeline/claim", "math.min(most, math.floor((enough", "math.min(16, math.floor((enough"
    ),
    "a new timer's due time lost": Break(
        "timeline/claim",
        "before_due .. struct.pack('<d', score)",
        "before_due .. struct.pack('<d', deadline)",
    ),
    "a foreign lease taken for a new timer": Break(
        "timeline/claim", "and score >= 0 and whole_us(score)", "and score >= 0"
    ),
    "a new timer due before 1970": Break(
        "timeline/claim", "and score >= 0 and whole_us(score)", "and whole_us(score)"
    ),
    "delay past 9999 taken": Break("timeline/schedule", "if score > LATEST then", "if false then"),
    "pages by score alone": Break(
        "timeline/list",
        "    if not_after(id, ARGV[3]) then\n      first = middle + 1\n"
        "    else\n      last = middle\n    end\n",
        "    first = last\n",
    ),
    "pages of any size": Break(
        "timeline/list", "if size > tonumber(ARGV[4]) and n > 1 then", "if false then"
    ),
    "pages skip what moved up": Break("timeline/list", "return #a <= #b", "return #a < #b"),
}

OF_FAILURE = {**THE_DEAD, **THE_TERMS, **THE_PEOPLE}
BREAKS = {
    **THE_FENCE,
    **THE_TIME,
    **THE_COUNT,
    **THE_KEYS,
    **OF_FAILURE,
    **THE_JOURNAL,
    **OF_LOAD,
    **OF_INSERT,
}
