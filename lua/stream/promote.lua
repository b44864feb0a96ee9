-- stream/promote.lua: move due timers to a topic's stream.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string,
--         stream stream, retries zset, group hash, marks hash
-- Uses    promotion, stream_group
-- ARGV[1] limit, 1 to 500
-- ARGV[2] payload bytes to stop at (the first timer is moved whatever its size)
-- ARGV[3] grace in microseconds for a timer without payload
-- ARGV[4] nonce, 16 bytes, never used before
-- ARGV[5] the group of this relay's application: it is there before the first timer is
-- ARGV[6] to ARGV[10] the policy's limits, see `read_limits`
-- ARGV[11] payloads to read at a time at most
-- ARGV[12] where that group begins if it isn't there: '$', behind all entries, or '0'
-- Returns what list/promote.lua does
--         error WRONGKEYTYPE
-- Race, Full    see lib/promotion.lua

local bad = wrong_type()
if bad then return bad end

local now_us = time_us()
if redis.pcall('XPENDING', KEYS[6], ARGV[5]).err then -- also while the topic is paused
  redis.call('HDEL', KEYS[8], NO_NONCE)
  redis.call('XGROUP', 'CREATE', KEYS[6], ARGV[5], ARGV[12], 'MKSTREAM') -- @rule promoter-group-begins-where-told
end
local till = redis.call('GET', KEYS[5])
local done = { promoted = 0, parked = 0, orphans = {}, deaths = {} }
if now_us >= (tonumber(till or 0) or 0) then
  till = ''
  done = promote(
    now_us,
    tonumber(ARGV[1]),
    tonumber(ARGV[2]),
    tonumber(ARGV[11]),
    tonumber(ARGV[3]),
    read_limits(6),
    ARGV[4],
    anybody,
    to_stream
  )
end
return answer({ string.format('%.0f', now_us), head(), done.promoted, done.parked, done.orphans, done.deaths, till })
