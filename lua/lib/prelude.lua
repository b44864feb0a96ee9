-- lib/prelude.lua: what every script shares. It is put before each of them; it does nothing by itself.
--
-- Before this stand lines that the loader makes of the script's header: `KINDS`, the types of its keys, and a local
-- for each key and each argument; see relay/store/server/manifest.py. The keys of a topic:
--   timeline  ZSET    timer_id -> due time in unix seconds; while leased, the lease deadline
--   payloads  HASH    timer_id -> envelope
--   leases    HASH    timer_id -> record, written by relays only
--   dead      STREAM  one entry a death; see lib/letters.lua
--   pause     STRING  microseconds since 1970 until which nothing is claimed
--   marks     HASH    what a sweep has to know of; see bulk/marks.lua. There only while one is under way
-- Where the topic has a journal, lib/journal.lua comes between this and a script that changes something.
--
-- Foreign writers (FastStream publishers and workers) know the first two keys and no record.
-- So a record counts only if it explains the score: it keeps the score that we last wrote, and
-- every score that we write after a claim is a whole microsecond + 2^-21 s, where no publisher
-- writes. What a foreign writer meant by any other score, `understand` tells.

local RECORD = '<BBBBBI4I4dddc16c16'
-- Where in a record they stand, from 1 on.
local SCORE_AT, DUE_FROM, DUE_TO, NONCE_FROM, NONCE_TO = 14, 22, 29, 38, 53
local VERSION, RECORD_SIZE = 2, 69 -- @rule records-have-our-version
local FIRST_TEXT = 32 -- no version is that high: what begins with such a byte is somebody's text, and no record
local PENDING, LEASED, PARKED = 0, 1, 2
local LEASED_RECORD = string.char(VERSION, LEASED) -- how one begins
local INTENT, LEASE = 1, 2 -- what a foreign writer meant
local NO_NONCE = string.rep('\0', 16)
local OFF_GRID = 2 ^ -21 -- @rule own-scores-off-grid
local MOST_COUNTED = 4294967295 -- attempts and claims have four bytes
local LATEST = 253402300799 -- the last second of the year 9999
local EXACT = 2 ^ 33 -- in the year 2242; before it a score holds every microsecond

local JOURNAL -- its key, if the topic has one: see lib/journal.lua
local marking -- whether a sweep is under way
local unheard -- why Redis refused the script's wake hint, if it did

-- What lib/layout.lua says of a partition: its number and the caller's layout; whether the call is about timers that a move takes away from it; whether it does
-- not know yet if the topic is paused, and that it does now; and an error reply if one of some timers is on its way.
local here = { leaving = false, pause_unknown = false, pause_is_told = function() end, on_its_way = function() end }
local now_us -- what the clock shows, in scripts that change something; see lib/given_up.lua

local function fail(word, text) return redis.error_reply(word .. ' ' .. text) end

-- 17 digits bring every double back; `tostring` keeps 14 and loses 0.1 ms.
local function number(x) return string.format('%.17g', x) end -- @rule numbers-have-17-digits

local function time_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- The score of an instant as callers say it: a score, or '+' and microseconds from now. And whether only the server
-- knows what due time that is: the end of a delay, or one that is rounded to a score.
local function instant(when, now_us)
  local value = tonumber(when)
  if string.byte(when) == 43 then return (now_us + value) / 1e6, true end -- @rule delays-from-now
  return value, value >= EXACT -- @rule exact-dues-known
end

local function whole_us(score) return math.floor(score * 1e6 + 0.5) / 1e6 == score end

-- The score of an instant that we choose, never before the due time.
-- @rule never-before-due
local function own_score(us, due) return math.max(math.floor(us), math.ceil(due * 1e6)) / 1e6 + OFF_GRID end

-- An error reply if a key holds another type than ours. Two numbers in the place of lease records are the topic's layout:
-- it has several partitions, and the call is meant for a topic of one.
local function wrong_type()
  for i = 1, #KEYS do
    local found, kind = redis.call('TYPE', KEYS[i]).ok, KEYS[i] == JOURNAL and 'stream' or KINDS[i]
    if KEYS[i] == marks then marking = found == 'hash' end -- @rule marks-are-a-hash
    if found ~= kind and found ~= 'none' then -- @rule types-probed
      local text = KEYS[i] == leases and found == 'string' and redis.call('GET', leases) or ''
      if string.find(text, '^%d+ %d+[ %d]*$') then return fail('LAYOUT', text) end -- @rule layout-told
      return fail('WRONGKEYTYPE', KEYS[i] .. ' holds a ' .. found .. ', not a ' .. kind)
    end
  end
end

local function pack(r)
  return struct.pack(
    RECORD,
    VERSION,
    r.state,
    r.received,
    r.suspect,
    r.approximate,
    math.min(r.attempts, MOST_COUNTED),
    math.min(r.claims, MOST_COUNTED),
    r.score,
    r.due,
    r.expires,
    r.nonce,
    r.occurrence
  )
end

