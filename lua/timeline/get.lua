-- timeline/get.lua: read one timer.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- Writes  nothing
-- ARGV    timer_id text
-- Returns { score, record, envelope }, where the record is as `understand` sees it; {} if there is
--         no such timer or it has no payload
--         error WRONGKEYTYPE; error LEAVING <timer_id>
-- Race    none: one script sees the three keys as of one instant.

local bad = wrong_type() or here.on_its_way({ timer_id })
if bad then return bad end

local score = redis.call('ZSCORE', timeline, timer_id)
local envelope = redis.call('HGET', payloads, timer_id)
if not score or not envelope then return {} end
return { score, pack(understand(tonumber(score), redis.call('HGET', leases, timer_id))), envelope }
