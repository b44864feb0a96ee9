-- timeline/repair.lua: remove payloads and lease records that have no timer.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
-- Tail    timer_ids that had none a grace period ago
-- Returns { payloads removed, lease records removed }
--         error WRONGKEYTYPE
-- Race    a timer that was scheduled meanwhile: whether it is there is asked again here, in the same
--         step as the removal.

local bad = wrong_type()
if bad then return bad end

local ids = { unpack(ARGV, tail) }
local orphans, seen = {}, {}
for n, score in ipairs(redis.call('ZMSCORE', timeline, unpack(ids))) do
  local id = ids[n]
  -- @rule repair-asks-again
  if not score and not seen[id] then -- whose payload and record were both found comes twice
    orphans[#orphans + 1], seen[id] = id, true
  end
end
if #orphans == 0 then return answer({ 0, 0 }) end
if JOURNAL then
  for _, id in ipairs(orphans) do
    note_remains(id)
  end
  append_always(now_us) -- @rule repair-noted
end
-- @rule repair-clears-records
return answer({ redis.call('HDEL', payloads, unpack(orphans)), redis.call('HDEL', leases, unpack(orphans)) })