local function unpack_record(raw)
  if not raw or #raw ~= RECORD_SIZE then return nil end
  local version, state, received, suspect, approximate, attempts, claims, score, due, expires, nonce, occurrence =
    struct.unpack(RECORD, raw)
  if version ~= VERSION then return nil end
  return {
    state = state,
    received = received,
    suspect = suspect,
    approximate = approximate,
    attempts = attempts,
    claims = claims,
    score = score,
    due = due,
    expires = expires,
    nonce = nonce,
    occurrence = occurrence,
  }
end

-- The record of a timer that nothing has happened to. `expires` in unix seconds, 0: never.
local function fresh(score, expires)
  return {
    state = PENDING,
    received = 0,
    suspect = 0,
    approximate = 0,
    attempts = 0,
    claims = 0,
    score = score,
    due = math.max(score, 0),
    expires = expires,
    nonce = NO_NONCE,
    occurrence = NO_NONCE,
  }
end

-- The record of a timer of which more is known from the start than its due time: that it expires, or its occurrence. No publisher writes its score, since the record must not explain a publisher's.
local function expiring(score, expires)
  local r = fresh(score, expires)
  r.score = own_score(0, r.due) -- @rule expiring-score-off-grid
  return r
end

-- What a timer's score and record mean together.
--   score explained by the record   the record stands
--   no record                       a new intent, due = score
--   whole microsecond, or too early a publisher gave a new intent while we held or kept the timer
--   otherwise                       a foreign worker leased it: due and attempts stay, as far as we know
--   a newer version's record        leased elsewhere, whatever the score: what it knows is not ours to lose; see 0074
local function understand(score, raw) -- see 0016
  local r = unpack_record(raw)
  if r and r.score == score then return r end -- @rule record-explains-score
  local version = not r and raw and string.byte(raw) or 0
  if version > VERSION and version < FIRST_TEXT then -- @rule newer-records-stand
    local newer = fresh(score, 0)
    newer.state, newer.approximate, newer.elsewhere = LEASED, 1, true
    return newer
  end
  if not r or whole_us(score) or score < r.due then -- @rule publishers-give-new-intents
    local new = fresh(score, 0) -- @rule intent-starts-afresh
    new.approximate = whole_us(score) and 0 or 1 -- @rule intent-counts-from-none
    new.adopted = r and INTENT -- @rule adoption-told
    return new
  end
  if r.state == LEASED then r.attempts = r.attempts + r.received end -- @rule foreign-lease-counts-receipt
  r.state, r.received, r.approximate, r.score, r.nonce = PENDING, 0, 1, score, NO_NONCE -- @rule foreign-lease-ends-ours
  r.adopted = LEASE -- @rule foreign-lease-told
  return r
end

-- The fence: the lease is the one taken under this nonce, and nobody has written a score since. A record that does
-- not explain the score is not a lease of ours, whatever `understand` makes of it, so nothing more of it is read here.
local function holds(score, raw, nonce)
  return raw
    and #raw == RECORD_SIZE
    and string.sub(raw, 1, 2) == LEASED_RECORD -- @rule state-compared
    and string.sub(raw, NONCE_FROM, NONCE_TO) == nonce -- @rule nonce-compared
    and struct.unpack('<d', raw, SCORE_AT) == score -- @rule score-compared
end

-- A text up to the first semicolon, and what follows it.
local function cut(text)
  local at = string.find(text, ';', 1, true)
  if not at then return text, '' end
  return string.sub(text, 1, at - 1), string.sub(text, at + 1)
end

-- Whether nobody has kept the marks in their time, so that they are void. They have no time to live in Redis: a
-- server that evicts may take such keys first, and a sweep that lost its marks would bring back what was cancelled.
local function are_abandoned()
  local till = redis.call('HGET', marks, 'kept')
  return till and time_us() >= tonumber(till)
end

-- Tell the sweep that is under way, if one is, that these timers' lives have ended, or never are to begin: what the
-- cold store holds of them is over. To be called after the removal, so that a delete is the first write.
local function mark(ids)
  if not marking or #ids == 0 or are_abandoned() then return end -- @rule marks-only-under-a-plan
  local fields = { 'any', '1' }
  for n, id in ipairs(ids) do
    fields[2 * n + 1], fields[2 * n + 2] = 't' .. id, ''
  end
  redis.call('HSET', marks, unpack(fields))
end

-- The score of the timeline's first timer, as Redis prints it; '' for an empty timeline.
local function head() return redis.call('ZRANGE', timeline, 0, 0, 'WITHSCORES')[2] or '' end

-- What the script returns: its reply; or, where Redis refused its wake hint, { 'UNHEARD', why, its reply }. No reply
-- begins with that word. lib/journal.lua has something to add.
local function answer(reply) return unheard and { 'UNHEARD', unheard, reply } or reply end

-- Tell sleeping relays that the first timer has become an earlier one. What was written stands whatever becomes of that:
-- some servers and users may not publish.
local function hint(channel, before, after)
  if after ~= '' and (before == '' or tonumber(after) < tonumber(before)) then -- @rule hint-if-earlier
    local sent = redis.pcall('PUBLISH', channel, after) -- @rule refused-hint-stands
    unheard = type(sent) == 'table' and sent.err or nil -- @rule refused-hint-told
  end
end
