-- timeline/orphans.lua: look at a part of a hash for ids that the timeline does not have.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- Writes  nothing
-- ARGV[1] 'payloads' | 'leases'
-- ARGV[2] cursor, '0' at first
-- ARGV[3] about how many entries to look at
-- Returns { next cursor, '0' at the end; timer_ids without a timer, and so on }
--         error WRONGKEYTYPE
-- Race    a publisher that writes its keys one after the other looks like an orphan for a moment: this
--         only tells, and timeline/repair.lua looks again after a grace period.

local bad = wrong_type()
if bad then return bad end

local page = redis.call('HSCAN', KEYS[ARGV[1] == 'payloads' and 2 or 3], ARGV[2], 'COUNT', ARGV[3])
local reply, ids = { page[1] }, {}
for i = 1, #page[2], 2 do
  ids[#ids + 1] = page[2][i]
  if #ids == 500 or i + 2 > #page[2] then -- @rule orphans-to-the-end
    for n, score in ipairs(redis.call('ZMSCORE', KEYS[1], unpack(ids))) do
      if not score then reply[#reply + 1] = ids[n] end -- @rule orphans-have-no-score
    end
    ids = {}
  end
end
return reply
