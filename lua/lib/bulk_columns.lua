-- lib/bulk_columns.lua: what the scripts share that take timers by columns: bulk/apply.lua, bulk/guarded_load.lua,
-- bulk/insert.lua and bulk/replace.lua; see 0067.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- ARGV    channel text              of wake hints
--         expiring_at text          '' if none expires; else of each timer the score at which it does, or nothing, and ';'
--         packed_scores msgpack     an array of one text for each timer, as the next two are; each timer once
--         packed_ids msgpack
--         packed_envelopes msgpack

local scores, ids, envelopes -- the columns: arrays of texts, one for each timer
local found, records -- of each id the score and the record that are there, as far as the script has looked
local chosen = {} -- the places of the timers that go in
local moving = {} -- of those of which only the due time changes: the score at which the timer expires, 0 for never

local function read_columns()
  scores, ids, envelopes =
    cmsgpack.unpack(packed_scores), cmsgpack.unpack(packed_ids), cmsgpack.unpack(packed_envelopes)
end

local LONGEST = 64 -- bytes of an id that a ledger holds unchanged

-- What a ledger has for the timers: their ids; of an id that is longer than LONGEST a NUL, which no id has, and its
-- SHA-1 in hexadecimal digits.
local function ledger_names()
  local names = ids
  for n, id in ipairs(ids) do
    if #id > LONGEST then -- @rule long-ids-hashed
      if names == ids then names = { unpack(ids) } end
      names[n] = '\0' .. redis.sha1hex(id)
    end
  end
  return names
end

-- Look for what lives, if it is `wanted`, and `closely` for its records: the journal wants both always.
local function look(wanted, closely)
  if wanted or JOURNAL then found = redis.call('ZMSCORE', timeline, unpack(ids)) end
  if closely or JOURNAL then records = redis.call('HMGET', leases, unpack(ids)) end
end

-- The scores at which timers expire, 0 for never, where there are any.
local function expiries()
  local found_at = {}
  for score in string.gmatch(expiring_at, '([^;]*);') do
    found_at[#found_at + 1] = tonumber(score) or 0
  end
  return found_at
end

-- The records of those that expire, as timeline/schedule.lua makes them; the timeline gets their scores.
local function records_of(expires)
  local kept = {}
  for _, n in ipairs(chosen) do
    if (expires[n] or 0) > 0 then -- @rule expiring-get-records
      local r = expiring(tonumber(scores[n]), expires[n]) -- @rule expiry-by-row
      scores[n] = number(r.score) -- @rule expiring-score-by-row
      kept[#kept + 1], kept[#kept + 2] = ids[n], pack(r)
    end
  end
  return kept
end

local function note_chosen(expires)
  for _, n in ipairs(chosen) do
    local id, old = ids[n], found[n] and understand(tonumber(found[n]), records[n])
    local fields = due_is(math.max(tonumber(scores[n]), 0)) .. expires_is(expires[n] or 0)
    if old then -- @rule bulk-replacement-noted
      note(REPLACED, id, nonce_is(old.nonce) .. fields .. previous_due_is(old.due) .. adopted_is(old.adopted))
    else
      note_taken(id, records[n])
      note(SCHEDULED, id, fields) -- @rule bulk-addition-noted
    end
  end
end

local function add(kept)
  local timers, stored, k = {}, {}, 0
  for _, n in ipairs(chosen) do
    local id = ids[n]
    timers[k + 1], timers[k + 2] = scores[n], id -- @rule score-by-row
    if not moving[n] then -- @rule moved-keeps-payload
      stored[#stored + 1], stored[#stored + 2] = id, envelopes[n] -- @rule envelope-by-row
    end
    k = k + 2
  end
  local cleared = {}
  if redis.call('HLEN', leases) > 0 then -- of leases, or left behind by what was taken away
    for m, n in ipairs(chosen) do
      cleared[m] = ids[n] -- @rule record-cleared-by-row
    end
  end
  if JOURNAL then append(now_us) end
  redis.call('ZADD', timeline, unpack(timers)) -- @rule bulk-begins-with-zadd
  if #cleared > 0 then redis.call('HDEL', leases, unpack(cleared)) end -- @rule bulk-clears-records
  if #stored > 0 then redis.call('HSET', payloads, unpack(stored)) end
  if #kept > 0 then redis.call('HSET', leases, unpack(kept)) end
end

-- Add the chosen, and hint if the first of them comes before all others.
local function add_chosen()
  if #chosen == 0 then return end
  local before, expires = head(), expiries()
  for n, score in pairs(moving) do
    expires[n] = score
  end
  if JOURNAL then note_chosen(expires) end
  add(next(expires) and records_of(expires) or {})
  hint(channel, before, head()) -- @rule bulk-hints
end
