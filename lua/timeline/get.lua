-- timeline/get.lua: read one timer.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- Writes  nothing
-- ARGV[1] timer_id
-- Returns { score, record, envelope }, where the record is as `understand` sees it; {} if there is
--         no such timer or it has no payload
--         error WRONGKEYTYPE
-- Race    none: one script sees the three keys as of one instant.

local bad = wrong_type()
if bad then return bad end

local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
local envelope = redis.call('HGET', KEYS[2], ARGV[1])
if not score or not envelope then return {} end
return { score, pack(understand(tonumber(score), redis.call('HGET', KEYS[3], ARGV[1]))), envelope }
