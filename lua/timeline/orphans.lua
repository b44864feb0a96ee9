-- timeline/orphans.lua: look at a part of a hash for ids that the timeline does not have.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- Writes  nothing
-- ARGV    which text                'payloads' | 'leases'
--         cursor text               '0' at first
--         step count                entries to look at, about
-- Returns { next cursor, '0' at the end; timer_ids without a timer, and so on }
--         error WRONGKEYTYPE
-- Race    a publisher that writes its keys one after the other looks like an orphan for a moment: this
--         only tells, and timeline/repair.lua looks again after a grace period.

local bad = wrong_type()
if bad then return bad end

local hash = which == 'payloads' and payloads or leases
local page = redis.call('HSCAN', hash, cursor, 'COUNT', step)
local reply, ids = { page[1] }, {}
for i = 1, #page[2], 2 do
  ids[#ids + 1] = page[2][i]
  if #ids == 500 or i + 2 > #page[2] then -- @rule orphans-to-the-end
    for n, score in ipairs(redis.call('ZMSCORE', timeline, unpack(ids))) do
      if not score then reply[#reply + 1] = ids[n] end -- @rule orphans-have-no-score
    end
    ids = {}
  end
end
return reply
