-- timeline/ahead.lua: look at a part of the lease records for leases that end later than one that is given now.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- Writes  nothing
-- ARGV    lease us                  that a lease lasts at most
--         cursor text               '0' at first
--         step count                records to look at, about
-- Returns { next cursor, '0' at the end; timer_ids, of which some may come twice }
--         error WRONGKEYTYPE
-- Race    a lease is renewed or ends as it is found: timeline/recall.lua asks again.

local bad = wrong_type()
if bad then return bad end

local latest = own_score(time_us() + lease, 0)
local page = redis.call('HSCAN', leases, cursor, 'COUNT', step)
local reply = { page[1] }
for i = 1, #page[2], 2 do
  local raw = page[2][i + 1]
  -- @rule leases-ahead-are-found
  if #raw == RECORD_SIZE and string.sub(raw, 1, 2) == LEASED_RECORD and struct.unpack('<d', raw, SCORE_AT) > latest then
    reply[#reply + 1] = page[2][i]
  end
end
return reply
