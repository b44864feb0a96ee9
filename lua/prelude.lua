-- prelude.lua: what every script shares. It is put before each of them; it does nothing by itself.
--
-- Keys of one topic, in this order in every script that takes them:
--   KEYS[1] timeline  ZSET  timer_id -> due time in unix seconds; while leased, the lease deadline
--   KEYS[2] payloads  HASH  timer_id -> envelope
--   KEYS[3] leases    HASH  timer_id -> record, written by relays only
--
-- Foreign writers (FastStream publishers and workers) know the first two keys and no record.
-- So a record counts only if it explains the score: it keeps the score that we last wrote, and
-- every score that we write after a claim is a whole microsecond + 2^-21 s, where no publisher
-- writes. What a foreign writer meant by any other score, `understand` tells.

local RECORD = '<BBBBBI4I4ddc16c16'
local VERSION, RECORD_SIZE = 1, 61
local PENDING, LEASED, PARKED = 0, 1, 2
local NO_NONCE = string.rep('\0', 16)
local OFF_GRID = 2 ^ -21

local function fail(word, text) return redis.error_reply(word .. ' ' .. text) end

-- 17 digits bring every double back; `tostring` keeps 14 and loses 0.1 ms.
local function number(x) return string.format('%.17g', x) end

local function time_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

local function whole_us(score) return math.floor(score * 1e6 + 0.5) / 1e6 == score end

-- The score of an instant that we choose, never before the due time.
local function own_score(us, due) return math.max(math.floor(us), math.ceil(due * 1e6)) / 1e6 + OFF_GRID end

-- An error reply if a key holds another type than ours.
local function wrong_type()
  local want = { 'zset', 'hash', 'hash' }
  for i = 1, 3 do
    local found = redis.call('TYPE', KEYS[i]).ok
    if found ~= want[i] and found ~= 'none' then
      return fail('WRONGKEYTYPE', KEYS[i] .. ' holds a ' .. found .. ', not a ' .. want[i])
    end
  end
end

local function pack(r)
  return struct.pack(RECORD, VERSION, r.state, r.received, r.suspect, r.approximate,
    math.min(r.attempts, 4294967295), math.min(r.claims, 4294967295), r.score, r.due, r.nonce, r.occurrence)
end

local function unpack_record(raw)
  if not raw or #raw ~= RECORD_SIZE then return nil end
  local version, state, received, suspect, approximate, attempts, claims, score, due, nonce, occurrence =
    struct.unpack(RECORD, raw)
  if version ~= VERSION then return nil end
  return { state = state, received = received, suspect = suspect, approximate = approximate, attempts = attempts,
    claims = claims, score = score, due = due, nonce = nonce, occurrence = occurrence }
end

-- What a timer's score and record mean together.
--   score explained by the record   the record stands
--   no record                       a new intent, due = score
--   whole microsecond, or too early a publisher gave a new intent while we held or kept the timer
--   otherwise                       a foreign worker leased it: due and attempts stay, as far as we know
local function understand(score, raw)
  local r = unpack_record(raw)
  if r and r.score == score then return r end
  if not r or whole_us(score) or score < r.due then
    return { state = PENDING, received = 0, suspect = 0, approximate = whole_us(score) and 0 or 1, attempts = 0,
      claims = 0, score = score, due = math.max(score, 0), nonce = NO_NONCE, occurrence = NO_NONCE }
  end
  if r.state == LEASED then r.attempts = r.attempts + r.received end
  r.state, r.received, r.approximate, r.score, r.nonce = PENDING, 0, 1, score, NO_NONCE
  return r
end

-- The fence: the lease is the one taken under this nonce, and nobody has written a score since.
local function holds(r, nonce)
  return r.state == LEASED and r.nonce == nonce
end

-- The score of the timeline's first timer, as Redis prints it; '' for an empty timeline.
local function head()
  return redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or ''
end

-- Tell sleeping relays that the first timer has become an earlier one.
local function hint(channel, before, after)
  if after ~= '' and (before == '' or tonumber(after) < tonumber(before)) then
    redis.pcall('PUBLISH', channel, after) -- what was written stands, also for want of a permission
  end
end
