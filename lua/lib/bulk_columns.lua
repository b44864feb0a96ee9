-- lib/bulk_columns.lua: what bulk/guarded_load.lua and bulk/insert.lua share: timers that come by columns, and how those
-- that were chosen go in.
--
-- KEYS    timeline zset, payloads hash, leases hash

local scores, ids, envelopes -- the columns: arrays of texts, one for each timer
local chosen = {} -- the places of the timers that go in

-- The scores at which timers expire, 0 for never, where there are any.
local function expiries(text)
  local found_at = {}
  for score in string.gmatch(text, '([^;]*);') do
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

local function add(kept)
  local timers, added, stored = {}, {}, {}
  for m, n in ipairs(chosen) do
    timers[2 * m - 1], timers[2 * m], added[m] = scores[n], ids[n], ids[n] -- @rule score-by-row
    stored[2 * m - 1], stored[2 * m] = ids[n], envelopes[n] -- @rule envelope-by-row
  end
  local held = redis.call('HLEN', leases) > 0 -- of leases, or left behind by what was taken away
  if JOURNAL then append(now_us) end
  redis.call('ZADD', timeline, unpack(timers)) -- @rule bulk-begins-with-zadd
  if held then redis.call('HDEL', leases, unpack(added)) end -- @rule bulk-clears-records
  redis.call('HSET', payloads, unpack(stored))
  if #kept > 0 then redis.call('HSET', leases, unpack(kept)) end
end

-- Add the chosen, and hint if the first of them comes before all others. `note_them` notes them for the journal.
local function add_chosen(channel, expiring_at, note_them)
  if #chosen == 0 then return end
  local before, expires = head(), expiries(expiring_at)
  if JOURNAL then note_them(expires) end
  add(#expires > 0 and records_of(expires) or {})
  hint(channel, before, head()) -- @rule bulk-hints
end
